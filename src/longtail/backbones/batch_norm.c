/* Batch normalisation in training, with the addition and the ReLU behind it, in as few passes over memory as
   the arithmetic allows: two forward, two backward. kernels.py compiles this file, once with -DBF16 and once
   without, and batch_norm.py calls it.

   Maps are [rows, channels], channels side by side (channels last); rows are images times positions. Sums are
   taken over a fixed number of slices, which are added up in their order, so a result does not depend on the
   number of threads. What is no number stays none: the guard of the step must see it. */

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SLICES 32   /* parts of the maps, each summed by one thread */
#define BLOCK 256   /* lines summed in float before they go into a sum in double */
#define LANES 64    /* narrow maps are worked on several rows at a time */
#define WIDEST 2048 /* channels */

#ifdef BF16
typedef uint16_t number;
static inline float get(number half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline number put(float value) { /* to the nearest, ties to even */
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (number)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : nearest);
}
#else
typedef float number;
static inline float get(number value) { return value; }
static inline number put(float value) { return value; }
#endif

int threads(void) { return omp_get_max_threads(); }

/* Lines of `width` numbers, a multiple of the channels: what one pass of an inner loop works on. */
static int64_t width_of(int64_t rows, int64_t channels) {
    int64_t several = channels < LANES && LANES % channels == 0 ? LANES / channels : 1;
    return rows % several == 0 ? several * channels : channels;
}

static int64_t edge(int64_t lines, int64_t slice) { return lines * slice / SLICES; }

/* total[channels] of the slices' sums, in the order of the slices */
static void add_up(const double *sums, int64_t stride, int64_t channels, double *total) {
    memset(total, 0, sizeof(double) * channels);
    for (int64_t slice = 0; slice < SLICES; slice++)
        for (int64_t c = 0; c < channels; c++) total[c] += sums[slice * stride + c];
}

static void keep(double *sums, const float *first, const float *second, int64_t width, int64_t channels) {
    for (int64_t c = 0; c < width; c++) {
        sums[c % channels] += first[c];
        sums[channels + c % channels] += second[c];
    }
}

/* mean and 1 / sqrt(variance + eps) of each channel; the running statistics move by `momentum`. Sums are those
   of the distance to the first row, so that a mean far from 0 costs no precision. */
static int statistics(const number *maps, int64_t rows, int64_t channels, float eps, float momentum,
                      float *running_mean, float *running_variance, float *mean, float *inverse) {
    int64_t width = width_of(rows, channels), lines = rows * channels / width;
    double *sums = calloc((SLICES + 1) * 2 * channels, sizeof(double)), *total = sums + SLICES * 2 * channels;
    if (!sums) return 1;
    float origin[WIDEST];
    for (int64_t c = 0; c < width; c++) origin[c] = get(maps[c % channels]);
#pragma omp parallel for schedule(static)
    for (int64_t slice = 0; slice < SLICES; slice++) {
        float first[WIDEST], second[WIDEST];
        int64_t last = edge(lines, slice + 1);
        for (int64_t begin = edge(lines, slice); begin < last; begin += BLOCK) {
            memset(first, 0, sizeof(float) * width);
            memset(second, 0, sizeof(float) * width);
            for (int64_t line = begin; line < begin + BLOCK && line < last; line++) {
                const number *x = maps + line * width;
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    float value = get(x[c]) - origin[c];
                    first[c] += value;
                    second[c] += value * value;
                }
            }
            keep(sums + slice * 2 * channels, first, second, width, channels);
        }
    }
    add_up(sums, 2 * channels, channels, total);
    add_up(sums + channels, 2 * channels, channels, total + channels);
    for (int64_t c = 0; c < channels; c++) {
        double moved = total[c] / rows, variance = total[channels + c] / rows - moved * moved;
        double middle = origin[c] + moved;
        if (variance < 0) variance = 0; /* rounding; a NaN passes */
        mean[c] = middle;
        inverse[c] = 1 / sqrt(variance + eps);
        running_mean[c] += momentum * ((float)middle - running_mean[c]);
        running_variance[c] += momentum * ((float)(variance * rows / (rows - 1)) - running_variance[c]);
    }
    free(sums);
    return 0;
}

/* result = relu((maps - mean) * inverse * weight + bias + shortcut); no shortcut where it is NULL */
int forward(const number *maps, const number *shortcut, int64_t rows, int64_t channels, const float *weight,
            const float *bias, float eps, float momentum, float *running_mean, float *running_variance,
            float *mean, float *inverse, number *result) {
    if (statistics(maps, rows, channels, eps, momentum, running_mean, running_variance, mean, inverse)) return 1;
    int64_t width = width_of(rows, channels), lines = rows * channels / width;
    float slope[WIDEST], offset[WIDEST];
    for (int64_t c = 0; c < width; c++) {
        int64_t channel = c % channels;
        slope[c] = weight[channel] * inverse[channel];
        offset[c] = bias[channel] - mean[channel] * slope[c];
    }
#pragma omp parallel for schedule(static)
    for (int64_t slice = 0; slice < SLICES; slice++) /* the same slices: a thread finds its part in its cache */
        for (int64_t line = edge(lines, slice); line < edge(lines, slice + 1); line++) {
            const number *x = maps + line * width, *s = shortcut ? shortcut + line * width : NULL;
            number *y = result + line * width;
            if (s) {
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    float value = get(x[c]) * slope[c] + offset[c] + get(s[c]);
                    y[c] = put(value < 0 ? 0 : value);
                }
            } else {
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    float value = get(x[c]) * slope[c] + offset[c];
                    y[c] = put(value < 0 ? 0 : value);
                }
            }
        }
    return 0;
}

/* The gradient behind the ReLU where nothing was added before it: its sign is computed again, which is cheaper
   than to read it. */
static inline float behind(float x, float slope, float offset, float given) {
    return x * slope + offset <= 0 ? 0 : given;
}

/* Of the gradient `given` of the result: `found`, of the maps, and those of weight and bias. Where a shortcut
   was added, `result` and `passed` are not NULL, and `passed` is the gradient of the shortcut. */
int backward(const number *maps, const number *result, const number *given, int64_t rows, int64_t channels,
             const float *weight, const float *bias, const float *mean, const float *inverse, number *passed,
             number *found, float *of_weight, float *of_bias) {
    int64_t width = width_of(rows, channels), lines = rows * channels / width;
    double *sums = calloc((SLICES + 1) * 2 * channels, sizeof(double)), *total = sums + SLICES * 2 * channels;
    if (!sums) return 1;
    float middle[WIDEST], slope[WIDEST], offset[WIDEST], tilt[WIDEST], constant[WIDEST];
    for (int64_t c = 0; c < width; c++) {
        int64_t channel = c % channels;
        middle[c] = mean[channel];
        slope[c] = weight[channel] * inverse[channel];
        offset[c] = bias[channel] - mean[channel] * slope[c];
    }
#pragma omp parallel for schedule(static)
    for (int64_t slice = 0; slice < SLICES; slice++) {
        float first[WIDEST], second[WIDEST];
        int64_t last = edge(lines, slice + 1);
        for (int64_t begin = edge(lines, slice); begin < last; begin += BLOCK) {
            memset(first, 0, sizeof(float) * width);
            memset(second, 0, sizeof(float) * width);
            for (int64_t line = begin; line < begin + BLOCK && line < last; line++) {
                const number *x = maps + line * width, *g = given + line * width;
                if (result) {
                    const number *y = result + line * width;
                    number *p = passed + line * width;
#pragma omp simd
                    for (int64_t c = 0; c < width; c++) {
                        float gradient = get(y[c]) <= 0 ? 0 : get(g[c]);
                        p[c] = put(gradient);
                        first[c] += gradient;
                        second[c] += gradient * (get(x[c]) - middle[c]);
                    }
                } else {
#pragma omp simd
                    for (int64_t c = 0; c < width; c++) {
                        float gradient = behind(get(x[c]), slope[c], offset[c], get(g[c]));
                        first[c] += gradient;
                        second[c] += gradient * (get(x[c]) - middle[c]);
                    }
                }
            }
            keep(sums + slice * 2 * channels, first, second, width, channels);
        }
    }
    add_up(sums, 2 * channels, channels, total);
    add_up(sums + channels, 2 * channels, channels, total + channels);
    /* found = slope * (gradient - mean(gradient) - normalised * mean(gradient * normalised)): a sum of three terms */
    for (int64_t c = 0; c < width; c++) {
        int64_t channel = c % channels;
        double product = total[channels + channel] * inverse[channel];
        of_weight[channel] = product;
        of_bias[channel] = total[channel];
        tilt[c] = -slope[c] * inverse[channel] * product / rows;
        constant[c] = -slope[c] * total[channel] / rows - tilt[c] * mean[channel];
    }
#pragma omp parallel for schedule(static)
    for (int64_t slice = 0; slice < SLICES; slice++) /* the same slices: a thread finds its part in its cache */
        for (int64_t line = edge(lines, slice); line < edge(lines, slice + 1); line++) {
            const number *x = maps + line * width, *g = (result ? passed : given) + line * width;
            number *f = found + line * width;
            if (result) {
#pragma omp simd
                for (int64_t c = 0; c < width; c++)
                    f[c] = put(get(g[c]) * slope[c] + get(x[c]) * tilt[c] + constant[c]);
            } else {
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    float gradient = behind(get(x[c]), slope[c], offset[c], get(g[c]));
                    f[c] = put(gradient * slope[c] + get(x[c]) * tilt[c] + constant[c]);
                }
            }
        }
    free(sums);
    return 0;
}

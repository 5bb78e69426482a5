"""The numbers behind the pictures: pure functions of arrays, the same for the page and for the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CHUNK = 4096  # rows of logits turned into float64 at a time: 8,142 classes must not fill the memory
GROUPS = ("many", "medium", "few")
FEW_IMAGES = 10  # a bin of the reliability diagram with fewer says little


def shots(counts: Array, rule: str = "paper") -> dict[str, Array]:
    """Which classes have many, medium and few images: three masks."""
    from longtail import counts as library  # brings torch: only when a report is really made

    found = library.shots([int(n) for n in counts], cast("library.ShotRule", rule))
    return dict(zip(GROUPS, (np.asarray(mask) for mask in found)))


def by_frequency(counts: Array, accuracies: Sequence[Array], most: int = 120) -> dict[str, Array]:
    """Classes from the most to the least frequent, in at most `most` bars of neighbouring classes.

    `order` are class numbers, `bar` the bar of each, `counts` and `accuracy` the means in each bar.
    """
    order = np.argsort(-np.asarray(counts), kind="stable")
    bars = min(len(order), most)
    bar = np.arange(len(order)) * bars // max(len(order), 1)
    mean = (
        np.stack([_bar_means(a[order], bar, bars) for a in accuracies]) if accuracies else np.zeros((0, bars))
    )
    return {
        "order": order,
        "bar": bar,
        "counts": _bar_means(np.asarray(counts, dtype=np.float64)[order], bar, bars),
        "accuracy": mean,
    }


def _bar_means(values: Array, bar: Array, bars: int) -> Array:
    known = ~np.isnan(values)
    total = np.bincount(bar[known], weights=values[known], minlength=bars)
    number = np.bincount(bar[known], minlength=bars)
    return np.divide(total, number, out=np.full(bars, np.nan), where=number > 0)


def trend(values: Array, width: int = 9) -> Array:
    """A running mean over `width` neighbours (fewer at the ends), deaf to NaN: a line through noisy bars."""
    half = min(width, len(values)) // 2
    padded = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return np.array([np.nanmean(p) if np.any(~np.isnan(p)) else np.nan for p in padded])


def smooth(values: Array, least: int = 15) -> Array:
    """The loss of single batches as a line that can be read: its trend, unless it has few points."""
    return trend(values, min(9, len(values) // 3)) if len(values) >= least else values


def thin(x: Array, y: Array, most: int = 160) -> tuple[Array, Array]:
    """A long curve as the means of at most `most` neighbouring stretches."""
    if len(x) <= most:
        return x, y
    part = np.arange(len(x)) * most // len(x)
    number = np.bincount(part, minlength=most)
    return np.bincount(part, weights=x) / number, np.bincount(part, weights=y) / number


def predicted(logits: Array) -> Array:
    """The class of the largest logit of each row."""
    return np.concatenate([rows.argmax(axis=1) for rows, _ in _pieces(logits)] or [np.zeros(0, np.int64)])


def confusion(labels: Array, guesses: Array, classes: int) -> Array:
    """Images by true class (row) and predicted class (column)."""
    flat = np.bincount(np.asarray(labels, np.int64) * classes + guesses, minlength=classes * classes)
    return flat.reshape(classes, classes)


def grouped(matrix: Array, counts: Array, *, most: int = 30, groups: int = 10) -> tuple[Array, list[Array]]:
    """The confusion of classes sorted by frequency; above `most` classes, of `groups` equal groups of them.

    Returns the matrix and, for each of its rows, the classes that it holds.
    """
    order = np.argsort(-np.asarray(counts), kind="stable")
    parts = groups if len(order) > most else len(order)
    members = [np.asarray(part) for part in np.array_split(order, parts)]
    member = np.empty(len(order), dtype=np.int64)
    for number, part in enumerate(members):
        member[part] = number
    summed = np.zeros((parts, parts), dtype=matrix.dtype)
    np.add.at(summed, (member[:, None], member[None, :]), matrix)
    return summed, members


def row_shares(matrix: Array) -> Array:
    """Percent of each row; a row without images is NaN."""
    total = matrix.sum(axis=1, keepdims=True).astype(np.float64)
    return np.divide(100.0 * matrix, total, out=np.full(matrix.shape, np.nan), where=total > 0)


def reliability(logits: Array, labels: Array, bins: int = 15) -> dict[str, Array]:
    """Mean confidence and accuracy in `bins` equal bins of confidence, the share of images in each, and ECE.

    A bin holds its right edge, as in the usual definition: (0, 1/15], (1/15, 2/15], ...
    """
    confidence, right = _confidence(logits, labels)
    index = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    number = np.bincount(index, minlength=bins)
    sums = [np.bincount(index, weights=w, minlength=bins) for w in (confidence, right)]
    mean = [np.divide(s, number, out=np.full(bins, np.nan), where=number > 0) for s in sums]
    gap = np.abs(sums[0] - sums[1]).sum() / max(len(right), 1)
    return {
        "edges": np.linspace(0, 1, bins + 1),
        "confidence": mean[0],
        "accuracy": mean[1],
        "share": number / max(len(right), 1),
        "number": number,
        "ece": np.asarray(gap),
    }


def logit_gap(logits: Array, labels: Array, classes: int) -> Array:
    """Mean over the images of a class of its own logit minus the largest other one; NaN without images."""
    gaps = np.empty(len(labels))
    for rows, piece in _pieces(logits):
        truth = labels[piece]
        own = rows[np.arange(len(truth)), truth]
        others = rows.copy()
        others[np.arange(len(truth)), truth] = -np.inf
        gaps[piece] = own - others.max(axis=1)
    number = np.bincount(labels, minlength=classes)
    total = np.bincount(labels, weights=gaps, minlength=classes)
    return np.divide(total, number, out=np.full(classes, np.nan), where=number > 0)


def worst(accuracies: Array, counts: Array, number: int) -> Array:
    """The classes with the lowest accuracy, fewest images first among equals; untested classes left out."""
    known = np.flatnonzero(~np.isnan(accuracies))
    order = np.lexsort((known, np.asarray(counts)[known], accuracies[known]))
    return known[order][:number]


def _confidence(logits: Array, labels: Array) -> tuple[Array, Array]:
    confidence, right = np.empty(len(labels)), np.empty(len(labels))
    for rows, piece in _pieces(logits):
        shifted = np.exp(rows - rows.max(axis=1, keepdims=True))
        confidence[piece] = shifted.max(axis=1) / shifted.sum(axis=1)
        right[piece] = rows.argmax(axis=1) == labels[piece]
    return confidence, right


def _pieces(logits: Array) -> Iterator[tuple[Array, slice]]:
    for start in range(0, len(logits), CHUNK):
        piece = slice(start, min(start + CHUNK, len(logits)))
        yield logits[piece].astype(np.float64), piece

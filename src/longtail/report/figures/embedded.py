"""H1, H6, H7: embeddings of a run's features, in the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import UsageError
from longtail.report.figures import embedding
from longtail.report.figures.canvas import Array, Arrays, Drawn, Request, sheet
from longtail.report.reading import RunFiles
from longtail.report.style import BLACK, COLUMN, HEAD, PAGE, TAIL, class_mark, series
from longtail.report.summary import entries
from longtail.report.text import label, short
from longtail.run.escape import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPLITS = ("train", "test")
TOY_SIZES = (500, 200, 100, 50)  # H1: images of its four classes, head to tail
MOST_RUNS = 4
RASTER = 1500  # more points than this become pixels: a vector file of 40,000 marks helps nobody


def distortion(request: Request) -> Drawn:
    """Four classes, from the head to the tail: the head spreads over the plane and the tail is squeezed."""
    run = request.needed("distortion", most=1)[0]
    found = _features(run)
    classes = embedding.spaced_classes(run.counts, len(TOY_SIZES))
    chosen = embedding.sample(found["train_labels"], classes.tolist(), TOY_SIZES, request.seed)
    features, labels = found["train_features"][chosen], found["train_labels"][chosen]
    points = embedding.tsne(features, request.seed)
    arrays: Arrays = {"points": points, "labels": labels, "classes": classes}
    hulls = [embedding.hull(_core(points[labels == c])) for c in classes]
    arrays["areas"] = np.array([embedding.area(corners) for corners in hulls])
    arrays["distances"] = np.array([embedding.spread(features[labels == c]) for c in classes])
    arrays |= {f"hull_{i}": corners for i, corners in enumerate(hulls)}
    figure, axes = sheet(height=2.7)
    for i, c in enumerate(classes):
        color, marker = series(i)
        own = points[labels == c]
        if i in (0, len(classes) - 1) and len(hulls[i]) > 2:
            x, y = np.concatenate([hulls[i], hulls[i][:1]]).T
            axes[0].fill(x, y, color=color, alpha=0.15, linewidth=0)
            axes[0].plot(x, y, color=color, linewidth=0.9, alpha=0.8)  # one region may lie inside the other
        note = f"{short(run.names[int(c)], 14)} ({len(own)}), spread {arrays['distances'][i]:.2f}"
        axes[0].plot(own[:, 0], own[:, 1], marker, color=color, markersize=2.4, label=note, linestyle="")
    axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2, markerscale=1.6, columnspacing=1)
    _bare(axes[0])
    return Drawn(figure, arrays)


def all_classes(request: Request) -> Drawn:
    """Every class, train above and test below, one column a run."""
    runs = request.needed("tsne", most=MOST_RUNS)
    figure, axes = _grid(len(runs))
    titles = _titles(runs)
    arrays: Arrays = {}
    for column, run in enumerate(runs):
        found = _joint(run, request, None)
        arrays |= {f"{key}_{column}": value for key, value in found.items()}
        for row, split in enumerate(SPLITS):
            axis, own = axes[row * len(runs) + column], found["split"] == row
            _classes(axis, found["points"][own], found["labels"][own], run.counts, found["points"])
            if row == 0:
                axis.set_title(titles[column])
            if column == 0:
                axis.set_ylabel(split)
    if len(runs[0].counts) <= 16:
        names = [short(name, 14) for name in runs[0].names]
        handles, _ = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=5, markerscale=2, columnspacing=1)
    else:
        _scale(figure, axes, runs[0].counts)
    return Drawn(figure, arrays)


def _scale(figure: Any, axes: list[Axes], counts: NDArray[Any]) -> None:
    """What the colours of more than sixteen classes mean: the places from the head to the tail."""
    from matplotlib.cm import ScalarMappable

    bar = figure.colorbar(
        ScalarMappable(cmap="cividis"), ax=axes, location="bottom", shrink=0.5, aspect=40, pad=0.02
    )
    bar.outline.set_visible(False)
    ends = (f"most images ({int(counts.max()):,})", f"fewest ({int(counts.min()):,})")
    bar.set_ticks([0, 1], labels=list(ends))
    bar.ax.tick_params(length=0)


def head_tail(request: Request) -> Drawn:
    """The most and the least frequent class, with the model's own boundary between them, dashed."""
    runs = request.needed("head_tail", most=MOST_RUNS)
    figure, axes = _grid(len(runs))
    titles = _titles(runs)
    arrays: Arrays = {}
    for column, run in enumerate(runs):
        pair = (int(np.argmax(run.counts)), int(len(run.counts) - 1 - np.argmin(run.counts[::-1])))
        found = _joint(run, request, pair)
        arrays |= {f"{key}_{column}": value for key, value in found.items()}
        for row, split in enumerate(SPLITS):
            axis = axes[row * len(runs) + column]
            _pair(axis, found, row, pair, [short(run.names[c], 14) for c in pair])
            if row == 0:
                axis.set_title(titles[column])
            if column == 0:
                axis.set_ylabel(split)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, markerscale=2)
    return Drawn(figure, arrays)


def _titles(runs: Sequence[RunFiles]) -> list[str]:
    """What stands above each column: the method; where that is not enough, what differs, and the seed."""
    found: dict[object, str] = {}
    for entry in entries(runs):
        for run, seed in zip(entry.runs, entry.seeds):
            more = f", seed {seed}" if len(entry.runs) > 1 else ""
            found[run.path.resolve()] = f"{label(entry.title, 24)}{more}"
    return [found[run.path.resolve()] for run in runs]


def _features(run: RunFiles) -> Mapping[str, Array]:
    found = run.features
    if found is None:
        where = shown(run.path)
        raise UsageError(f"{where} has no features.safetensors; write it with: longtail features {where}")
    return found


def _joint(run: RunFiles, request: Request, pair: tuple[int, int] | None) -> Arrays:
    """Train and test points in one plane, so that the two halves may be compared."""
    found = _features(run)
    parts: list[dict[str, Array]] = []
    for row, split in enumerate(SPLITS):
        labels = found[f"{split}_labels"]
        wanted = np.arange(len(labels)) if pair is None else np.flatnonzero(np.isin(labels, pair))
        chosen = wanted[embedding.kept(labels[wanted], request.most // 2, request.seed)]
        part = {"features": found[f"{split}_features"][chosen], "labels": labels[chosen]}
        part["split"] = np.full(len(chosen), row)
        if pair is not None:
            scores = found.get(f"{split}_scores")
            if scores is None:
                raise UsageError(
                    f"{shown(run.path)}: features.safetensors has no {split}_scores; write it again"
                )
            part["decisions"] = scores[chosen, pair[1]] > scores[chosen, pair[0]]
        parts.append(part)
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    arrays["points"] = embedding.tsne(embedding.normalised(arrays.pop("features")), request.seed)
    if pair is not None:
        line = embedding.boundary(arrays["points"], arrays["decisions"])
        arrays |= {f"boundary_{key}": value for key, value in (line or {}).items()}
    return arrays


def _core(points: NDArray[Any]) -> NDArray[Any]:
    """The nine tenths of the points nearest to their median: one stray point must not make the region."""
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return points[distance <= np.quantile(distance, 0.9)] if len(points) else points


def _grid(columns: int) -> tuple[Any, list[Axes]]:
    width = COLUMN if columns <= 2 else PAGE
    return sheet(2, columns, width=width, height=min(2 * width / columns, 4.6) + 0.5)


def _classes(
    axis: Axes, points: NDArray[Any], labels: NDArray[Any], counts: NDArray[Any], all_: NDArray[Any]
) -> None:
    """Up to 16 classes by colour and mark; more by a scale from the most to the least frequent."""
    raster, size = len(points) > RASTER, 1.5 if len(points) > 600 else 2.4
    if len(counts) <= 16:
        for c in range(len(counts)):
            color, marker = class_mark(c)
            own = points[labels == c]
            axis.plot(
                own[:, 0], own[:, 1], marker, color=color, markersize=size, linestyle="", rasterized=raster,
                label=str(c), markeredgewidth=0,
            )  # fmt: skip
    else:
        rank = np.empty(len(counts))
        rank[np.argsort(-counts, kind="stable")] = np.linspace(0, 1, len(counts))
        axis.scatter(
            points[:, 0], points[:, 1], size, rank[labels], cmap="cividis", linewidths=0, rasterized=raster
        )
    _bare(axis, all_)


def _pair(axis: Axes, found: Arrays, row: int, pair: tuple[int, int], names: list[str]) -> None:
    own = found["split"] == row
    points, labels = found["points"][own], found["labels"][own]
    for c, name, color, marker in zip(pair, names, (HEAD, TAIL), ("o", "^")):
        part = points[labels == c]
        is_rare = len(part) <= 200  # a few marks may be large; a thousand would be a blot
        axis.plot(
            part[:, 0], part[:, 1], marker, color=color, markersize=3 if is_rare else 1.6, linestyle="",
            label=name, rasterized=len(part) > RASTER, markeredgewidth=0, alpha=0.9 if is_rare else 0.55,
        )  # fmt: skip
    if "boundary_values" in found:
        x, y, values = (found[f"boundary_{key}"] for key in ("x", "y", "values"))
        axis.contour(x, y, values, levels=[0], colors=BLACK, linestyles="dashed", linewidths=1)
    else:  # the model decides the same for every point: there is no boundary to draw
        winner = names[int(found["decisions"][0])]
        axis.text(0.04, 0.04, f"all taken for {winner}", transform=axis.transAxes, fontsize=6.5)
    _bare(axis, found["points"])


def _bare(axis: Axes, points: NDArray[Any] | None = None) -> None:
    """t-SNE has no units: no ticks, the same limits for both halves."""
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(True)
        spine.set_color("#c9ced6")
    if points is not None and len(points):
        low, high = points.min(axis=0), points.max(axis=0)
        room = 0.05 * np.maximum(high - low, 1e-9)
        axis.set_xlim(low[0] - room[0], high[0] + room[0])
        axis.set_ylim(low[1] - room[1], high[1] + room[1])

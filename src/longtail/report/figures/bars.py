"""H8: cloud sizes by form, class probabilities by sampler, accuracy by group, logit gap by class."""

from __future__ import annotations

import numpy as np

from longtail.errors import UsageError
from longtail.recipe import CloudName, Rule
from longtail.report import measures
from longtail.report.figures.canvas import Arrays, Drawn, Request, classes, sheet
from longtail.report.reading import RunFiles
from longtail.report.style import series
from longtail.report.summary import entries
from longtail.report.text import label
from longtail.run.escape import shown

FORMS: tuple[tuple[CloudName, float, str], ...] = (
    ("log", 1 / 4, "log"),
    ("power", 1 / 4, "power 1/4"),
    ("power", 1 / 3, "power 1/3"),
    ("cosine", 1 / 4, "cosine"),
)
RULES: tuple[tuple[Rule, str], ...] = (
    ("instance", "instance (IBS)"),
    ("square_root", "square root (SRS)"),
    ("effective_number", "effective number (ENS)"),
    ("class_balanced", "class-balanced (CBS)"),
)
FEW_BARS = 20


def clouds(request: Request) -> Drawn:
    """The size of every class's cloud in each form."""
    from longtail import clouds as library

    counts = request.sizes()
    sizes = [library.sizes(counts, form, power=power).numpy() for form, power, _ in FORMS]
    arrays = {"counts": np.asarray(counts), "sizes": np.stack(sizes)}
    return _profiles(arrays, "sizes", [name for _, _, name in FORMS], "cloud size δ")


def samplers(request: Request) -> Drawn:
    """How likely a draw is of each class."""
    from longtail.data import sampling

    counts = request.sizes()
    rows = [np.asarray(sampling.probabilities(counts, rule)) for rule, _ in RULES]
    arrays = {"counts": np.asarray(counts), "probabilities": np.stack(rows)}
    return _profiles(arrays, "probabilities", [name for _, name in RULES], "probability of a draw")


def _profiles(arrays: Arrays, key: str, names: list[str], title: str) -> Drawn:
    """Bars side by side for few classes, lines for many; classes from the most to the least frequent."""
    order = np.argsort(-arrays["counts"], kind="stable")
    figure, axes = sheet(height=2.2)
    axis, number = axes[0], len(order)
    place = np.arange(number)
    for i, (row, name) in enumerate(zip(arrays[key], names)):
        color, _ = series(i)
        if number <= FEW_BARS:
            width = 0.8 / len(names)
            axis.bar(
                place + (i - (len(names) - 1) / 2) * width, row[order], width * 0.92, color=color, label=name
            )
        else:
            axis.plot(place, row[order], color=color, label=name)
    if number <= FEW_BARS:
        axis.set_xticks(place, [f"{n:,}" for n in arrays["counts"][order]], rotation=45 if number > 6 else 0)
        axis.set_xlabel("training images of the class")
    else:
        axis.set_xlabel("classes, from the most to the fewest images")
    axis.set_ylabel(title)
    axis.grid(axis="y")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1, handlelength=1)
    return Drawn(figure, arrays)


def groups(request: Request) -> Drawn:
    """Accuracy of all classes and of the three groups, seeds of one recipe together."""
    from matplotlib.patheffects import withStroke

    found = entries(request.needed("groups"))
    metrics = ("top1", *measures.GROUPS)
    figures = [[entry.figure(metric) for metric in metrics] for entry in found]
    mean = np.array([[f.mean if f else np.nan for f in row] for row in figures])
    std = np.array([[f.spread if f and f.spread is not None else np.nan for f in row] for row in figures])
    figure, axes = sheet(height=2.2)
    width = 0.8 / len(found)
    shown_ = np.flatnonzero(~np.isnan(mean).all(axis=0))  # CIFAR-10-LT has no class with few images
    for i, entry in enumerate(found):
        color, _ = series(i)
        place = np.arange(len(shown_)) + (i - (len(found) - 1) / 2) * width
        error = None if np.isnan(std[i]).all() else np.nan_to_num(std[i, shown_])
        name, high = label(entry.title, 30), np.nan_to_num(mean[i, shown_])
        drawn = axes[0].bar(
            place, high, width * 0.92, yerr=error, color=color, label=name, error_kw={"elinewidth": 0.8}
        )
        for line in drawn.errorbar.lines[2] if drawn.errorbar else ():
            line.set_path_effects([withStroke(linewidth=2.4, foreground="white")])  # faint over a bar else
        if len(found) <= 4:
            for x, value, over in zip(place, mean[i, shown_], np.nan_to_num(std[i, shown_])):
                if value == value:
                    text = f"{value:.0f}"
                    axes[0].text(x, value + over + 1.2, text, ha="center", fontsize=6)
    axes[0].set_xticks(range(len(shown_)), [("all", *measures.GROUPS)[k] for k in shown_])
    axes[0].set_ylabel("accuracy, %")
    axes[0].set_ylim(0, 108)  # room for the number above a full bar
    axes[0].set_yticks(range(0, 101, 20))
    axes[0].grid(axis="y")
    axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1, handlelength=1)
    return Drawn(figure, {"mean": mean, "std": std})


def logit_gap(request: Request) -> Drawn:
    """The mean distance of the true class's logit from the best other one, by class."""
    found = entries(request.needed("logit_gap"))
    counts = found[0].runs[0].counts
    gaps = [np.nanmean([_gap(run) for run in entry.runs], axis=0) for entry in found]
    sorted_ = measures.by_frequency(counts, gaps)
    figure, axes = sheet(height=2.2)
    for i, entry in enumerate(found):
        color, marker = series(i)
        values = sorted_["accuracy"][i]
        line = values if len(values) <= 30 else measures.trend(values)
        mark = marker if len(values) <= 30 else ""
        name = label(entry.title, 30)
        axes[0].plot(np.arange(len(values)), line, color=color, marker=mark, markersize=3, label=name)
        if len(values) > 30:
            axes[0].plot(np.arange(len(values)), values, ".", color=color, markersize=2, alpha=0.4)
    axes[0].axhline(0, color="#3d454e", linewidth=0.8)
    classes(axes[0], [found[0].runs[0].names[int(c)] for c in sorted_["order"]])
    axes[0].set_ylabel("mean logit gap")
    axes[0].grid(axis="y")
    axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1)
    return Drawn(figure, {"counts": counts, "gaps": np.stack(gaps), "order": sorted_["order"]})


def _gap(run: RunFiles) -> measures.Array:
    if (found := run.predictions) is not None:
        return measures.logit_gap(found["logits"], found["labels"].astype(np.int64), len(run.counts))
    if (kept := run.features) is not None and "test_scores" in kept:
        return measures.logit_gap(kept["test_scores"], kept["test_labels"], len(run.counts))
    where = shown(run.path)
    raise UsageError(
        f"{where} has neither predictions nor features; write them with: longtail features {where}"
    )

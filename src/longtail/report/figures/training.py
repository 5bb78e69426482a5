"""The charts of the page as figures for a paper: accuracy by class, curves, confusion, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from longtail.errors import UsageError
from longtail.report import measures
from longtail.report.figures.canvas import Arrays, Drawn, Request, classes, sheet
from longtail.report.pictures import column, epochs, losses, mean_accuracy, shots, stage_edges
from longtail.report.style import BAR, BLACK, FEW, MANY, MEDIUM, series
from longtail.report.summary import entries
from longtail.report.text import label, short
from longtail.run.escape import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP_COLORS = {"many": MANY, "medium": MEDIUM, "few": FEW}


def per_class(request: Request) -> Drawn:
    """Training counts as bars above, accuracy by class below."""
    found = entries(request.needed("per_class"))
    run = found[0].runs[0]
    sorted_ = measures.by_frequency(run.counts, [mean_accuracy(entry) for entry in found])
    masks, order, bar = shots(run), sorted_["order"], sorted_["bar"]
    first = [int(order[np.flatnonzero(bar == i)[0]]) for i in range(len(sorted_["counts"]))]
    group = [next((g for g, mask in masks.items() if mask[c]), "few") for c in first]
    colors = [GROUP_COLORS[g] for g in group]
    if len(found) > 1:  # colours tell methods apart then
        colors = [BAR] * len(first)
    figure, axes = sheet(2, 1, height=3.0, sharex=True, gridspec_kw={"height_ratios": [1, 2]})
    place = np.arange(len(first))
    axes[0].bar(place, sorted_["counts"], 0.85, color=colors)
    axes[0].set_yscale("log")
    axes[0].set_ylim(bottom=0.8)  # a class of one image has a bar too
    axes[0].yaxis.set_major_formatter("{x:,.0f}")
    axes[0].yaxis.set_minor_formatter("")
    axes[0].set_ylabel("images")
    _groups(axes, group)
    for i, entry in enumerate(found):
        color, marker = series(i) if len(found) > 1 else (BLACK, "o")
        values = sorted_["accuracy"][i]
        name, many = label(entry.title, 30), len(values) > 30
        if many:
            axes[1].plot(
                place,
                values,
                marker,
                color=color,
                markersize=2.5,
                alpha=0.5,
                clip_on=False,
                markeredgewidth=0,
            )
        line, mark = (measures.trend(values), "") if many else (values, marker)
        axes[1].plot(place, line, marker=mark, color=color, markersize=3.5, clip_on=False, label=name)
    axes[1].set_ylim(0, 100)
    axes[1].set_ylabel("accuracy, %")
    classes(axes[1], [run.names[c] for c in first])
    axes[1].grid(axis="y")
    if len(found) > 1:
        figure.legend(loc="outside upper center", ncols=4, columnspacing=1)
    return Drawn(figure, sorted_)


def _groups(axes: Sequence[Axes], group: Sequence[str]) -> None:
    """A dotted line where the next group begins; the groups' names between the two panels."""
    for name in dict.fromkeys(group):
        places = [i for i, g in enumerate(group) if g == name]
        if places[0] > 0:
            for axis in axes:
                axis.axvline(places[0] - 0.5, color="#5a6572", linewidth=0.7, linestyle=(0, (1, 2)))
        middle, across = (places[0] + places[-1]) / 2, axes[0].get_xaxis_transform()
        if 200 * len(places) / len(group) > 4 * len(name):  # points: a narrower group has no room for it
            axes[0].text(middle, -0.06, name, transform=across, ha="center", va="top", fontsize=6.5)


def curves(request: Request) -> Drawn:
    """Loss and accuracy over the epochs of all stages."""
    found = entries(request.needed("curves"))
    figure, axes = sheet(1, 2, height=2.0, width=None)
    arrays: Arrays = {}
    for i, entry in enumerate(found):
        color, _ = series(i)
        for number, run in enumerate(entry.runs):
            place = epochs(run)
            name = label(entry.title, 30) if number == 0 else "_repeat"
            alpha = 1 if number == 0 else 0.4
            for axis, parts, key in zip(
                axes, (losses(run), [column(run.evals, place, "top1")]), ("loss", "top1")
            ):
                for part, (x, y) in enumerate(parts):
                    shown_as = name if part == 0 else "_later"
                    line = measures.smooth(y) if key == "loss" else y
                    if line is not y and number == 0:  # single batches, as a shade behind their trend
                        axis.plot(x, y, color=color, linewidth=0.6, alpha=0.2, label="_shade")
                    axis.plot(x, line, color=color, linewidth=1.1, alpha=alpha, label=shown_as)
                for letter, column_ in zip(("_x", ""), zip(*parts)):
                    arrays[f"{key}{letter}_{i}_{number}"] = np.concatenate(column_)
    for start, _ in max((stage_edges(entry.runs[0])[0] for entry in found), key=len)[1:]:
        for axis in axes:
            axis.axvline(start, color="#5a6572", linewidth=0.8, linestyle=(0, (3, 3)))
    for axis, title in zip(axes, ("training loss", "test accuracy, %")):
        axis.set_xlabel("epoch")
        axis.set_title(title)
        axis.set_ylim(bottom=0)
        axis.set_xlim(left=0)
        axis.grid(axis="y")
    if len(found) > 1:
        handles, names = axes[1].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, columnspacing=1)
    return Drawn(figure, arrays)


def confusion(request: Request) -> Drawn:
    """Percent of each true class; groups of classes above thirty."""
    run = request.needed("confusion", most=1)[0]
    found = run.predictions
    if found is None:
        where = shown(run.path)
        raise UsageError(f"{where} has no predictions; write them with: longtail features {where}")
    labels = found["labels"].astype(np.int64)
    matrix = measures.confusion(labels, measures.predicted(found["logits"]), len(run.counts))
    summed, members = measures.grouped(matrix, run.counts)
    shares = measures.row_shares(summed)
    is_grouped = len(members) < len(run.counts)
    names = [
        f"{run.counts[m[0]]}–{run.counts[m[-1]]}" if is_grouped else short(run.names[int(m[0])], 14)
        for m in members
    ]
    figure, axes = sheet(height=3.1)
    axes[0].imshow(np.nan_to_num(shares), cmap="Blues", vmin=0, vmax=100)
    for r, c in np.argwhere(np.nan_to_num(shares) >= 0.5) if len(names) <= 12 else ():
        color = "white" if shares[r, c] > 55 else "black"
        text = f"{int(shares[r, c] + 0.5)}"
        axes[0].text(c, r, text, color=color, ha="center", va="center", fontsize=6)
    small = 7 if len(names) <= 12 else 5
    axes[0].set_title(f"{label(entries([run])[0].title, 40)}, % of each row")
    axes[0].set_xticks(range(len(names)), names, fontsize=small)
    if max(len(name) for name in names) > 3:
        for text in axes[0].get_xticklabels():
            text.set(rotation=55, ha="right", rotation_mode="anchor")
    axes[0].set_yticks(range(len(names)), names, fontsize=small)
    axes[0].set_xlabel("predicted")
    axes[0].set_ylabel("true")
    axes[0].tick_params(length=0)
    return Drawn(figure, {"matrix": matrix, "shares": shares})


def calibration(request: Request) -> Drawn:
    """Accuracy over confidence in fifteen bins."""
    found = entries(request.needed("calibration"))
    figure, axes = sheet(height=2.5 + 0.14 * len(found), width=2.8)
    arrays: Arrays = {}
    axes[0].plot([0, 1], [0, 100], color="#5a6572", linewidth=0.9, linestyle=(0, (4, 3)))
    for i, entry in enumerate(found):
        kept = entry.runs[0].predictions
        if kept is None:
            continue
        bins = measures.reliability(kept["logits"], kept["labels"].astype(np.int64))
        arrays |= {f"{key}_{i}": value for key, value in bins.items()}
        color, marker = series(i)
        name = f"{label(entry.title, 24)} (ECE {float(bins['ece']):.3f})"
        sure = bins["number"] >= measures.FEW_IMAGES
        x, y = bins["confidence"], 100 * bins["accuracy"]
        axes[0].plot(x[sure], y[sure], color=color, marker=marker, markersize=3, label=name, clip_on=False)
        few = (bins["share"] > 0) & ~sure  # pale and apart: a handful of images bends no line
        axes[0].scatter(x[few], y[few], 9, color=color, marker=marker, alpha=0.35, linewidths=0)
    if not arrays:
        where = shown(found[0].runs[0].path)
        raise UsageError(f"none of these runs has predictions; write some with: longtail features {where}")
    axes[0].set_xlim(0, 1)
    axes[0].set_ylim(0, 100)
    axes[0].set_xlabel("confidence")
    axes[0].set_ylabel("right, %")
    axes[0].grid()
    figure.legend(loc="outside upper center", ncols=1)  # no corner is free of curves for every model
    return Drawn(figure, arrays)

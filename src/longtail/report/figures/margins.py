"""H4 and H5: boundaries of two classes in the plane of angles; logits over the angle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from longtail.report.figures import geometry
from longtail.report.figures.canvas import Arrays, Drawn, Request, sheet
from longtail.report.style import BLACK, HEAD, PURPLE, TAIL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PI = (0, np.pi / 2, np.pi)
PI_NAMES = ("0", "π/2", "π")


def class_margins(request: Request) -> Drawn:
    """Four panels: who wins where, and how wide and how soft the margin is."""
    counts = request.sizes()
    head, tail = int(np.argmax(counts)), int(np.argmin(counts))
    arrays = geometry.class_margins(counts, head, tail, strength=request.strength)
    figure, axes = sheet(2, 2, height=3.5, sharex=True, sharey=True)
    titles = {"ce": "CE", "ldam": "LDAM", "gcl_e": "GCL-E", "gcl_a": "GCL-A"}
    for axis, (key, title) in zip(axes, titles.items()):
        _plane(axis, arrays["theta"], arrays[key])
        axis.set_title(title)
    for axis in axes[2:]:
        axis.set_xlabel("angle to the head's anchor")
    for axis in axes[::2]:
        axis.set_ylabel("angle to the tail's anchor")
    return Drawn(figure, arrays)


def _plane(axis: Axes, theta: NDArray[Any], rows: NDArray[Any]) -> None:
    """Head above, tail below; between the outer boundaries the margin."""
    top, bottom = _filled(rows, theta)
    axis.fill_between(theta, top, np.pi, color=HEAD, alpha=0.16, linewidth=0)
    axis.fill_between(theta, 0, bottom, color=TAIL, alpha=0.18, linewidth=0)
    if len(rows) == 3:  # GCL: the shade of the strip is how often the boundary lies further out
        for low, high, alpha in ((rows[1], rows[0], 0.42), (rows[2], rows[1], 0.2)):
            a, b = _filled(np.stack([low, high]), theta)
            axis.fill_between(theta, b, a, color=PURPLE, alpha=alpha, linewidth=0)
        axis.plot(theta, _closed(rows[1], theta), color=BLACK, linewidth=1.1)
    else:
        for row in rows:
            axis.plot(theta, _closed(row, theta), color=BLACK, linewidth=1.1)
    if len(rows) > 1:
        axis.plot(theta, theta, color=BLACK, linewidth=0.7, linestyle=(0, (3, 3)))
    axis.text(0.13 * np.pi, 0.8 * np.pi, "head", color=HEAD, fontsize=8, fontweight="bold")
    axis.text(0.72 * np.pi, 0.12 * np.pi, "tail", color=TAIL, fontsize=8, fontweight="bold")
    axis.set_xlim(0, np.pi)
    axis.set_ylim(0, np.pi)
    axis.set_xticks(PI, PI_NAMES)
    axis.set_yticks(PI, PI_NAMES)
    axis.set_aspect("equal")


def _filled(rows: NDArray[Any], theta: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The upper and lower edge of a strip; where a boundary leaves the plane, the edge of the plane."""
    middle = np.pi / 2
    known = [np.where(np.isnan(row), np.where(theta < middle, 0.0, np.pi), row) for row in rows]
    return np.max(known, axis=0), np.min(known, axis=0)


def _closed(row: NDArray[Any], theta: NDArray[Any]) -> NDArray[Any]:
    """A boundary that leaves the plane, drawn to the edge: between two grid points it is steepest."""
    gone = np.isnan(row)
    beside = gone & (np.roll(~gone, 1) | np.roll(~gone, -1))
    beside[[0, -1]] = False
    return np.where(beside, np.where(theta < np.pi / 2, 0.0, np.pi), row)


def logit_curves(request: Request) -> Drawn:
    """Two panels, a small and a large cloud; below each what is lost, which a small cloud hides above."""
    arrays = geometry.logit_curves(seed=request.seed)
    figure, axes = sheet(2, 2, height=3.3, sharex=True, gridspec_kw={"height_ratios": [3, 2]})
    for index, (upper, lower) in enumerate(zip(axes[:2], axes[2:])):
        _curves(upper, arrays, index)
        _losses(lower, arrays, index)
        upper.set_title(f"cloud size δ = {arrays['deltas'][index]:g}")
        lower.set_xlabel("angle θ to the anchor")
    axes[1].set_yticklabels([])  # the same values as at the left
    axes[0].set_ylabel("logit at scale 1")
    axes[2].set_ylabel("logit lost")
    axes[0].legend(loc="lower left", handlelength=1.4, borderaxespad=0.2)
    return Drawn(figure, arrays)


def _losses(axis: Axes, arrays: Arrays, index: int) -> None:
    """The clean logit less the clouded one: GCL-E takes the same everywhere, GCL-A most at a right angle."""
    for key, color in (("gcl_e", TAIL), ("gcl_a", HEAD)):
        low, middle, high = arrays["clean"] - arrays[key][index]
        axis.fill_between(arrays["theta"], low, high, color=color, alpha=0.18, linewidth=0)
        axis.plot(arrays["theta"], middle, color=color)
    axis.axhline(0, color=BLACK, linestyle=(0, (4, 2)), linewidth=1.1)
    axis.locator_params(axis="y", nbins=4)
    axis.grid(axis="y")


def _curves(axis: Axes, arrays: Arrays, index: int) -> None:
    theta = arrays["theta"]
    for key, name, color in (("gcl_e", "GCL-E", TAIL), ("gcl_a", "GCL-A", HEAD)):
        low, middle, high = arrays[key][index]
        axis.fill_between(theta, high, low, color=color, alpha=0.18, linewidth=0)
        axis.plot(theta, middle, color=color, label=name)
        x = arrays["draw_theta"][index, 0 if key == "gcl_e" else 1]
        axis.plot(x, arrays[f"draw_{key}"][index], ".", color=color, markersize=1.1, alpha=0.45, zorder=0)
    axis.plot(theta, arrays["clean"], color=BLACK, linestyle=(0, (4, 2)), linewidth=1.1, label="cos θ")
    axis.axhline(-1, color="#5a6572", linewidth=0.6, zorder=0)  # no cosine is lower; GCL-E's logits are
    axis.set_xticks(PI, PI_NAMES)
    axis.set_xlim(0, np.pi)
    axis.set_ylim(-1.6, 1.08)
    axis.grid(axis="y")

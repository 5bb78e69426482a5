"""H2 and H3: what a cloud does to a boundary, and a hard margin against a soft one. Drawn, not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from longtail.keys import Key
from longtail.report.figures import geometry
from longtail.report.figures.canvas import Arrays, Drawn, Request, sheet
from longtail.report.style import BLACK, HEAD, PURPLE, TAIL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TAIL_MARK = "#C2568F"  # the palette's purple, dark enough for small triangles


def overview(request: Request) -> Drawn:
    """Left: features crowd around the head's long anchor. Right: clouds around tail points turn the boundary.

    A boundary lies where both anchors give one score: with anchors of equal length, halfway between them.
    """
    generator = Key(request.seed).fold("figure", "overview").numpy()
    head = np.deg2rad(62) + generator.normal(0, 0.3, 60)
    tail = np.deg2rad(8) + generator.normal(0, 0.09, 6)
    radius = generator.uniform(0.72, 1.0, 66)
    arrays = {
        "head_before": _polar(head, radius[:60]),
        "tail_before": _polar(tail + 0.18, radius[60:]),
        "head_after": _polar(np.deg2rad(74) + (head - np.deg2rad(62)) * 0.45, radius[:60]),
        "tail_after": _polar(tail, radius[60:]),
        "anchors_before": _polar(np.deg2rad([66.0, 8.0]), np.array([1.28, 0.99])),
        "anchors_after": _polar(np.deg2rad([76.0, 8.0]), np.full(2, 1.28)),
        "cloud_radius": np.array([0.035, 0.16]),
    }
    for when in ("before", "after"):
        arrays[f"boundary_{when}"] = _between(arrays[f"anchors_{when}"])
    figure, axes = sheet(1, 2, height=1.95)
    for axis, when, title in zip(axes, ("before", "after"), ("cross-entropy", "Gaussian clouded logits")):
        _sector(axis, arrays, when)
        axis.set_title(title)
    return Drawn(figure, arrays)


def _between(anchors: NDArray[Any]) -> NDArray[Any]:
    """The angle at which the scores of two anchors are equal: at a right angle to their difference."""
    x, y = anchors[0] - anchors[1]
    return np.array([np.arctan2(-x, y)])


def _polar(angle: NDArray[Any], radius: NDArray[Any]) -> NDArray[Any]:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _sector(axis: Axes, arrays: Arrays, when: str) -> None:
    from matplotlib.patches import Circle, Wedge

    edge = float(np.rad2deg(arrays[f"boundary_{when}"][0]))
    axis.add_patch(Wedge((0, 0), 1.2, edge, 108, color=HEAD, alpha=0.1, linewidth=0))
    axis.add_patch(Wedge((0, 0), 1.2, -17, edge, color=TAIL, alpha=0.12, linewidth=0))
    for kind, color, marker in (("head", HEAD, "o"), ("tail", TAIL, "^")):
        points = arrays[f"{kind}_{when}"]
        if when == "after":
            for x, y in points:
                size = arrays["cloud_radius"][0 if kind == "head" else 1]
                axis.add_patch(Circle((x, y), size, color=color, alpha=0.16, linewidth=0))
        axis.plot(points[:, 0], points[:, 1], marker, color=color, markersize=2.6 if kind == "head" else 4)
    for (x, y), color, name in zip(arrays[f"anchors_{when}"], (HEAD, TAIL), ("head", "tail")):
        axis.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.1})
        away = 1 + 0.11 / np.hypot(x, y)
        axis.text(x * away, y * away, name, color=color, ha="center", va="center", fontsize=7)
    line = _polar(arrays[f"boundary_{when}"], np.array([1.36]))[0]
    axis.plot([0, line[0]], [0, line[1]], color=BLACK, linewidth=1, linestyle=(0, (4, 3)))
    axis.set_xlim(-0.4, 1.52)
    axis.set_ylim(-0.4, 1.45)
    axis.set_aspect("equal")
    axis.axis("off")


def margins(request: Request) -> Drawn:
    """Left: an empty strip between two lines. Right: a strip as dense as |e|, with a few points inside."""
    generator = Key(request.seed).fold("figure", "margins").numpy()
    width = 0.55
    inside = np.abs(np.clip(generator.normal(0, geometry.SIGMA, 400), -1, 1))
    head = np.stack([generator.uniform(-1.5, 1.5, 36), -0.1 - generator.gamma(2.0, 0.2, 36)], axis=1)
    tail = np.stack([generator.uniform(-1.5, 1.5, 9), width + 0.12 + generator.gamma(2.0, 0.13, 9)], axis=1)
    depth = np.linspace(0, 1, 61)
    outliers = np.array([[-0.9, 0.30], [0.15, 0.42], [1.05, 0.36]])
    arrays = {
        "head": head,
        "tail": tail,
        "outliers": outliers,
        "depth": depth,
        "density": geometry.density(depth),
        "mean_draw": np.asarray(inside.mean()),
        "width": np.asarray(width),
    }
    figure, axes = sheet(1, 2, height=1.9, sharey=True)
    for axis, title in zip(axes, ("hard margin", "soft margin")):
        axis.plot(head[:, 0], head[:, 1], "o", color=HEAD, markersize=3)
        axis.plot(tail[:, 0], tail[:, 1], "^", color=TAIL_MARK, markersize=4.5)
        axis.axhline(0, color=BLACK, linewidth=0.9)
        axis.set_title(title)
        axis.set_xlim(-1.65, 1.65)
        axis.set_ylim(-1.55, 1.55)
        axis.axis("off")
    axes[0].axhline(width, color=BLACK, linewidth=0.9)
    axes[0].text(0, width / 2, "nothing may lie here", ha="center", va="center", fontsize=6.5)
    _shade(axes[1], arrays)
    axes[1].plot(outliers[:, 0], outliers[:, 1], "^", color=TAIL_MARK, markersize=4.5)
    axes[0].text(-1.6, -1.5, "head", color=HEAD, va="bottom", fontsize=7)
    axes[0].text(-1.6, 1.5, "tail", color=TAIL_MARK, va="top", fontsize=7)
    return Drawn(figure, arrays)


def _shade(axis: Axes, arrays: Arrays) -> None:
    """The strip in slices, each as dark as |e| is likely there."""
    depth, density, width = arrays["depth"], arrays["density"], float(arrays["width"])
    for low, high, value in zip(depth, depth[1:], density):
        axis.axhspan(low * width, high * width, color=PURPLE, alpha=0.75 * value / density.max(), linewidth=0)

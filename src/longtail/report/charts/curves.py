"""Loss and accuracy over the epochs of every stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longtail.report.charts.frame import SMALL, Frame, legend, legend_height, ticks
from longtail.report.measures import Array
from longtail.report.style import Theme
from longtail.report.svg import Drawing

LEFT, RIGHT, TOP = 44.0, 12.0, 58.0  # room for the values, for half of the last one, for title and stages
LETTER = 5.9  # pixels of a small letter, about


@dataclass(frozen=True)
class Line:
    """One curve; `color`: a place in the series or a group's name; repeated seeds are faint, and a noisy
    curve is a shade behind its own trend."""

    title: str
    x: Array
    y: Array
    color: int | str
    faint: bool = False
    shade: bool = False


@dataclass(frozen=True)
class Panel:
    """A set of curves with one scale."""

    title: str
    lines: Sequence[Line]
    high: float


def draw(
    panels: Sequence[Panel],
    edges: Sequence[tuple[float, str]],
    epochs: float,
    theme: Theme,
    *,
    compact: bool,
) -> Drawing:
    """Panels side by side, or one below the other on a phone. `edges`: where a stage begins, and its name."""
    width, height = (360.0, 170.0) if compact else (960.0, 250.0)
    across = 1 if compact else len(panels)
    share = (width - 24 * (across - 1)) / across
    each = share - LEFT - RIGHT
    keys = [_key(panel, theme) for panel in panels]
    room = max(legend_height(key, share) for key in keys) if keys else 0.0
    block = TOP + height + 42 + room
    drawing = Drawing(width, block * (len(panels) if compact else 1))
    for number, panel in enumerate(panels):
        left = LEFT if compact else LEFT + number * (share + 24)
        top = TOP + (block * number if compact else 0)
        frame = Frame(left, top, each, height, (0, max(epochs, 1)), (0, panel.high))
        _panel(drawing, theme, panel, frame, edges)
        legend(drawing, theme, keys[number], left - 34, frame.bottom + 46, frame.right + RIGHT)
    return drawing


def _key(panel: Panel, theme: Theme) -> list[tuple[str, str]]:
    return [(line.title, _color(theme, line.color)) for line in panel.lines if not line.faint and line.title]


def _panel(
    drawing: Drawing, theme: Theme, panel: Panel, frame: Frame, edges: Sequence[tuple[float, str]]
) -> None:
    frame.head(drawing, theme, panel.title, lift=30)
    frame.grid(drawing, theme, ticks(0, panel.high))
    frame.foot(drawing, theme, ticks(0, frame.x[1]), "epoch")
    _stages(drawing, theme, frame, edges)
    for line in panel.lines:
        points = [frame.at(float(x), float(y)) for x, y in zip(line.x, line.y) if y == y]
        thick, opacity = (1, 0.2) if line.shade else (1.2, 0.5) if line.faint else (2, 1)
        drawing.polyline(points, _color(theme, line.color), thick, opacity=opacity)
        if len(points) == 1:
            drawing.circle(points[0], 3, _color(theme, line.color))


def _stages(drawing: Drawing, theme: Theme, frame: Frame, edges: Sequence[tuple[float, str]]) -> None:
    """A dashed line where a stage begins; its name above the frame, where no curve runs through it."""
    taken = frame.left
    for place, name in edges:
        x, _ = frame.at(place, 0)
        if place > 0:
            drawing.line((x, frame.top - 16), (x, frame.bottom), theme.muted, 1, dash="3 3")
        wide = LETTER * len(name)
        fits = x + 4 + wide <= frame.right + RIGHT
        start = x + 4 if fits else x - 4 - wide
        if start < taken:
            continue
        at = (start, frame.top - 7) if fits else (x - 4, frame.top - 7)
        drawing.text(at, name, theme.muted, size=SMALL, anchor="start" if fits else "end", limit=24)
        taken = start + wide


def _color(theme: Theme, name: int | str) -> str:
    if isinstance(name, int):
        return theme.series[name % len(theme.series)]
    return {"many": theme.many, "medium": theme.medium, "few": theme.few}.get(name, theme.ink)

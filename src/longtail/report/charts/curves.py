"""Loss and accuracy over the epochs of every stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longtail.report.charts.frame import SMALL, Frame, legend, legend_height, ticks
from longtail.report.measures import Array
from longtail.report.style import Theme
from longtail.report.svg import Drawing


@dataclass(frozen=True)
class Line:
    """One curve; `color`: a place in the series or a group's name; repeated seeds are faint."""

    title: str
    x: Array
    y: Array
    color: int | str
    faint: bool = False


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
    each = (width - 44 * across - 24 * (across - 1)) / across
    keys = [_key(panel, theme) for panel in panels]
    room = max(legend_height(key, each + 34) for key in keys) if keys else 0.0
    block = 42 + height + 42 + room
    drawing = Drawing(width, block * (len(panels) if compact else 1))
    for number, panel in enumerate(panels):
        left = 44.0 if compact else 44 + number * (each + 68)
        top = 42 + (block * number if compact else 0)
        frame = Frame(left, top, each, height, (0, max(epochs, 1)), (0, panel.high))
        _panel(drawing, theme, panel, frame, edges)
        legend(drawing, theme, keys[number], left - 34, frame.bottom + 46, frame.right)
    return drawing


def _key(panel: Panel, theme: Theme) -> list[tuple[str, str]]:
    return [(line.title, _color(theme, line.color)) for line in panel.lines if not line.faint and line.title]


def _panel(
    drawing: Drawing, theme: Theme, panel: Panel, frame: Frame, edges: Sequence[tuple[float, str]]
) -> None:
    frame.head(drawing, theme, panel.title)
    frame.grid(drawing, theme, ticks(0, panel.high))
    frame.foot(drawing, theme, ticks(0, frame.x[1]), "epoch")
    for place, name in edges:
        x, _ = frame.at(place, 0)
        if place > 0:
            drawing.line((x, frame.top), (x, frame.bottom), theme.muted, 1, dash="3 3")
        is_late = place > 0.7 * frame.x[1]
        at = (x - 5, frame.top + 11) if is_late else (x + 5, frame.top + 11)
        drawing.text(at, name, theme.muted, size=SMALL, anchor="end" if is_late else "start", limit=24)
    for line in panel.lines:
        points = [frame.at(float(x), float(y)) for x, y in zip(line.x, line.y) if y == y]
        drawing.polyline(
            points, _color(theme, line.color), 1.2 if line.faint else 2, opacity=0.5 if line.faint else 1
        )
        if len(points) == 1:
            drawing.circle(points[0], 3, _color(theme, line.color))


def _color(theme: Theme, name: int | str) -> str:
    if isinstance(name, int):
        return theme.series[name % len(theme.series)]
    return {"many": theme.many, "medium": theme.medium, "few": theme.few}.get(name, theme.ink)

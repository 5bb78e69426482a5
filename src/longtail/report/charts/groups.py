"""Bars of accuracy for all classes and for those with many, medium and few images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longtail.report.charts.frame import SMALL, TEXT, legend, legend_height
from longtail.report.style import Theme
from longtail.report.svg import Drawing


@dataclass(frozen=True)
class Group:
    """One group of classes: title, note (how many classes, what counts), and (mean, spread) of each entry."""

    title: str
    note: str
    figures: Sequence[tuple[float, float | None] | None]


def draw(groups: Sequence[Group], titles: Sequence[str], theme: Theme, *, compact: bool) -> Drawing:
    """Horizontal bars, so that names and values stay readable on a phone."""
    width, thick = (360.0, 15.0) if compact else (960.0, 17.0)
    left, right = (0.0, 92.0) if compact else (210.0, 104.0)
    single = len(titles) == 1
    names = [] if single else [(t, theme.series[i % len(theme.series)]) for i, t in enumerate(titles)]
    top = legend_height(names, width)
    head = 22.0 if compact else 0.0
    block = head + max(len(titles) * (thick + 4), 0 if compact else 36) + 16
    drawing = Drawing(width, top + block * len(groups) + 18)
    legend(drawing, theme, names, 0, 0)
    span = width - left - right
    _scale(drawing, theme, left, span, top, compact)
    own = {"All classes": theme.ink, "Many": theme.many, "Medium": theme.medium, "Few": theme.few}
    for number, group in enumerate(groups):
        y = top + number * block
        _name(drawing, theme, group, own[group.title] if single else theme.ink, y, compact)
        y += head
        for index, figure in enumerate(group.figures):
            color = own[group.title] if single else theme.series[index % len(theme.series)]
            _bar(drawing, theme, figure, (left, y + index * (thick + 4), span, thick), color)
    return drawing


def _scale(drawing: Drawing, theme: Theme, left: float, span: float, top: float, compact: bool) -> None:
    bottom = drawing.height - 18
    for tick in (0, 25, 50, 75, 100):
        x = left + span * tick / 100
        if not compact or tick == 0:
            drawing.line((x, top), (x, bottom), theme.grid)
        anchor = "start" if compact and tick == 0 else "middle"
        drawing.text((x, bottom + 14), f"{tick}", theme.muted, size=SMALL, anchor=anchor)


def _name(drawing: Drawing, theme: Theme, group: Group, color: str, y: float, compact: bool) -> None:
    if compact:
        drawing.text((0, y + 14), group.title, color, size=TEXT, weight="600")
        drawing.text((drawing.width, y + 14), group.note, theme.muted, size=SMALL, anchor="end")
        return
    drawing.text((0, y + 13), group.title, color, size=TEXT, weight="600")
    drawing.text((0, y + 29), group.note, theme.muted, size=SMALL)


def _bar(
    drawing: Drawing,
    theme: Theme,
    figure: tuple[float, float | None] | None,
    box: tuple[float, float, float, float],
    color: str,
) -> None:
    left, y, span, thick = box
    if figure is None:
        drawing.text((left + 6, y + thick - 4), "–", theme.muted, size=SMALL)
        return
    mean, spread = figure
    end = left + span * min(max(mean, 0), 100) / 100
    drawing.rect(left, y, end - left, thick, color, round=2.5)
    text = f"{mean:.1f}"
    if spread is not None:
        a, b = (left + span * min(max(v, 0), 100) / 100 for v in (mean - spread, mean + spread))
        middle = y + thick / 2
        drawing.line((a, middle), (b, middle), theme.ground, 4.5)  # ink alone is faint over a bar
        drawing.line((a, middle), (b, middle), theme.ink, 1.5)
        text, end = f"{mean:.1f} ± {spread:.1f}", b
    drawing.text((end + 7, y + thick - 4), text, theme.ink, size=TEXT)

"""Accuracy of every class over its frequency: training counts as bars above, accuracy below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longtail.report.charts.frame import SMALL, TEXT, Frame, decades, legend, legend_height
from longtail.report.measures import GROUPS, Array, trend
from longtail.report.style import Theme
from longtail.report.svg import Drawing

UPRIGHT = 3  # letters of a name that need not be turned
NAMED = 20  # up to so many classes, their names stand below


@dataclass(frozen=True)
class Bars:
    """Bars from the most to the least frequent class: counts, accuracy [entries, bars], group, names."""

    counts: Array
    accuracy: Array
    group: Sequence[str]
    names: Sequence[str]


def draw(bars: Bars, titles: Sequence[str], theme: Theme, *, compact: bool) -> Drawing:
    """One picture of the tail: how little there is to learn from, and what was learnt."""
    number = len(bars.counts)
    width, left = (360.0, 40.0) if compact else (960.0, 46.0)
    many = len(titles) > 1
    names = [(t, theme.series[i % len(theme.series)]) for i, t in enumerate(titles)] if many else []
    upper, lower = (84.0, 170.0) if compact else (110.0, 250.0)
    top = legend_height(names, width) + 40
    foot = (_name_room(bars) if number <= NAMED else 26) + 8
    drawing = Drawing(width, top + upper + 58 + lower + foot)
    legend(drawing, theme, names, 0, 0)
    high = max(float(bars.counts.max()), 10.0)
    counts = Frame(left, top, width - left - 2, upper, (0, number), (0.8, high), log_y=True)
    accuracy = Frame(left, top + upper + 58, width - left - 2, lower, (0, number))
    _group_titles(drawing, theme, bars, counts, plain=many)
    _counts(drawing, theme, bars, counts, plain=many)
    _accuracies(drawing, theme, bars, accuracy)
    if number <= NAMED:
        _names(drawing, theme, bars, accuracy)
    else:
        note = "classes, from the most to the fewest training images"
        middle = (accuracy.left + accuracy.right) / 2
        drawing.text((middle, accuracy.bottom + 20), note, theme.muted, size=SMALL, anchor="middle")
    return drawing


def _color(theme: Theme, group: str) -> str:
    return {"many": theme.many, "medium": theme.medium, "few": theme.few}[group]


def _group_titles(drawing: Drawing, theme: Theme, bars: Bars, frame: Frame, *, plain: bool) -> None:
    """The names of the groups under their bars, where there is room for them."""
    frame.head(drawing, theme, "training images per class")
    for group in GROUPS:
        places = [i for i, g in enumerate(bars.group) if g == group]
        if places and frame.width * len(places) / len(bars.group) > 7 * len(group):
            x = frame.at((places[0] + places[-1] + 1) / 2, 1)[0]
            at, color = (x, frame.bottom + 15), theme.muted if plain else _color(theme, group)
            drawing.text(at, group, color, size=SMALL, anchor="middle", weight="600")


def _counts(drawing: Drawing, theme: Theme, bars: Bars, frame: Frame, *, plain: bool) -> None:
    """Bars of counts: in the colours of the groups, unless colours already tell methods apart."""
    frame.grid(drawing, theme, decades(1, frame.y[1]))
    step = frame.width / len(bars.counts)
    gap = min(step * 0.18, 4)
    for i, value in enumerate(bars.counts):
        x, y = frame.at(i, float(value))
        color = theme.bar if plain else _color(theme, bars.group[i])
        drawing.rect(x + gap / 2, y, step - gap, frame.bottom - y, color, round=min(gap, 2))
        if plain and i and bars.group[i] != bars.group[i - 1]:
            drawing.line((x, frame.top), (x, frame.bottom + 16), theme.muted, 1, dash="2 3")


def _accuracies(drawing: Drawing, theme: Theme, bars: Bars, frame: Frame) -> None:
    frame.head(drawing, theme, "accuracy on the test images, %")
    frame.grid(drawing, theme, (0, 25, 50, 75, 100))
    single = len(bars.accuracy) == 1
    for index, values in enumerate(bars.accuracy):
        color = theme.series[index % len(theme.series)]
        points = [frame.at(i + 0.5, float(v)) if v == v else None for i, v in enumerate(values)]
        radius = 4.0 if len(points) <= 30 else 2.4
        if single and len(points) <= 30:
            _single_bars(drawing, theme, bars, frame)
            continue
        line = values if len(points) <= 30 else trend(values)
        path = [frame.at(i + 0.5, float(v)) for i, v in enumerate(line) if v == v]
        for i, point in enumerate(points):
            if point is not None:
                fill = _color(theme, bars.group[i]) if single else color
                drawing.circle(point, radius, fill, opacity=0.75 if single or radius > 3 else 0.4)
        drawing.polyline(path, theme.ink if single else color, 2, opacity=0.8)


def _single_bars(drawing: Drawing, theme: Theme, bars: Bars, frame: Frame) -> None:
    step = frame.width / len(bars.counts)
    for i, value in enumerate(bars.accuracy[0]):
        if value != value:
            continue
        x, y = frame.at(i, float(value))
        inset = min(step * 0.18, 4) / 2
        color = _color(theme, bars.group[i])
        drawing.rect(x + inset, y, step - 2 * inset, frame.bottom - y, color, round=2)
        if step > 22:
            middle = x + step / 2
            inside = value > 12
            at, ink = (middle, y + 14 if inside else y - 5), theme.on_high if inside else theme.ink
            drawing.text(at, f"{int(value + 0.5)}", ink, size=SMALL, anchor="middle")


def _name_room(bars: Bars) -> float:
    return 12 + 5.2 * max(min(len(name), 14) for name in bars.names)


def _names(drawing: Drawing, theme: Theme, bars: Bars, frame: Frame) -> None:
    for i, name in enumerate(bars.names):
        x, _ = frame.at(i + 0.5, 0)
        if max(len(name) for name in bars.names) <= UPRIGHT:
            below = (x, frame.bottom + 16)
            drawing.text(below, name, theme.muted, size=TEXT - 0.5, anchor="middle")
            continue
        at = (x + 4, frame.bottom + 14)
        drawing.text(at, name, theme.muted, size=TEXT - 0.5, anchor="end", turn=-50, limit=14)

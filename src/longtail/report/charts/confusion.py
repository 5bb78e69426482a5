"""A confusion matrix: rows are true classes, columns what the model said, in percent of the row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from longtail.report.charts.frame import SMALL
from longtail.report.measures import Array
from longtail.report.style import Theme
from longtail.report.svg import Drawing

LEVELS = 12  # steps of colour: each is one path
UPRIGHT = 3  # letters that need not be turned to stand below a column
WRITTEN = 12  # up to so many rows, the values stand in the cells


def draw(shares: Array, names: Sequence[str], theme: Theme, *, compact: bool) -> Drawing:
    """Classes or groups of them from the most to the least frequent, top to bottom and left to right."""
    number = len(shares)
    width = 360.0 if compact else 460.0
    left = 16 + 6.2 * max(min(len(name), 15) for name in names)
    top = 46.0
    cell = (width - left - 2) / number
    drawing = Drawing(width, top + cell * number + left - 6)
    drawing.rect(left, top, cell * number, cell * number, theme.low)
    gap = 1.0 if number <= WRITTEN else 0.5 if number <= 30 else 0
    levels = _levels(shares)
    for level in range(1, LEVELS + 1):
        rows, columns = (levels == level).nonzero()
        boxes = [
            (left + c * cell, top + r * cell, cell - gap, cell - gap)
            for r, c in zip(rows, columns, strict=True)
        ]
        drawing.boxes(boxes, theme.high, level / LEVELS)
    if number <= WRITTEN:
        _values(drawing, theme, shares, levels, (left, top, cell))
    _names(drawing, theme, names, (left, top, cell))
    drawing.text((0, 14), "rows: true class; columns: predicted; % of the row", theme.muted, size=SMALL)
    return drawing


def _levels(shares: Array) -> Array:
    """Steps of colour, 0 to LEVELS; the root lets small confusions show beside a strong diagonal."""
    known = np.nan_to_num(shares)
    return np.round((known / max(float(known.max()), 1.0)) ** 0.75 * LEVELS).astype(int)


def _values(
    drawing: Drawing, theme: Theme, shares: Array, levels: Array, place: tuple[float, float, float]
) -> None:
    left, top, cell = place
    for r, row in enumerate(shares):
        for c, value in enumerate(row):
            if not value >= 0.5:
                continue
            color = theme.on_high if levels[r, c] > 0.58 * LEVELS else theme.ink
            at = (left + (c + 0.5) * cell, top + (r + 0.5) * cell + 4)
            drawing.text(at, f"{int(value + 0.5)}", color, size=min(SMALL, cell * 0.42), anchor="middle")


def _names(drawing: Drawing, theme: Theme, names: Sequence[str], place: tuple[float, float, float]) -> None:
    left, top, cell = place
    size = max(min(SMALL, cell * 0.9), 7.5)
    for i, name in enumerate(names):
        middle = (i + 0.5) * cell
        drawing.text((left - 6, top + middle + 4), name, theme.muted, size=size, anchor="end", limit=15)
        if max(len(name) for name in names) <= UPRIGHT:
            below = (left + middle, top + cell * len(names) + 14)
            drawing.text(below, name, theme.muted, size=size, anchor="middle")
        else:
            below = (left + middle + 4, top + cell * len(names) + 10)
            drawing.text(below, name, theme.muted, size=size, anchor="end", turn=-60, limit=15)

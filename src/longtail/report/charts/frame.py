"""Axes of a chart on the page: from data to pixels, with grid lines and ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from longtail.report.style import Theme
from longtail.report.svg import Drawing

SMALL = 11.0  # pixels: ticks and notes
TEXT = 12.5


@dataclass(frozen=True)
class Frame:
    """A rectangle of the drawing that shows x in [x0, x1] and y in [y0, y1], y upwards."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float] = (0, 1)
    y: tuple[float, float] = (0, 100)
    log_y: bool = False

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point; values outside are held at the edge."""
        across = _share(x, self.x)
        up = _share(math.log10(max(y, self.y[0])), _logs(self.y)) if self.log_y else _share(y, self.y)
        return self.left + across * self.width, self.top + (1 - up) * self.height

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width

    def grid(self, drawing: Drawing, theme: Theme, ticks: Sequence[float], suffix: str = "") -> None:
        """Horizontal lines with their values at the left."""
        for tick in ticks:
            _, y = self.at(self.x[0], tick)
            drawing.line((self.left, y), (self.right, y), theme.grid)
            text = f"{tick:,.6g}{suffix}"
            drawing.text((self.left - 6, y + 4), text, theme.muted, size=SMALL, anchor="end")

    def foot(self, drawing: Drawing, theme: Theme, ticks: Sequence[float], title: str = "") -> None:
        """Values below the frame, and what they are."""
        for tick in ticks:
            x, _ = self.at(tick, self.y[0])
            drawing.text((x, self.bottom + 16), f"{tick:,.6g}", theme.muted, size=SMALL, anchor="middle")
        if title:
            middle = (self.left + self.right) / 2
            drawing.text((middle, self.bottom + 34), title, theme.muted, size=SMALL, anchor="middle")

    def head(self, drawing: Drawing, theme: Theme, title: str, lift: float = 12) -> None:
        """What the values at the left are, above them."""
        drawing.text((self.left - 32, self.top - lift), title, theme.ink, size=TEXT, weight="600", limit=80)


def ticks(low: float, high: float, number: int = 5) -> list[float]:
    """Round values inside [low, high], about `number` of them.

    >>> ticks(0, 230)
    [0.0, 50.0, 100.0, 150.0, 200.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / number
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten inside [low, high].

    >>> decades(1, 500)
    [1.0, 10.0, 100.0]
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(max(high, low)) + 1e-9)
    return [10.0**i for i in range(first, last + 1)]


def legend(
    drawing: Drawing,
    theme: Theme,
    names: Sequence[tuple[str, str]],
    left: float,
    top: float,
    right: float | None = None,
) -> None:
    """Coloured squares with names, wrapped into lines between `left` and `right`."""
    for (name, color), (x, y) in zip(names, _places(names, left, drawing.width if right is None else right)):
        drawing.rect(x, top + y, 11, 11, color, round=2.5)
        drawing.text((x + 17, top + y + 10), name, theme.ink, size=TEXT, limit=40)


def legend_height(names: Sequence[tuple[str, str]], width: float) -> float:
    """The pixels that a legend of this width needs below its top."""
    return _places(names, 0, width)[-1][1] + 22 if names else 0.0


def _places(names: Sequence[tuple[str, str]], left: float, right: float) -> list[tuple[float, float]]:
    x, y, places = left, 0.0, list[tuple[float, float]]()
    for name, _ in names:
        width = 33 + 7.2 * min(len(name), 40)
        if x + width > right and x > left:
            x, y = left, y + 20
        places.append((x, y))
        x += width
    return places


def _share(value: float, span: tuple[float, float]) -> float:
    return min(max((value - span[0]) / ((span[1] - span[0]) or 1), 0), 1)


def _logs(span: tuple[float, float]) -> tuple[float, float]:
    return math.log10(span[0]), math.log10(span[1])

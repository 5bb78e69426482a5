"""A small writer of SVG for the page: attributes only, no style, no script, every text escaped.

The pictures are embedded as `data:` images, so each is drawn four times: for phone and desk, light and dark.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape

from longtail.report.text import label

FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
Point = tuple[float, float]


def number(value: float) -> str:
    """A coordinate in as few characters as a tenth of a pixel needs."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


class Drawing:
    """Elements in drawing order, in pixels from the top left corner."""

    def __init__(self, width: float, height: float):
        self.width, self.height = width, height
        self._parts: list[str] = []

    def rect(  # noqa: PLR0913 - a rectangle has that many properties
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        round: float = 0,
        opacity: float = 1,
    ) -> None:
        extra = {"rx": number(round)} if round else {}
        extra |= {} if opacity == 1 else {"fill-opacity": f"{opacity:g}"}
        self._add("rect", x=x, y=y, width=max(width, 0), height=max(height, 0), fill=fill, **extra)

    def line(self, a: Point, b: Point, stroke: str, width: float = 1, *, dash: str = "") -> None:
        extra = {"stroke-dasharray": dash} if dash else {}
        self._add(
            "line", x1=a[0], y1=a[1], x2=b[0], y2=b[1], stroke=stroke, **{"stroke-width": width, **extra}
        )

    def polyline(self, points: Iterable[Point], stroke: str, width: float = 2, *, opacity: float = 1) -> None:
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        extra = {"stroke-width": width, "stroke-linejoin": "round", "stroke-linecap": "round"}
        faint = {} if opacity == 1 else {"stroke-opacity": f"{opacity:g}"}
        self._add("polyline", points=path, fill="none", stroke=stroke, **extra, **faint)

    def area(self, points: Iterable[Point], fill: str, *, opacity: float = 0.2) -> None:
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._add("polygon", points=path, fill=fill, **{"fill-opacity": f"{opacity:g}"})

    def circle(self, center: Point, radius: float, fill: str, *, opacity: float = 1) -> None:
        faint = {} if opacity == 1 else {"fill-opacity": f"{opacity:g}"}
        self._add("circle", cx=center[0], cy=center[1], r=radius, fill=fill, **faint)

    def boxes(self, boxes: Iterable[tuple[float, float, float, float]], fill: str, opacity: float) -> None:
        """Many rectangles of one colour in one path: a confusion matrix stays small."""
        path = "".join(
            f"M{number(x)} {number(y)}h{number(w)}v{number(h)}h-{number(w)}z" for x, y, w, h in boxes
        )
        if path:
            self._add("path", d=path, fill=fill, **{"fill-opacity": f"{opacity:g}"})

    def text(  # noqa: PLR0913 - a text has that many properties
        self,
        at: Point,
        content: str,
        fill: str,
        *,
        size: float = 12,
        anchor: str = "start",
        weight: str = "",
        turn: float = 0,
        limit: int = 60,
    ) -> None:
        extra: dict[str, str | float] = {"font-size": size, "fill": fill}
        if anchor != "start":
            extra["text-anchor"] = anchor
        if weight:
            extra["font-weight"] = weight
        if turn:
            extra["transform"] = f"rotate({number(turn)} {number(at[0])} {number(at[1])})"
        self._parts.append(
            f"<text{_attributes({'x': at[0], 'y': at[1], **extra})}>{escape(label(content, limit))}</text>"
        )

    def markup(self) -> str:
        size = f'width="{number(self.width)}" height="{number(self.height)}"'
        box = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{FONT}">'
        return head + "".join(self._parts) + "</svg>"

    def address(self) -> str:
        """The drawing as a `data:` address."""
        coded = base64.b64encode(self.markup().encode("utf-8")).decode("ascii")
        return f"data:image/svg+xml;base64,{coded}"

    def _add(self, tag: str, **attributes: str | float) -> None:
        self._parts.append(f"<{tag}{_attributes(attributes)}/>")


def _attributes(values: dict[str, str | float]) -> str:
    pairs = ((k, v if isinstance(v, str) else number(v)) for k, v in values.items())
    return "".join(f' {key}="{escape(value)}"' for key, value in pairs)

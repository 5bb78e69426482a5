"""A reliability diagram: how often the model is right when it says it is so sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtail.report.charts.frame import Frame, legend, legend_height
from longtail.report.measures import FEW_IMAGES, Array
from longtail.report.style import Theme
from longtail.report.svg import Drawing


def draw(
    found: Sequence[Mapping[str, Array]],
    titles: Sequence[str],
    colors: Sequence[int],
    theme: Theme,
    *,
    compact: bool,
) -> Drawing:
    """Accuracy over confidence against the diagonal; below, the share of the images in each bin.

    `colors`: places in the series, the same as in the other charts, where every entry has one.
    """
    width, tall = (360.0, 270.0) if compact else (460.0, 330.0)
    names = (
        [(t, theme.series[i % len(theme.series)]) for i, t in zip(colors, titles)] if len(titles) > 1 else []
    )
    room = legend_height(names, width)
    drawing = Drawing(width, room + 36 + tall + 34 + 70 + 38)
    legend(drawing, theme, names, 0, 0)
    upper = Frame(44, room + 36, width - 56, tall)
    upper.head(drawing, theme, "right, %")
    upper.grid(drawing, theme, (0, 25, 50, 75, 100))
    highest = max(100 * float(f["share"].max()) for f in found)
    lower = Frame(44, upper.bottom + 34, upper.width, 70, (0, 1), (0, highest))
    lower.head(drawing, theme, "share of the images, %")
    lower.grid(drawing, theme, [0, round(lower.y[1])])
    lower.foot(drawing, theme, (0, 0.25, 0.5, 0.75, 1), "confidence of the prediction")
    for index, bins in zip(colors, found):
        _entry(drawing, theme, bins, (upper, lower), theme.series[index % len(theme.series)], len(found) == 1)
    # Last, so that no bar hides it.
    drawing.line(upper.at(0, 0), upper.at(1, 100), theme.ink, 1.2, dash="4 4")
    return drawing


def _entry(
    drawing: Drawing,
    theme: Theme,
    bins: Mapping[str, Array],
    frames: tuple[Frame, Frame],
    color: str,
    single: bool,
) -> None:
    upper, lower = frames
    edges, known = bins["edges"], bins["share"] > 0
    sure = bins["number"] >= FEW_IMAGES
    for low, high, accuracy, share, enough in zip(edges, edges[1:], bins["accuracy"], bins["share"], sure):
        if single and share > 0:
            for frame, value in ((upper, 100 * accuracy), (lower, 100 * share)):
                x, y = frame.at(float(low), float(value))
                faint = 1 if enough else 0.35
                wide, tall = frame.at(float(high), 0)[0] - x - 2, frame.bottom - y
                drawing.rect(x + 1, y, wide, tall, color, round=1.5, opacity=faint)
    if not single:
        middles = (edges[:-1] + edges[1:]) / 2
        drawing.polyline(
            [lower.at(float(m), float(100 * s)) for m, s in zip(middles, bins["share"])], color, 1.5
        )
        points = [upper.at(float(c), float(100 * a)) for c, a in zip(bins["confidence"], bins["accuracy"])]
        drawing.polyline([point for point, enough in zip(points, sure) if enough], color)
        for point, is_known, enough in zip(points, known, sure):
            if is_known:
                drawing.circle(point, 3, color, opacity=1 if enough else 0.35)

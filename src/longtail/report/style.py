"""One look for every picture: the Okabe-Ito palette, sizes legible at column width, stable bytes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

# Okabe and Ito's eight colours, told apart with every common form of colour blindness.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"
GREY = "#8A9099"  # in place of the palette's yellow, which small marks on white cannot carry
BAR = "#B5BDC6"  # bars that belong to no method
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")

CLASSES = (*SERIES, "#882255", "#999933")  # ten classes of one picture: wine and olive beside the eight

HEAD, TAIL = BLUE, VERMILLION
MANY, MEDIUM, FEW = BLUE, GREEN, VERMILLION

COLUMN, PAGE = 3.4, 7.0  # inches: one column, two columns


@dataclass(frozen=True)
class Theme:
    """Colours of a picture on the page, for a light or a dark ground. The ground itself stays transparent.

    `ground` is for the edges of what lies over bars; it is the page's own (templates/page.css).
    """

    ground: str
    ink: str
    muted: str
    grid: str
    bar: str
    many: str
    medium: str
    few: str
    low: str
    high: str
    on_high: str
    series: tuple[str, ...]


LIGHT = Theme(
    ground="#fbfcfd",
    ink="#1c2127",
    muted="#5a6572",
    grid="#e2e6ea",
    bar="#c8d0d8",
    many=BLUE,
    medium="#008A64",
    few=VERMILLION,
    low="#eef3f7",
    high="#0B4F7D",
    on_high="#ffffff",
    series=(BLUE, VERMILLION, "#008A64", "#B45A8D", "#B87F00", "#3A8FC4", "#4a4f57", "#8A8000"),
)
# The same hues, lighter: blue and black of the palette would drown on a dark ground.
DARK = Theme(
    ground="#12161b",
    ink="#e6e9ed",
    muted="#9aa6b2",
    grid="#2c343d",
    bar="#46515d",
    many="#5AB4F0",
    medium="#35C79B",
    few="#FF8B4A",
    low="#1f2730",
    high="#8CCBF5",
    on_high="#10151a",
    series=("#5AB4F0", "#FF8B4A", "#35C79B", "#E79AC6", "#F0B323", "#9AD4FA", "#c9ced6", "#EFE66B"),
)

RC: dict[str, object] = {
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.edgecolor": "#3d454e",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "grid.color": "#e2e6ea",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "longtail",  # element names would otherwise differ from run to run
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a dollar in a class name is a dollar
}


@contextmanager
def paper() -> Generator[None]:
    """The style of the figures, for as long as the block lasts; also keeps matplotlib away from a display."""
    import matplotlib

    with matplotlib.rc_context({"backend": "Agg", **RC}):  # pyright: ignore[reportArgumentType]
        yield


def series(index: int) -> tuple[str, str]:
    """Colour and marker number `index`; the pair repeats only after 64."""
    return SERIES[index % len(SERIES)], MARKERS[(index // len(SERIES) + index) % len(MARKERS)]


def class_mark(index: int) -> tuple[str, str]:
    """Colour and marker of a class: ten colours, because points of a t-SNE are too small to tell by shape."""
    return CLASSES[index % len(CLASSES)], MARKERS[index % len(MARKERS)]

"""The figures of the paper and of the page, from formulas or from run folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from longtail.errors import UsageError
from longtail.report.figures.canvas import SUFFIXES, Arrays, Drawn, Request, save
from longtail.report.reading import read
from longtail.report.text import label

Name = Literal[
    "distortion",
    "overview",
    "margins_schematic",
    "class_margins",
    "logit_curves",
    "tsne",
    "head_tail",
    "clouds",
    "samplers",
    "groups",
    "logit_gap",
    "per_class",
    "curves",
    "confusion",
    "calibration",
]
NAMES: tuple[Name, ...] = get_args(Name)


def figure(
    name: str,
    out_prefix: str | Path,
    runs: Sequence[str | Path] = (),
    *,
    counts: Sequence[int] = (),
    seed: int = 0,
    strength: float = 0.5,
    most: int = 5000,
) -> Arrays:
    """Draw the figure `name` and write `out_prefix` + .svg, .pdf, .png and .npz; returns the arrays in it.

    `counts` are for the figures of formulas, `strength` is the noise multiplier of GCL, `most` the largest
    number of points in one t-SNE.
    """
    from longtail.report.style import paper

    known = _checked(name)
    request = Request([read(run) for run in runs], tuple(counts), seed, strength, most)
    with paper():
        drawn = draw(known, request)
        save(drawn, _bare(out_prefix))
    return drawn.arrays


def files(out_prefix: str | Path) -> list[Path]:
    """The paths that `figure` writes; an ending of theirs in `out_prefix` is not doubled."""
    prefix = _bare(out_prefix)
    return [prefix.with_name(prefix.name + suffix) for suffix in SUFFIXES]


def _bare(out_prefix: str | Path) -> Path:
    path = Path(out_prefix)
    return path.with_suffix("") if path.suffix in SUFFIXES else path


def draw(name: Name, request: Request) -> Drawn:  # noqa: C901 - one case a figure
    """The figure itself, not yet written."""
    from longtail.report.figures import bars, embedded, margins, schematics, training

    match name:
        case "distortion":
            return embedded.distortion(request)
        case "overview":
            return schematics.overview(request)
        case "margins_schematic":
            return schematics.margins(request)
        case "class_margins":
            return margins.class_margins(request)
        case "logit_curves":
            return margins.logit_curves(request)
        case "tsne":
            return embedded.all_classes(request)
        case "head_tail":
            return embedded.head_tail(request)
        case "clouds":
            return bars.clouds(request)
        case "samplers":
            return bars.samplers(request)
        case "groups":
            return bars.groups(request)
        case "logit_gap":
            return bars.logit_gap(request)
        case "per_class":
            return training.per_class(request)
        case "curves":
            return training.curves(request)
        case "confusion":
            return training.confusion(request)
        case "calibration":
            return training.calibration(request)


def _checked(name: str) -> Name:
    for known in NAMES:
        if name == known:
            return known
    raise UsageError(f"there is no figure {label(name)}; there are: {', '.join(NAMES)}")

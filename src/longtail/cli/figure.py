"""`longtail figure`: the figures of the paper, from run folders or from the formulas alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# What report.figures draws; written out so that help needs neither numpy nor the figures.
NAMES = (
    "distortion, overview, margins_schematic, class_margins, logit_curves, tsne, head_tail, clouds, "
    "samplers, groups, logit_gap, per_class, curves, confusion, calibration"
)


def figure(
    name: Annotated[str, typer.Argument(help=f"Which figure: {NAMES}.")],
    out: Annotated[
        Path, typer.Option(help="Where to write: .svg, .pdf, .png and .npz are added to this path.")
    ],
    runs: Annotated[
        list[Path] | None, typer.Option("--run", help="A run folder; may be given again.")
    ] = None,
    counts: Annotated[
        str | None, typer.Option(help="Images per class for the figures of formulas, as in 500,50,5.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at random.")] = 0,
) -> None:
    """Draw a figure of the paper, with the arrays behind it."""
    from longtail.errors import UsageError
    from longtail.recipes.nearest import hint
    from longtail.report import figures
    from longtail.run.escape import shown

    if name not in figures.NAMES:
        raise UsageError(f"there is no figure {name[:60]}{hint(name, figures.NAMES, most=20)}")
    words = counts.split(",") if counts else []
    if not all(word.strip().isdecimal() and 0 < int(word) < 1 << 40 for word in words):
        raise UsageError(f"--counts {str(counts)[:60]}: write whole numbers with commas, as in 500,50,5")
    figures.figure(name, out, runs or [], counts=[int(word) for word in words], seed=seed)
    for path in figures.files(out):
        print(f"written to {shown(path)}")

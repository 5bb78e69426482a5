"""`longtail figure`: the figures of the paper, from run folders or from the formulas alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def figure(
    name: Annotated[str, typer.Argument(help="Which figure; a wrong name lists them.")],
    out: Annotated[
        Path, typer.Option(help="Where to write: this path with .svg, .pdf, .png and .npz added.")
    ],
    runs: Annotated[
        list[Path] | None, typer.Option("--run", help="A run folder; may be given again.")
    ] = None,
) -> None:
    """Draw a figure of the paper, with the arrays behind it."""
    from longtail.report.figures import figure as drawn
    from longtail.run.escape import shown

    for path in drawn(name, out, runs or []):
        print(f"written to {shown(path)}")

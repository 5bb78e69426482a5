"""`longtail table`: runs as a table for a paper or a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

FORMATS = ("md", "csv", "latex")


def table(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    format: Annotated[str, typer.Option(help="md, csv or latex.")] = "md",
) -> None:
    """Write runs as a table in md, csv or latex."""
    print(written(runs, format))


def written(runs: Sequence[Path], format: str) -> str:
    from longtail.errors import UsageError
    from longtail.recipes.nearest import hint

    if format not in FORMATS:
        raise UsageError(f"--format {format}: there is no such format{hint(format, FORMATS)}")
    from longtail.report.tables import table as made

    return made(runs, format).rstrip("\n")

"""`longtail report`: one page about one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The page, an .html file.")] = Path("report.html"),
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is no page of this command.")
    ] = False,
) -> None:
    """Write one self-contained HTML page about runs."""
    from longtail.errors import UsageError
    from longtail.run.escape import shown

    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {shown(out)}: the name must end in .html")
    from longtail.report.page import is_page, write

    if out.exists() and not force and not is_page(out):
        raise UsageError(
            f"{shown(out)} exists already and was not written by longtail report; choose another name or "
            "give --force"
        )
    write(runs, out)
    print(f"written to {shown(out)}")

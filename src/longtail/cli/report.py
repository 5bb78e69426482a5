"""`longtail report`: one page about one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The page, an .html file.")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML page about runs."""
    from longtail.errors import UsageError
    from longtail.run.escape import shown

    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {shown(out)}: the name must end in .html")
    from longtail.report.page import write

    write(runs, out)
    print(f"written to {shown(out)}")

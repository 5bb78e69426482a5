"""`longtail compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; seeds of one recipe become one row.")],
) -> None:
    """Compare runs, over seeds and with the paper's figures."""
    from longtail.cli.table import written

    print(written(runs, "md"))

"""`longtail verify`: every manifest and hash of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def verify(run: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Check every file of a run against its hash."""
    from longtail.errors import ModelFileError
    from longtail.run.escape import shown, terminal
    from longtail.run.seal import is_sealed
    from longtail.run.verify import verify as verified

    findings = verified(run)
    for finding in findings:
        print(terminal(f"{'damaged' if finding.is_damage else 'note'}: {finding.where}: {finding.what}"))
    damaged = [finding for finding in findings if finding.is_damage]
    if damaged:
        raise ModelFileError(
            f"{shown(run)}: {len(damaged)} of its files or checkpoints are not as they were written, first "
            f"{damaged[0].where}; restore them from a copy, or train again"
        )
    if is_sealed(run):
        print(f"{shown(run)}: every file is as it was written")
    else:
        print(f"{shown(run)}: what is sealed or saved is sound; the run is unfinished")

"""Takes back the beginning of a run that could not begin: the folder is again as it was before."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from longtail.errors import MachineError
from longtail.run import fsio

RECIPE, CHECKPOINTS, LOCK = "recipe.json", "checkpoints", "lock"
# What a run writes before its first checkpoint. The recipe goes last: while it is there, this is a run.
_FIRST = (
    "env.json",
    "data.json",
    "manifest.json",
    "steps.jsonl",
    "evals.jsonl",
    "timing.jsonl",
    "origin.json",
)


def missing(folder: Path) -> list[Path]:
    """The folder and those above it that are not there yet, the innermost first."""
    return [part for part in (folder, *folder.parents) if not part.exists()]


def forget(folder: Path) -> None:
    """Removes what a run wrote before its first checkpoint, and what lies about of one half written."""
    for name in (CHECKPOINTS, *_FIRST, RECIPE):
        fsio.remove(folder / name)


def undo(folder: Path, made: list[Path]) -> None:
    """Removes what a new run wrote, and the folders made for it; nothing once there is a checkpoint.

    Called under the lock, whose file goes last. Whoever waits for it sees that it was replaced.
    """
    checkpoints = folder / CHECKPOINTS
    with contextlib.suppress(MachineError):
        if checkpoints.is_dir():
            fsio.clean(checkpoints)
            if os.listdir(checkpoints):
                return
        forget(folder)
        fsio.clean(folder)
        fsio.remove(folder / LOCK)
        for part in made:
            fsio.remove(part, whole=False)

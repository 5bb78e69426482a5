"""The seal of a finished run: MANIFEST.json over all of its files, and what happens when it does not hold."""

from __future__ import annotations

from pathlib import Path

from longtail.errors import ModelFileError
from longtail.run import fsio, manifest
from longtail.run.escape import shown

# Named in the manifest of a finished run, yet left out of version control: their absence is no damage.
LARGE = frozenset({"predictions.safetensors", "samples.safetensors", "features.safetensors"})
# Clock times differ between two runs of one recipe; without them equal runs have equal manifests.
NOT_SEALED = frozenset({"lock", manifest.NAME, "timing.jsonl"})
# Written when a run begins, and from the recipe, the data and the machine alone.
_MADE_AGAIN = frozenset({"env.json", "data.json", "manifest.json"})
_FROM_ELSEWHERE = "origin.json"


def seal(folder: Path) -> None:
    files: dict[str, manifest.Entry] = {}
    for name in sorted(entry.name for entry in folder.iterdir() if entry.is_file()):
        if name not in NOT_SEALED and not name.startswith("."):
            fsio.fsync_path(folder / name)
            files[name] = fsio.digest(folder / name)
    fsio.write_file(folder / manifest.NAME, manifest.encode("run", files))


def is_sealed(folder: Path) -> bool:
    """Whether a run was finished here, be it damaged or not."""
    return (folder / manifest.NAME).exists()


def damaged(folder: Path) -> list[str] | None:
    """The sealed files that are not what they were; None where there is no seal that can be read."""
    try:
        files, _ = manifest.read(folder, "run")
    except ModelFileError:
        return None
    return [name for name, wanted in files.items() if not _holds(folder, name, wanted)]


def _holds(folder: Path, name: str, wanted: manifest.Entry) -> bool:
    if name in LARGE and not (folder / name).exists():
        return True
    try:
        manifest.check(folder, name, wanted)
    except ModelFileError:
        return False
    return True


def reopen(folder: Path) -> None:
    """A finished run with a damaged file will be finished again. The new seal must not vouch for the damage.

    What can be made again is removed, so that it will be. The logs are compared with the last checkpoint, and
    the other files are written at the end in any case.
    """
    found = set(damaged(folder) or ())
    if _FROM_ELSEWHERE in found:
        raise ModelFileError(
            f"{shown(folder / _FROM_ELSEWHERE)} is damaged; restore it from a copy, or choose another folder"
        )
    for name in sorted(found & _MADE_AGAIN):
        fsio.remove(folder / name)

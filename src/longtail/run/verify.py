"""`longtail verify RUN`: every manifest and every hash of a run, read again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from longtail.errors import LongtailError, ModelFileError
from longtail.run import canonical, checkpoint, fsio, logs, manifest, tensors
from longtail.run.escape import shown
from longtail.run.folder import RunFolder
from longtail.run.seal import LARGE, is_sealed


class Finding(NamedTuple):
    """Something that is not as it was written; `is_damage` is False for what merely deserves a remark."""

    where: str
    what: str
    is_damage: bool = True


def verify(path: str | Path) -> list[Finding]:
    """Everything that is wrong with the run folder `path`; empty when all of it is sound and finished."""
    run = RunFolder.open(path)
    return [*_files(run), *_sealed(run), *_checkpoints(run), *_leftovers(run)]


def _files(run: RunFolder) -> Iterator[Finding]:
    """Each JSON file and log can be read, and the model is finite."""
    for entry in sorted(run.path.iterdir()):
        try:
            if entry.name == "recipe.json":
                run.recipe()
            elif entry.suffix == ".json" and not entry.name.startswith("."):
                fsio.read_json(entry)
            elif entry.suffix == ".jsonl":
                _rows(entry)
            elif entry.name == "model.safetensors":
                tensors.decode(fsio.read_bytes(entry), shown(entry))
        except LongtailError as error:
            yield Finding(entry.name, str(error))


def _rows(path: Path) -> None:
    # The last line may be half written: resuming drops it.
    for number, line in enumerate(fsio.read_bytes(path).split(b"\n")[:-1], start=1):
        try:
            canonical.decode(line)
        except ValueError as error:
            raise ModelFileError(f"{shown(path)}, line {number}: {error}") from error


def _sealed(run: RunFolder) -> Iterator[Finding]:
    if not is_sealed(run.path):
        yield Finding(manifest.NAME, "the run is not finished: nothing vouches for its files yet", False)
        return
    try:
        files, _ = manifest.read(run.path, "run")
    except ModelFileError as error:
        yield Finding(manifest.NAME, str(error))
        return
    for name, wanted in files.items():
        if not (run.path / name).exists():
            yield Finding(name, f"{name} is missing", name not in LARGE)
            continue
        try:
            manifest.check(run.path, name, wanted)
        except ModelFileError as error:
            yield Finding(name, str(error))


def _checkpoints(run: RunFolder) -> Iterator[Finding]:
    identity = _identity(run)
    for step in checkpoint.steps(run.checkpoints):
        path = checkpoint.folder_of(run.checkpoints, step)
        try:
            _, facts = checkpoint.load(path)
            checkpoint.require(facts, {name: value for name, value in identity.items() if name in facts})
            for name, position in _positions(facts):
                logs.check(run.path / name, position)
        except LongtailError as error:
            yield Finding(f"checkpoints/{path.name}", str(error))


def _identity(run: RunFolder) -> dict[str, Any]:
    """What this run says of itself: its recipe, its classes and its data, as far as they can be read."""
    known: dict[str, Any] = {}
    with contextlib.suppress(LongtailError):  # _files says so
        known["recipe"] = run.digest()
        data = run.read("data.json") if (run.path / "data.json").exists() else {}
        for name, key in (("names", "names"), ("data", "digest")):
            if isinstance(data, dict) and key in data:
                known[name] = data[key]
    return known


def _positions(facts: dict[str, Any]) -> list[tuple[str, dict[str, object]]]:
    found = facts.get("logs")
    if not isinstance(found, dict):
        return []
    return [(name, value) for name, value in cast("dict[str, Any]", found).items() if isinstance(value, dict)]


def _leftovers(run: RunFolder) -> Iterator[Finding]:
    for folder in (run.path, run.checkpoints):
        for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
            if entry.name.startswith(fsio.WASTE):
                yield Finding(entry.name, "left by an interrupted run; the next one removes it", False)

"""Checkpoints: one folder per step, complete or absent.

A step is written into `.tmp-*`, flushed, and becomes visible by one rename, so weights, optimiser and facts
can only appear together. The newest one is the highest step that verifies; clocks and links play no part.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from longtail.errors import MachineError, ModelFileError
from longtail.run import canonical, differences, fsio, manifest, tensors
from longtail.run.escape import shown, terminal

FACTS = "facts.json"
_STEP = re.compile(r"step-(\d{8,})")
_GROUP = re.compile(r"[a-z][a-z0-9_]*")

State = dict[str, dict[str, Tensor]]


def folder_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def save(
    folder: Path, step: int, state: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]
) -> Path:
    """Writes `folder/step-00001234/`: a file per entry of `state`, facts.json, MANIFEST.json."""
    target = folder_of(folder, step)
    files = _encoded(target, state, facts)
    listing = manifest.encode(
        "checkpoint", {name: manifest.entry(data) for name, data in files.items()}, step=step
    )
    if _is_saved(target, listing):
        fsio.fsync_dir(folder)
        return target
    fsio.make_folders(folder)
    beside, waste = folder / f".tmp-{target.name}", folder / f".trash-{target.name}"
    try:
        fsio.remove(beside)
        fsio.mkdir(beside)
        for name, data in files.items():
            fsio.write_new(beside / name, data)
        fsio.write_new(beside / manifest.NAME, listing)
        fsio.fsync_dir(beside)
        # Only a damaged folder of this step can be in the way, or one that a changed recipe left.
        _out_of_the_way(target, waste)
        fsio.rename(beside, target)
    except MachineError:
        with contextlib.suppress(MachineError):
            fsio.remove(beside)
            if waste.exists() and not target.exists():
                fsio.rename(waste, target)
        raise
    fsio.fsync_dir(folder)
    fsio.remove(waste)
    return target


def _encoded(
    target: Path, state: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]
) -> dict[str, bytes]:
    for group in state:
        if not _GROUP.fullmatch(group):
            raise ValueError(f"{group!r} cannot name a file of a checkpoint")
    files = {f"{group}.safetensors": tensors.encode(held, shown(target)) for group, held in state.items()}
    return files | {FACTS: canonical.encode(facts)}


def _is_saved(target: Path, listing: bytes) -> bool:
    try:
        return fsio.read_bytes(target / manifest.NAME, limit=len(listing)) == listing and bool(_read(target))
    except ModelFileError:
        return False


def _out_of_the_way(target: Path, waste: Path) -> None:
    fsio.remove(waste)
    if target.exists():
        fsio.rename(target, waste)


def load(path: Path) -> tuple[State, dict[str, Any]]:
    """The tensors and facts of a checkpoint; ModelFileError unless every byte is what was written."""
    files = _read(path)
    facts = _facts(path, files.pop(FACTS))
    state = {
        name.removesuffix(".safetensors"): tensors.decode(data, shown(path / name))
        for name, data in files.items()
    }
    return state, facts


def _facts(path: Path, data: bytes) -> dict[str, Any]:
    try:
        found = canonical.decode(data)
    except ValueError as error:
        raise ModelFileError(f"{shown(path / FACTS)}: {error}") from error
    if not isinstance(found, dict):
        raise ModelFileError(f"{shown(path / FACTS)} is not a table of facts")
    return cast("dict[str, Any]", found)


def _read(path: Path) -> dict[str, bytes]:
    """Every file of a checkpoint, compared with the manifest. Nothing may be missing or left over."""
    if not path.is_dir():
        raise ModelFileError(f"{shown(path)} is not a checkpoint folder")
    files, numbers = manifest.read(path, "checkpoint", "step")
    named = _STEP.fullmatch(path.name)
    if named and int(named[1]) != numbers["step"]:
        raise ModelFileError(f"{shown(path)} is damaged: its manifest is that of step {numbers['step']}")
    present = {entry.name for entry in path.iterdir()} - {manifest.NAME}
    if odd := sorted(present ^ files.keys()):
        what = "is missing" if odd[0] in files else "does not belong there"
        raise ModelFileError(f"{shown(path)} is damaged: {terminal(odd[0])[:60]} {what}")
    if FACTS not in files:
        raise ModelFileError(f"{shown(path)} is damaged: it has no {FACTS}")
    return {name: manifest.checked(path, name, wanted) for name, wanted in files.items()}


def steps(folder: Path) -> list[int]:
    """The steps that have a folder, verified or not, ascending."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(match[1]) for name in names if (match := _STEP.fullmatch(name)))


def latest(folder: Path, *, warn: Callable[[str], object] | None = None) -> Path | None:
    """The newest checkpoint that verifies; `warn` is told of each newer one that does not."""
    for step in reversed(steps(folder)):
        path = folder_of(folder, step)
        try:
            load(path)
        except ModelFileError as error:
            if warn is not None:
                warn(f"skipped a checkpoint: {error}")
        else:
            return path
    return None


def rotate(folder: Path, *, keep: int = 2, protect: Collection[int] = frozenset()) -> None:
    """Deletes what is older than the newest `keep` checkpoints that verify, except the steps in `protect`."""
    if keep < 1:
        raise ValueError(f"keep={keep}: at least one checkpoint stays")
    good = 0
    for step in reversed(steps(folder)):
        path = folder_of(folder, step)
        if good >= keep:
            if step not in protect:
                _delete(path)
        elif _verifies(path):
            good += 1


def _verifies(path: Path) -> bool:
    try:
        return bool(_read(path))
    except ModelFileError:
        return False


def _delete(path: Path) -> None:
    """First out of sight by one rename, so that nobody ever meets half a checkpoint."""
    waste = path.parent / f".trash-{path.name}"
    _out_of_the_way(path, waste)
    fsio.fsync_dir(path.parent)
    fsio.remove(waste)


def require(facts: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuses a checkpoint whose facts are not the expected ones: another recipe, data set or class list."""
    wanted = canonical.jsonable(expected)
    found = {name: facts[name] for name in expected if name in facts}
    if text := differences.listed(canonical.jsonable(found), wanted):
        raise ModelFileError(f"the checkpoint belongs to another run: {text}")

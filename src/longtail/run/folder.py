"""The run folder: what lies where, who may write, and when a run counts as finished."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from longtail.errors import DataError, MachineError, ModelFileError, UsageError
from longtail.recipe import Recipe
from longtail.run import canonical, differences, fsio, manifest, seal, undo
from longtail.run.escape import shown, terminal
from longtail.run.lock import RunLock, is_held_here

if TYPE_CHECKING:  # reports read run folders without waiting for torch
    from torch import Tensor

RECIPE, FINAL, LOCK = undo.RECIPE, "final.json", undo.LOCK
NEEDED_BYTES, NEEDED_FILES = 64 << 20, 200
LARGEST_RECIPE = 4 << 20

_RECIPES: TypeAdapter[Recipe] = TypeAdapter(Recipe)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def recipe_json(recipe: Recipe) -> canonical.Json:
    return canonical.jsonable(_RECIPES.dump_python(recipe, mode="json"))


def recipe_digest(recipe: Recipe) -> str:
    """One text per recipe, whatever way it was made."""
    return hashlib.sha256(canonical.compact(recipe_json(recipe))).hexdigest()


def read_recipe(path: str | Path) -> Recipe:
    """The recipe in a JSON file; UsageError names the path inside it that is wrong."""
    found = fsio.read_json(path, limit=LARGEST_RECIPE, error=UsageError)
    try:
        return _RECIPES.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = terminal(".".join(map(str, first["loc"])))[-80:] or "the whole file"
        raise UsageError(f"{shown(path)}: {where}: {terminal(first['msg'])[:120]}") from error


class RunFolder:
    """A folder that holds one run of one recipe."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """For readers: UsageError when `path` is no run folder."""
        folder = cls(path)
        if not (folder.path / RECIPE).is_file():
            near = _nearest(folder.path)
            hint = f"; did you mean {shown(near)}?" if near else ""
            raise UsageError(f"{shown(path)} is not a run folder (it has no {RECIPE}){hint}")
        return folder

    @property
    def checkpoints(self) -> Path:
        return self.path / undo.CHECKPOINTS

    # -------------------------------------------------------------------------------------- one writer

    def lock(self) -> RunLock:
        return RunLock(self.path / LOCK)

    @contextlib.contextmanager
    def held(self, *, main: bool = True) -> Generator[None, None, None]:
        """The lock, for as long as the run goes; only the main process takes it.

        A new run that cannot begin (a wrong path, an unknown backbone, a bad image) leaves nothing behind, so
        that the corrected command finds the folder as it was.
        """
        if not main:
            yield
            return
        self._refuse_foreign()
        made = undo.missing(self.path)
        with self.lock():
            is_new = not self._has_begun()
            try:
                yield
            except (UsageError, DataError, ModelFileError):
                if is_new:
                    undo.undo(self.path, made)
                raise

    def create(self, recipe: Recipe, *, need: int = NEEDED_BYTES) -> bool:
        """Starts a run (True) or takes up the one that is there (False), if it is of the same recipe."""
        if is_held_here(self.path / LOCK):
            return self._create(recipe, need)
        with self.held():
            return self._create(recipe, need)

    def _create(self, recipe: Recipe, need: int) -> bool:
        is_new = not (self.path / RECIPE).exists()
        if not is_new and not self._has_begun() and self._differences(recipe):
            undo.forget(self.path)  # a run that died before it had done anything keeps no other one out
            is_new = True
        if not is_new:
            self._refuse_another(recipe)
            seal.reopen(self.path)
        fsio.clean(self.path)
        fsio.clean(self.checkpoints)
        self.preflight(need)
        if is_new:
            fsio.write_json(self.path / RECIPE, recipe_json(recipe))
        fsio.make_folders(self.checkpoints)
        return is_new

    def _has_begun(self) -> bool:
        """Whether there is something to lose: a checkpoint, sound or not, or the end of a run."""
        ends = (self.path / name for name in (FINAL, manifest.NAME))
        return any(self.checkpoints.glob("step-*")) or any(end.exists() for end in ends)

    def _differences(self, recipe: Recipe) -> str:
        """What would train otherwise; where a constant comes from may be said in other words by now."""
        found, wanted = (recipe_json(replace(one, provenance={})) for one in (self.recipe(), recipe))
        return differences.listed(found, wanted, width=230 - len(shown(self.path)))

    def holds(self, recipe: Recipe) -> bool:
        """Whether this run trains as `recipe` does, whatever either says of where its constants come from."""
        return not self._differences(recipe)

    def _refuse_another(self, recipe: Recipe) -> None:
        if text := self._differences(recipe):
            raise UsageError(
                f"{shown(self.path)} holds a run of another recipe: {text}. Choose another folder", number=210
            )

    def _refuse_foreign(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{shown(self.path)} is a file, not a folder")
        names = os.listdir(self.path) if self.path.is_dir() else []
        ours = [name for name in names if name == LOCK or name.startswith(fsio.WASTE)]
        if len(ours) < len(names) and RECIPE not in names:
            raise UsageError(f"{shown(self.path)} is not empty and not a run folder; choose another folder")

    def preflight(self, need: int = NEEDED_BYTES) -> None:
        """Fails now rather than at the first checkpoint: `need` free bytes, free inodes, a test write."""
        free_bytes, free_files = fsio.free(self.path)
        if free_bytes < need:
            raise MachineError(
                f"{shown(self.path)} has {free_bytes / 2**20:,.0f} MiB free and the run needs "
                f"{need / 2**20:,.0f}; free some space or choose another folder",
                number=501,
            )
        if free_files is not None and free_files < NEEDED_FILES:
            raise MachineError(
                f"{shown(self.path)} has room for {free_files} more files (inodes) and the run needs "
                f"{NEEDED_FILES}; remove some files or choose another folder",
                number=501,
            )
        probe = self.path / ".tmp-probe"
        fsio.write_file(probe, b"written, flushed and renamed\n")
        fsio.unlink(probe)

    # ------------------------------------------------------------------------------------------- files

    def recipe(self) -> Recipe:
        return read_recipe(self.path / RECIPE)

    def digest(self) -> str:
        """The digest of the recipe as written: fields that a later version adds do not change it."""
        written = fsio.read_json(self.path / RECIPE, limit=LARGEST_RECIPE, error=UsageError)
        return hashlib.sha256(canonical.compact(written)).hexdigest()

    def write(self, name: str, value: object) -> None:
        """A JSON file, whole or not at all. NaN becomes null."""
        fsio.write_json(self._file(name), value)

    def read(self, name: str) -> Any:
        """The value of a JSON file, compared with the manifest where the run is finished."""
        try:
            return canonical.decode(self._bytes(name))
        except ValueError as error:
            raise ModelFileError(f"{shown(self.path / name)}: {error}") from error

    def write_tensors(self, name: str, held: Mapping[str, Tensor], *, finite: bool = True) -> None:
        """A safetensors file; NaN and infinities are refused unless `finite=False`."""
        from longtail.run import tensors

        path = self._file(name)
        fsio.write_file(path, tensors.encode(held, shown(path), finite=finite))

    def read_tensors(self, name: str, *, finite: bool = True) -> dict[str, Tensor]:
        """The tensors of a file, compared with the manifest where the run is finished."""
        from longtail.run import tensors

        return tensors.decode(self._bytes(name), shown(self.path / name), finite=finite)

    def _bytes(self, name: str) -> bytes:
        path = self._file(name)
        sealed = manifest.read(self.path, "run")[0] if (self.path / manifest.NAME).exists() else {}
        return manifest.checked(self.path, name, sealed[name]) if name in sealed else fsio.read_bytes(path)

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a file of a run folder")
        return self.path / name

    # ----------------------------------------------------------------------------------------- the end

    def seal(self) -> None:
        """Marks the run as finished: MANIFEST.json with the hash of every file, written last."""
        if not (self.path / FINAL).is_file():
            raise ValueError(f"a run is sealed after {FINAL} is written")
        seal.seal(self.path)

    @property
    def is_finished(self) -> bool:
        """Whether the run was sealed and every sealed file is still what it was."""
        return (self.path / FINAL).exists() and seal.damaged(self.path) == []


def _nearest(path: Path) -> Path | None:
    """A run folder inside `path`, or the one beside it with the most similar name."""
    for parent, wanted in ((path, None), (path.parent, path.name)):
        try:
            runs = sorted(child.parent.name for child in parent.glob(f"*/{RECIPE}"))
        except OSError:
            continue
        close = runs[:1] if wanted is None else difflib.get_close_matches(wanted, runs, n=1)
        if close:
            return parent / close[0]
    return None

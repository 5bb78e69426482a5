"""A run folder as files. Nothing here is trained, built or imported from the engine; no torch is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from longtail.errors import ModelFileError, UsageError
from longtail.run import canonical, fsio, manifest
from longtail.run.escape import shown
from longtail.run.seal import LARGE

Row = dict[str, Any]
Array = NDArray[Any]

LARGEST_LOG = 512 << 20


@dataclass(frozen=True)
class RunFiles:
    """Every file of one run folder, read when first asked for. A missing optional file is empty or None.

    What the seal of a finished run names is compared with it; a file that differs is a ModelFileError.
    """

    path: Path
    recipe: Row = field(repr=False)

    @cached_property
    def env(self) -> Row:
        return self.facts("env.json")

    @cached_property
    def data(self) -> Row:
        return self.facts("data.json")

    @cached_property
    def manifest(self) -> Row:
        return self.facts("manifest.json")

    @cached_property
    def final(self) -> Row:
        return self.facts("final.json")

    @cached_property
    def origin(self) -> Row:
        """Of a re-trained run, where its first training came from; else empty."""
        return self.facts("origin.json")

    @cached_property
    def steps(self) -> list[Row]:
        return self._rows("steps.jsonl")

    @cached_property
    def evals(self) -> list[Row]:
        return self._rows("evals.jsonl")

    @cached_property
    def timing(self) -> list[Row]:
        return self._rows("timing.jsonl")

    @cached_property
    def predictions(self) -> Mapping[str, Array] | None:
        """`logits` [N, C], float16 as written, and `labels` [N]; those of the features where a run of a
        repository has none, as long as both are of the same images."""
        found = self._tensors("predictions.safetensors", ("logits", "labels"))
        if found is None and (self.recipe.get("evaluation") or {}).get("split", "test") == "test":
            kept = self._tensors("features.safetensors", ("test_labels",), ("test_scores",))
            if kept is not None and "test_scores" in kept:
                return {"logits": kept["test_scores"], "labels": kept["test_labels"]}
        return found

    @cached_property
    def samples(self) -> Mapping[str, Array] | None:
        """`images` uint8 [n, 3, h, w] and `index`, their places in the test set."""
        return self._tensors("samples.safetensors", ("images", "index"))

    @cached_property
    def features(self) -> Mapping[str, Array] | None:
        """`{train,test}_{features,labels,scores}`, as `longtail features RUN` writes them."""
        wanted = tuple(f"{split}_{part}" for split in ("train", "test") for part in ("features", "labels"))
        found = self._tensors("features.safetensors", wanted, ("train_scores", "test_scores"))
        if found is None:
            return None
        return {k: v.astype(np.int64 if k.endswith("labels") else np.float64) for k, v in found.items()}

    @property
    def counts(self) -> Array:
        """Training images of each class."""
        return np.asarray(self.data["counts"], dtype=np.int64)

    @property
    def names(self) -> list[str]:
        """Class names as read: hostile until `text.label` has seen them."""
        names = [str(name) for name in self.data.get("names", ())]
        return names if len(names) == len(self.counts) else [str(i) for i in range(len(self.counts))]

    @property
    def last(self) -> Row:
        """The headline: the newest evaluation there is, finished or not."""
        return self.final.get("last") or (self.evals[-1] if self.evals else {})

    @property
    def best(self) -> Row:
        """The epoch with the best top-1 on the evaluation split: for comparison with the literature only."""
        return self.final.get("best") or {}

    @property
    def stages(self) -> list[Row]:
        """The last evaluation of each stage, by stage number."""
        found: dict[int, Row] = {int(row.get("stage", 0)): row for row in self.evals}
        found.update({int(row.get("stage", 0)): row for row in self.final.get("stages") or ()})
        return [found[key] for key in sorted(found)]

    @property
    def is_finished(self) -> bool:
        """Whether the run was sealed: its last evaluation is the one after its last epoch."""
        return (self.path / manifest.NAME).exists() and bool(self.final.get("last"))

    def accuracies(self, row: Row | None = None) -> Array:
        """Percent right of each class in an evaluation row (the last one); NaN for a class without images."""
        row = self.last if row is None else row
        hits, totals = (np.asarray(row.get(key) or [], dtype=np.float64) for key in ("hits", "totals"))
        if len(hits) != len(self.counts) or len(totals) != len(hits):
            return np.full(len(self.counts), np.nan)
        return np.divide(100 * hits, totals, out=np.full(len(hits), np.nan), where=totals > 0)

    @cached_property
    def _sealed(self) -> dict[str, manifest.Entry]:
        return manifest.read(self.path, "run")[0] if (self.path / manifest.NAME).exists() else {}

    def _is_there(self, name: str) -> bool:
        """Whether the file can be read. One that was sealed and is gone shows itself as damaged when read."""
        return (self.path / name).is_file() or (name in self._sealed and name not in LARGE)

    def _bytes(self, name: str, limit: int) -> bytes:
        if name in self._sealed:
            return manifest.checked(self.path, name, self._sealed[name])
        return fsio.read_bytes(self.path / name, limit=limit)

    def facts(self, name: str) -> Row:
        """The object in a JSON file; empty where there is none."""
        if not self._is_there(name):
            return {}
        return _decoded(self._bytes(name, fsio.LARGEST_JSON), self.path / name)

    def _rows(self, name: str) -> list[Row]:
        if not self._is_there(name):
            return []
        lines = self._bytes(name, LARGEST_LOG).split(b"\n")
        return [_decoded(line, self.path / name) for line in lines if line.strip()]

    def _tensors(
        self, name: str, wanted: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Array] | None:
        path = self.path / name
        if not self._is_there(name):
            return None
        if name in self._sealed:
            manifest.check(self.path, name, self._sealed[name])
        try:
            with safe_open(path, "np") as file:
                known = set(file.keys())
                found = {key: file.get_tensor(key) for key in (*wanted, *optional) if key in known}
        except (SafetensorError, OSError, ValueError) as error:
            raise ModelFileError(
                f"cannot read {shown(path)}: {error}; write it again or remove it"
            ) from error
        missing = [key for key in wanted if key not in found]
        if missing:
            raise ModelFileError(f"{shown(path)} lacks {', '.join(missing)}; write it again or remove it")
        return found


def read(path: str | Path) -> RunFiles:
    """Open a run folder; recipe.json and data.json must be there, everything else may be missing."""
    path = Path(path)
    for name in ("recipe.json", "data.json"):
        if not (path / name).is_file():
            raise UsageError(f"{shown(path)} is not a run folder: it has no {name}")
    run = RunFiles(path, _recipe(path))
    if not run.data.get("counts"):
        raise ModelFileError(f"{shown(path / 'data.json')} has no class counts")
    return run


def _recipe(path: Path) -> Row:
    recipe = RunFiles(path, {}).facts("recipe.json")
    if not all(recipe.get(key) for key in ("stages", "data", "model")):
        raise UsageError(f"{shown(path / 'recipe.json')} is not a recipe: it needs data, model and stages")
    return recipe


def _decoded(data: bytes, path: Path) -> Row:
    try:
        value = canonical.decode(data)
    except ValueError as error:
        raise ModelFileError(f"{shown(path)}: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{shown(path)} holds something other than JSON objects")
    return cast("Row", value)

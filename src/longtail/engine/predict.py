"""Class probabilities for image files, by the final model of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from longtail.build.training import prepared
from longtail.data.images import EXTENSIONS, FileImages, decode, read_regular
from longtail.engine.load import Predictor, load
from longtail.errors import DataError

BATCH = 64
ADVICE = "repair or remove it"

File = tuple[Path, Callable[[], bytes]]  # what it is called, and how to read it


@dataclass(frozen=True)
class Prediction:
    """One file: its most probable class and all probabilities, or the reason why there are none."""

    path: str
    label: str | None = None
    probability: float | None = None
    probabilities: dict[str, float] | None = None
    error: str | None = None


def predict(
    run: str | Path, paths: Iterable[str | Path], *, keep_going: bool = False, device: str | None = None
) -> list[Prediction]:
    """One prediction per image, in order; folders stand for the images below them.

    A file that cannot be used raises DataError, or with `keep_going` becomes a Prediction with its `error`.
    """
    files = list(_found(paths))
    if not files:
        raise DataError("no image was named; give files or folders with JPEG, PNG, WebP or BMP images")
    predictor = load(run, device=device)
    made: list[Prediction] = []
    for begin in range(0, len(files), BATCH):
        made += _batch(predictor, files[begin : begin + BATCH], keep_going)
    return made


def _found(paths: Iterable[str | Path]) -> Iterator[File]:
    """A path that was named may be a link to anywhere; an image below a folder must lie in the folder."""
    for path in map(Path, paths):
        if not path.is_dir():
            yield path, partial(read_regular, os.path.realpath(path), str(path))
            continue
        below = sorted(
            p for p in path.rglob("*") if p.suffix.lower() in EXTENSIONS and not p.name.startswith(".")
        )
        images = FileImages(str(path), [str(p.relative_to(path)) for p in below])
        yield from ((p, partial(images.encoded, index)) for index, p in enumerate(below))


def _batch(predictor: Predictor, files: list[File], keep_going: bool) -> list[Prediction]:
    images: list[Tensor] = []
    results: dict[Path, Prediction] = {}
    good: list[Path] = []
    for file, read in files:
        try:
            images.append(prepared(predictor.images, decode(read(), str(file), advice=ADVICE)))
            good.append(file)
        except DataError as error:
            if not keep_going:
                raise
            results[file] = Prediction(str(file), error=str(error))
    if images:
        device = predictor.mean.device
        with torch.no_grad():
            batch = torch.stack(images).to(device).float() / 255
            probabilities = predictor(batch).softmax(dim=-1).cpu()
        for file, row in zip(good, probabilities, strict=True):
            results[file] = _named(file, row, predictor.names)
    return [results[file] for file, _ in files]


def _named(file: Path, row: Tensor, names: tuple[str, ...]) -> Prediction:
    best = int(row.argmax())
    return Prediction(
        str(file), names[best], float(row[best]), dict(zip(names, map(float, row.tolist()), strict=True))
    )

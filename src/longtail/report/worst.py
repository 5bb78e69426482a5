"""The classes that fail most, what they are taken for, and a few of their pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from longtail.report import measures
from longtail.report.reading import RunFiles
from longtail.report.text import label, percent, plural

NUMBER = 6
SIDE = 64  # pixels of a thumbnail at most


@dataclass(frozen=True)
class Sample:
    """One thumbnail as a `data:` address, and what the model said of it."""

    address: str
    said: str
    is_right: bool


@dataclass(frozen=True)
class Worst:
    """One class: its numbers, its confusions, its pictures."""

    name: str
    images: str
    accuracy: str
    confusions: Sequence[str]
    samples: Sequence[Sample]


def classes_of(run: RunFiles, *, samples: int, number: int = NUMBER) -> list[Worst]:
    """The `number` classes with the lowest accuracy in the last evaluation."""
    accuracies = run.accuracies()
    chosen = measures.worst(accuracies, run.counts, number)
    found = run.predictions
    if found is not None and found["logits"].shape[1] != len(run.counts):
        found = None
    guesses = None if found is None else measures.predicted(found["logits"])
    return [
        Worst(
            label(run.names[c], 40),
            plural(int(run.counts[c]), "training image"),
            percent(float(accuracies[c])),
            [] if found is None or guesses is None else _confusions(run, found["labels"], guesses, c),
            [] if found is None or guesses is None else _samples(run, found["labels"], guesses, c, samples),
        )
        for c in (int(c) for c in chosen)
    ]


def _confusions(run: RunFiles, labels: measures.Array, guesses: measures.Array, c: int) -> list[str]:
    """The three classes most often named instead, with their share of the images."""
    said = np.bincount(guesses[labels == c], minlength=len(run.counts))
    total = max(int(said.sum()), 1)
    said[c] = 0
    order = np.argsort(-said, kind="stable")[:3]
    return [
        f"{label(run.names[int(k)], 30)} ({100 * int(said[k]) / total:.0f}\u00a0%)" for k in order if said[k]
    ]


def _samples(
    run: RunFiles, labels: measures.Array, guesses: measures.Array, c: int, number: int
) -> list[Sample]:
    """Thumbnails of a class, wrongly named ones first."""
    kept = run.samples
    if kept is None or not number:
        return []
    index = kept["index"].astype(np.int64)
    usable = np.flatnonzero((index >= 0) & (index < len(labels)))
    own = usable[labels[index[usable]] == c]
    own = own[np.argsort(guesses[index[own]] == c, kind="stable")][:number]
    return [_sample(run, kept, guesses, int(i), c) for i in own]


def _sample(
    run: RunFiles, kept: Mapping[str, measures.Array], guesses: measures.Array, i: int, c: int
) -> Sample:
    said = int(guesses[int(kept["index"][i])])
    return Sample(_png(kept["images"][i]), label(run.names[said], 30), said == c)


def _png(image: measures.Array) -> str:
    planes = image if image.shape[0] == 3 else np.repeat(image[:1], 3, axis=0)
    picture = Image.fromarray(np.ascontiguousarray(planes.transpose(1, 2, 0)).astype(np.uint8))
    picture.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")

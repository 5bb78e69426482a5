"""Trainings of a fraction of a second, and the bytes they leave. Loaded by conftest files and by workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from longtail.engine.facts import stage_ends
from longtail.engine.fit import train
from longtail.engine.record import Record
from longtail.recipe import (
    GCL,
    LDAM,
    SGD,
    Backbone,
    Classifier,
    CrossEntropy,
    Digits,
    Evaluation,
    LongTail,
    Mixup,
    MultiStep,
    Recipe,
    Sampling,
    SmallImages,
    Stage,
)
from longtail.run.folder import RunFolder

# 331 training images: three steps per epoch at this size, the last one of 75 images.
BATCH = 128
STEPS = 3


def stage(name: str = "representation", **changes: Any) -> Stage:
    given: dict[str, Any] = dict(
        name=name,
        loss=CrossEntropy(),
        epochs=2,
        batch_size=BATCH,
        optimizer=SGD(lr=0.1),
        schedule=MultiStep(warmup=1, drops=()),
    )
    return Stage(**(given | changes))


def recipe(*stages: Stage, **changes: Any) -> Recipe:
    given: dict[str, Any] = dict(
        name="tiny",
        data=Digits(longtail=LongTail(ratio=50)),
        images=SmallImages(size=8, crop=1, flip=False, mean=(0.3, 0.3, 0.3), std=(0.37, 0.37, 0.37)),
        model=Classifier(backbone=Backbone(name="resnet8"), head="cosine"),
        stages=stages or (stage(),),
        evaluation=Evaluation(every=1, last=1),
        log_every=1,
        seed=3,
    )
    return Recipe(**(given | changes))


HEAD = dict(trains=("head",), batchnorm="frozen", sampling=Sampling(rule="class_balanced"))


def gcl(form: str = "euclidean", **first: Any) -> Recipe:
    """Everything random at once: order, crops, mixup, noise, class-balanced draws; averaged weights."""
    one = dict(loss=GCL(form=form, halves="independent"), mixing=Mixup(alpha=1.0), ema=0.9) | first
    two = dict(loss=GCL(form=form, scale=20.0, margin=0.1, focal=1.0), mixing=Mixup(alpha=1.0))
    return recipe(stage(**one), stage("classifier", **two, **HEAD, optimizer=SGD(lr=0.02)))


def ldam_drw(reweight: bool = True) -> Recipe:
    """Deferred re-weighting as two stages with one momentum and one schedule."""
    drops = ((3, 0.1),)
    first = stage(loss=LDAM(), schedule=MultiStep(warmup=1, drops=drops))
    later = MultiStep(warmup=1, drops=drops, start=first.epochs)
    return recipe(
        first, stage("deferred", loss=LDAM(reweight=reweight), schedule=later, optimizer_state="kept")
    )


def total_steps(of: Recipe) -> int:
    return sum(each.epochs * STEPS for each in of.stages)


class Killed(BaseException):
    """Stands for a process that died: nothing catches it."""


@contextmanager
def interrupted(at: int, how: str) -> Iterator[None]:
    """Ends a run after its step number `at`, by the stop flag or as if it had died before saving anything."""
    real = Record.stepped

    def stepped(self: Record, *given: Any) -> None:
        if self.total + 1 == at:
            if how == "killed":
                raise Killed
            self.stop.number = 15
        real(self, *given)

    Record.stepped = stepped
    try:
        yield
    finally:
        Record.stepped = real


def contents(run: RunFolder | Path) -> dict[str, bytes]:
    """Every file of a run and of the checkpoints at its stages' ends, apart from clock times and lock."""
    folder = run if isinstance(run, RunFolder) else RunFolder(run)
    found = {p.name: p.read_bytes() for p in folder.path.iterdir() if p.is_file()}
    del found["timing.jsonl"], found["lock"]
    for end in stage_ends(folder.recipe(), folder.read("data.json")["train_images"]):
        step = folder.checkpoints / f"step-{end:08d}"
        found |= {f"{step.name}/{p.name}": p.read_bytes() for p in step.iterdir()}
    return found


def different(one: RunFolder | Path, other: RunFolder | Path) -> list[str]:
    """The names of the files that two runs do not share byte for byte."""
    a, b = contents(one), contents(other)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


EXPECTED = {
    "recipe.json",
    "env.json",
    "data.json",
    "manifest.json",
    "steps.jsonl",
    "evals.jsonl",
    "final.json",
    "model.safetensors",
    "model.json",
    "predictions.safetensors",
    "samples.safetensors",
    "MANIFEST.json",
}

__all__ = ["replace", "train"]

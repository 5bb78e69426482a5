"""Finished runs as teachers: their clean logits for the very images that the student sees (spec B4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from longtail.engine.distributed import World
from longtail.engine.evaluate import clean
from longtail.engine.load import Predictor, load
from longtail.errors import UsageError
from longtail.recipe import ManifoldMixup, Recipe

Teacher = Callable[[Tensor], Tensor]


def teachers(recipe: Recipe, names: Sequence[str], here: World) -> dict[str, Teacher]:
    """Every teacher that a stage names, by its folder: looked at before anything is trained."""
    found: dict[str, Teacher] = {}
    for stage in recipe.stages:
        if stage.teacher is None or stage.teacher in found:
            continue
        if isinstance(stage.mixing, ManifoldMixup):
            raise UsageError(
                f"stage {stage.name}: a teacher sees images, and manifold mixup mixes hidden maps; "
                "set stages.N.mixing to another kind"
            )
        found[stage.teacher] = _frozen(_fitting(stage.teacher, recipe, names, here))
    return found


def _fitting(run: str, recipe: Recipe, names: Sequence[str], here: World) -> Predictor:
    """The run's model, after its classes and its images were found to be the student's."""
    made = load(run, device=str(here.device))
    if made.names != tuple(names):
        raise UsageError(f"{run}: the teacher knows other classes than the data of this recipe")
    theirs, ours = made.images, recipe.images
    if (theirs.size, theirs.mean, theirs.std) != (ours.size, ours.mean, ours.std):
        raise UsageError(
            f"{run}: the teacher wants images of another size or normalisation than images.* says"
        )
    return made


def _frozen(made: Predictor) -> Teacher:
    def logits(images: Tensor) -> Tensor:
        with torch.no_grad():
            return clean(made.loss, made.model(images).scores)

    return logits

"""Heads with a memory: what one starts from when its stage begins, and which one a stage's steps write to."""

from __future__ import annotations

from torch import nn

from longtail import heads
from longtail.data.splits import Dataset
from longtail.engine import posthoc
from longtail.engine.distributed import World
from longtail.errors import UsageError
from longtail.recipe import Recipe, Remembered, Remembering, Stage


def require(here: World, recipe: Recipe) -> None:
    """Refuses at the start what could not be done later."""
    for stage in recipe.stages:
        if isinstance(stage.loss, Remembered) and here.size > 1:
            raise UsageError(
                f"stage {stage.name}: a memory of features lives in one process, and here are {here.size}; "
                "run it without torchrun"
            )


def begin(here: World, recipe: Recipe, stage: Stage, data: Dataset, model: nn.Module) -> None:
    """Centroids start at the class means of the un-augmented training images, a memory of features empty.

    To be called when a stage starts and not when it is resumed: a checkpoint holds both.
    """
    head = model.head
    if isinstance(head, heads.MetaEmbedding) and stage.head == "meta_embedding":
        here.share_buffers(model)
        head.fit(*posthoc.features_of(here, recipe, model, data.train))
    if isinstance(stage.loss, Remembered) and isinstance(recipe.model, Remembering):
        assert isinstance(head, heads.Remembering)
        head.begin(data.counts, recipe.model.power)


def of(model: nn.Module) -> heads.MetaEmbedding | heads.Remembering | None:
    """The head that answers a loss which asks for `distances` or `recalled`."""
    head = model.head
    return head if isinstance(head, heads.MetaEmbedding | heads.Remembering) else None

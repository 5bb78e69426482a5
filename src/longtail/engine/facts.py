"""What a run and its checkpoints say about themselves: plain numbers and names, no clock times."""

from __future__ import annotations

import shlex
from typing import Any

from longtail import counts as profiles
from longtail.data.splits import Dataset
from longtail.engine.distributed import World, chosen_device
from longtail.recipe import Recipe
from longtail.run.folder import RunFolder


def identity(here: World, folder: RunFolder, data: Dataset) -> dict[str, Any]:
    """What a checkpoint must agree with before it is used. The recipe is taken as the folder has it.

    A newer version reads an old recipe with its new fields at their defaults, which is another text.
    """
    return {
        "recipe": folder.digest(),
        "data": data.digest,
        "names": list(data.names),
        "world_size": here.size,
    }


def about_data(recipe: Recipe, data: Dataset) -> dict[str, Any]:
    """data.json: what reports and predictions need to know of data that they do not have."""
    return {
        "names": list(data.names),
        "counts": data.counts.tolist(),
        "nominal_ratio": data.nominal_ratio,
        "ratio": profiles.ratio(data.counts),
        "digest": data.digest,
        "train_images": len(data.train.targets),
        "test_images": len(data.test.targets),
        "notes": list(data.notes),
        "mean": list(recipe.images.mean),
        "std": list(recipe.images.std),
        "size": recipe.images.size,
    }


def stage_ends(recipe: Recipe, images: int) -> list[int]:
    """The number of steps of the run after each stage, for `images` training images."""
    ends, total = list[int](), 0
    for stage in recipe.stages:
        total += -(-images // stage.batch_size) * stage.epochs
        ends.append(total)
    return ends


def command(here: World, folder: RunFolder) -> str:
    """What to type, in this folder and on this machine, for a stopped run to go on."""
    path = str(folder.path)
    words = [*here.program, "train", f"{path}/recipe.json", "--out", path]
    if here.size == 1 and here.device != chosen_device():
        words += ["--device", str(here.device)]
    return shlex.join(words)

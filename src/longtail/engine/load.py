"""A finished run as a module, and its evaluation again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from longtail import build
from longtail.engine import environment, trainable
from longtail.engine.distributed import World, chosen_device
from longtail.engine.evaluate import clean, evaluate, exact
from longtail.engine.feed import evaluation_batches
from longtail.errors import ModelFileError
from longtail.keys import Key
from longtail.recipe import Recipe
from longtail.run.folder import RunFolder


class Predictor(nn.Module):
    """Images in [0, 1], `[B, 3, H, W]`, to clean logits `[B, C]`: normalisation, model and scale in one."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, loss: nn.Module, recipe: Recipe, names: tuple[str, ...]):
        super().__init__()
        self.model, self.loss, self.names, self.images = model, loss, names, recipe.images
        self.register_buffer("mean", torch.tensor(recipe.images.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(recipe.images.std).view(1, 3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return clean(self.loss, self.model((images - self.mean) / self.std).scores)


def load(run: str | Path, *, device: str | None = None) -> Predictor:
    """The final model of a run, in eval mode. Verified before use."""
    folder = RunFolder.open(Path(run))
    recipe, facts = folder.recipe(), folder.read("data.json")
    model, loss = restored(folder, recipe, facts)
    predictor = Predictor(model, loss, recipe, tuple(facts["names"]))
    return predictor.to(chosen_device(device)).eval()


def restored(folder: RunFolder, recipe: Recipe, facts: dict[str, Any]) -> tuple[nn.Module, nn.Module]:
    """(model with its final weights, the last stage's loss). Class list and keys must match exactly."""
    if folder.is_finished and not (folder.path / "model.safetensors").exists():
        raise ModelFileError(
            f"{folder.path}: this run was kept without its model, its numbers are in final.json; train it "
            f"again: longtail train {folder.path}/recipe.json --out NEW"
        )
    about = folder.read("model.json")
    if about["names"] != facts["names"] or about["recipe"] != folder.digest():
        raise ModelFileError(
            f"{folder.path}: model.json names other classes or another recipe than data.json and "
            "recipe.json; restore the folder from a copy, or train again"
        )
    # The run holds all its weights: a file that it began from may be gone by now.
    bare = replace(recipe.model, backbone=replace(recipe.model.backbone, weights=None))
    model = build.model(bare, len(facts["names"]), Key(recipe.seed).fold("model"))
    for stage in recipe.stages:
        trainable.reshape_head(model, stage, Key(recipe.seed).fold(stage.name))
    tensors = folder.read_tensors("model.safetensors")
    wrong = set(model.state_dict()) ^ set(tensors)
    if wrong:
        raise ModelFileError(
            f"{folder.path}/model.safetensors does not fit the recipe's model; first differences: "
            f"{sorted(wrong)[:5]}; restore the folder from a copy, or train again"
        )
    model.load_state_dict(tensors)
    return model, build.loss(recipe.stages[-1].loss, torch.tensor(facts["counts"]))


def evaluate_run(run: str | Path, *, split: str | None = None, device: str | None = None) -> dict[str, Any]:
    """The measures of the final model, computed anew from its data. `split` is "test" or "held_out"."""
    folder = RunFolder.open(Path(run))
    recipe, facts = folder.recipe(), folder.read("data.json")
    if split is not None:
        recipe = replace(recipe, evaluation=replace(recipe.evaluation, split=split))
    here = World(chosen_device(device))
    data = build.dataset(recipe.data)
    if list(data.names) != facts["names"] or data.digest != facts["digest"]:
        raise ModelFileError(
            f"{folder.path}: the data found now is not the data of this run (digest "
            f"{data.digest[:12]} instead of {facts['digest'][:12]}); point data.root at its images"
        )
    with environment.steady(here):
        model, loss = restored(folder, recipe, facts)
        environment.placed(model, recipe, here)
        batches = evaluation_batches(here, recipe, data)
        return evaluate(here, exact(recipe), model, loss.to(here.device), batches, data.counts)


def training_recall(run: str | Path, *, device: str | None = None) -> list[float]:
    """Per class, percent of its (un-augmented) training images that the final model gets right."""
    folder = RunFolder.open(Path(run))
    recipe, facts = folder.recipe(), folder.read("data.json")
    here = World(chosen_device(device))
    data = build.dataset(recipe.data)
    with environment.steady(here):
        model, loss = restored(folder, recipe, facts)
        environment.placed(model, recipe, here)
        batches = build.batches(recipe.images, data.train, here.device, channels_last=recipe.channels_last)
        row = evaluate(here, recipe, model, loss.to(here.device), batches, data.counts)
    return [100.0 * hits / max(1, total) for hits, total in zip(row["hits"], row["totals"], strict=True)]

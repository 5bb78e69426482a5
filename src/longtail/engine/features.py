"""What the backbone makes of every image: written once, read by the figures (features.safetensors).

With the data at hand, the sample images of a run that came without them (samples.safetensors) are made too.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from longtail import build
from longtail.data.splits import Split
from longtail.engine import environment
from longtail.engine.distributed import World, chosen_device
from longtail.engine.evaluate import clean
from longtail.engine.finish import SAMPLES, samples
from longtail.engine.load import restored
from longtail.recipe import Recipe
from longtail.run.folder import RunFolder


def features(run: str | Path, *, device: str | None = None) -> Path:
    """Writes features, clean logits and labels of train (un-augmented) and test; returns the file's path."""
    folder = RunFolder.open(Path(run))
    recipe, facts = folder.recipe(), folder.read("data.json")
    here = World(chosen_device(device))
    data = build.dataset(recipe.data)
    tensors: dict[str, Tensor] = {}
    with environment.steady(here):
        model, loss = restored(folder, recipe, facts)
        environment.placed(model, recipe, here).eval()
        for name, split in (("train", data.train), ("test", data.test)):
            seen, scores = _all(here, recipe, model, loss, split)
            tensors |= {f"{name}_features": seen, f"{name}_scores": scores, f"{name}_labels": split.targets}
    folder.write_tensors("features.safetensors", tensors)
    # Of other data the places of the images would be wrong: a page would name them after other labels.
    if data.digest == facts["digest"] and not (folder.path / SAMPLES).exists():
        folder.write_tensors(SAMPLES, samples(recipe, data))
    return folder.path / "features.safetensors"


@torch.no_grad()
def _all(
    here: World, recipe: Recipe, model: nn.Module, loss: nn.Module, split: Split
) -> tuple[Tensor, Tensor]:
    batches = build.batches(recipe.images, split, here.device, channels_last=recipe.channels_last)
    seen, scores = [], []
    for batch in batches.plain(recipe.evaluation.batch_size):
        output = model(batch.images)
        features_of_all = output.features.flatten(1)  # several experts side by side
        seen.append(features_of_all.half().cpu())
        scores.append(clean(loss, output.scores).half().cpu())
    return torch.cat(seen), torch.cat(scores)

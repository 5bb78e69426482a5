"""The end of a run: the final model, its predictions, thumbnails for reports, final.json; then the seal."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor, nn

from longtail import build
from longtail.data.batches import Resident
from longtail.data.images import resident
from longtail.data.splits import Dataset, Split
from longtail.data.streaming import Streamed
from longtail.engine.distributed import World
from longtail.engine.evaluate import exact, logits
from longtail.engine.record import Record
from longtail.engine.signals import Interrupted
from longtail.keys import Key
from longtail.recipe import Recipe
from longtail.run.folder import RunFolder

SAMPLES = "samples.safetensors"
THUMBNAILS = 200
THUMBNAIL_SIDE = 64


def finish(  # noqa: PLR0913  (see fit)
    here: World,
    recipe: Recipe,
    data: Dataset,
    model: nn.Module,
    record: Record,
    images: Resident | Streamed,
) -> None:
    """Writes what reports read. One process does it, with the whole split; the others wait."""
    with here.together():
        if here.is_main:
            try:
                _write(World(here.device, stop=here.stop), recipe, data, model, record, images)
            except Interrupted:
                raise record.stopped() from None


def _write(  # noqa: PLR0913  (see fit)
    alone: World,
    recipe: Recipe,
    data: Dataset,
    model: nn.Module,
    record: Record,
    images: Resident | Streamed,
) -> None:
    folder, stage = record.folder, recipe.stages[-1]
    folder.write_tensors("model.safetensors", {n: t.contiguous() for n, t in model.state_dict().items()})
    folder.write("model.json", {"names": list(data.names), "recipe": folder.digest(), "stage": stage.name})
    loss = build.loss(stage.loss, data.counts).to(alone.device)
    scores = [s.cpu() for s, _ in logits(alone, exact(recipe), model, loss, images)]
    folder.write_tensors(
        "predictions.safetensors",
        {"logits": halved(torch.cat(scores)), "labels": evaluated(recipe, data).targets},
    )
    folder.write_tensors(SAMPLES, samples(recipe, data))
    folder.write("final.json", summary(folder, recipe, record))
    folder.seal()


def halved(scores: Tensor) -> Tensor:
    """float16, and what is too large for it at its end: an infinity would be no file of a run."""
    largest = torch.finfo(torch.float16).max
    return scores.clamp(-largest, largest).half()


def evaluated(recipe: Recipe, data: Dataset) -> Split:
    return data.held_out if recipe.evaluation.split == "held_out" and data.held_out else data.test


def samples(recipe: Recipe, data: Dataset) -> dict[str, Tensor]:
    """Thumbnails of a run: the same ones whenever they are made."""
    return thumbnails(evaluated(recipe, data), Key(recipe.seed).fold("thumbnails"))


def thumbnails(split: Split, key: Key) -> dict[str, Tensor]:
    """Up to 200 test images, as evenly over the classes as they go, for reports that never see the data."""
    order = key.numpy().permutation(len(split))
    rank_in_class = torch.zeros(len(split), dtype=torch.int64)
    seen: dict[int, int] = {}
    for index in order.tolist():
        label = int(split.targets[index])
        rank_in_class[index] = seen.setdefault(label, 0)
        seen[label] += 1
    chosen = sorted(order.tolist(), key=lambda i: int(rank_in_class[i]))[:THUMBNAILS]
    index = torch.tensor(sorted(chosen), dtype=torch.int64)
    few = split.select(index)
    if not few.is_resident:
        few = resident(few, THUMBNAIL_SIDE)
    assert isinstance(few.images, Tensor)
    return {"images": few.images.contiguous(), "index": index}


def summary(folder: RunFolder, recipe: Recipe, record: Record) -> dict[str, Any]:
    """final.json. The headline is the last epoch; `best` is marked with the split that it was chosen on."""
    lines = (folder.path / "evals.jsonl").read_text().splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    stages = [[row for row in rows if row["stage"] == number][-1] for number in range(len(recipe.stages))]
    last_stage = [row for row in rows if row["stage"] == len(recipe.stages) - 1]
    return {
        "last": stages[-1],
        "best": max(last_stage, key=lambda row: row["top1"]) | {"selected_on": recipe.evaluation.split},
        "stages": stages,
        "images_seen": record.images_seen,
        "steps": record.total,
        "parameters": sum(p.numel() for p in record.model.parameters()),
    }

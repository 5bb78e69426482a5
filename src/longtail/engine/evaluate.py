"""Clean test-time logits over a split, and what they are worth. No noise, no margin (spec A12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from longtail.data.batches import Resident
from longtail.data.streaming import Streamed
from longtail.engine import frozen
from longtail.engine.distributed import World
from longtail.metrics import Meter
from longtail.models import Output, Routed, experts_asked
from longtail.recipe import Recipe

Measures = dict[str, Any]


@torch.no_grad()
def logits(
    here: World, recipe: Recipe, model: nn.Module, loss: nn.Module, batches: Resident | Streamed
) -> Iterator[tuple[Tensor, Tensor]]:
    """(clean logits in float32, targets), batch by batch, of this process's part of the split."""
    for output, target in outputs(here, recipe, model, batches):
        yield clean(loss, output.scores), target


@torch.no_grad()
def outputs(
    here: World, recipe: Recipe, model: nn.Module, batches: Resident | Streamed
) -> Iterator[tuple[Output, Tensor]]:
    """(what the model says at test time, targets), batch by batch, of this process's part of the split."""
    model = frozen.still(model.eval(), dtype=frozen.precision(recipe))
    precision = torch.bfloat16 if recipe.precision == "bf16" else None
    parts = batches.plain(recipe.evaluation.batch_size, rank=here.rank, world_size=here.size)
    for batch in here.heeding(parts):
        with torch.autocast(here.device.type, dtype=precision, enabled=precision is not None):
            output = model(batch.images)
        yield output, batch.target


def exact(recipe: Recipe) -> Recipe:
    """The same recipe in float32: the last evaluation of a stage, so that other machines find its number."""
    return replace(recipe, precision="fp32")


def clean(loss: nn.Module, scores: Tensor) -> Tensor:
    """What a prediction is made from: the loss's test-time logits, in float32."""
    return cast(Callable[[Tensor], Tensor], loss.logits)(scores).float()


def evaluate(  # noqa: PLR0913  (each is a different thing, and none of them has a default)
    here: World,
    recipe: Recipe,
    model: nn.Module,
    loss: nn.Module,
    batches: Resident | Streamed,
    counts: Tensor,
) -> Measures:
    """One row of measures, the same on every process; of routers too, how many experts an image gets."""
    here.share_buffers(model)
    meter = Meter(counts, shot_rule=recipe.evaluation.shot_rule)
    meter.to(here.device)
    asked = torch.zeros((), device=here.device, dtype=torch.long)
    for output, target in outputs(here, recipe, model, batches):
        meter.update(clean(loss, output.scores), target)
        if output.routes is not None:
            asked += experts_asked(output.routes).sum()
    here.total([*meter.tensors().values(), asked])
    row = meter.compute()
    if not isinstance(model.head, Routed):
        return row
    return row | {"experts_asked": int(asked) / sum(row["totals"])}

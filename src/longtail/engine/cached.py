"""Stage 2 without a backbone: some augmented views of each image go through it once, and their features stay.

The views are drawn from the stage's key, so a resumed run makes the same ones again; none are checkpointed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longtail.data.batches import Batch, Resident, bounds
from longtail.data.streaming import Streamed
from longtail.engine import frozen
from longtail.engine.distributed import World
from longtail.keys import Key
from longtail.recipe import Recipe


class Views:
    """Features `[V, N, ...]` of V views of N images. A batch takes one view of each of its images.

    Example:
        >>> views = Views(torch.arange(6.0).view(2, 3, 1), torch.tensor([0, 1, 2]))
        >>> order = torch.tensor([2, 0, 1])
        >>> [batch.target.tolist() for batch in views.epoch(order, key=Key(0), batch_size=2)]
        [[2, 0], [1]]
    """

    def __init__(self, features: Tensor, targets: Tensor):
        self.features, self.targets = features, targets

    def epoch(
        self, order: Tensor, *, key: Key, batch_size: int, start: int = 0, rank: int = 0, world_size: int = 1
    ) -> Iterator[Batch]:
        """Batches of `order` as those of images are (data/batches.py); `images` are features here."""
        chosen = key.fold("view").numpy().integers(len(self.features), size=len(order))
        view = torch.from_numpy(chosen).to(self.features.device)
        order = order.to(self.features.device)
        for part in bounds(len(order), batch_size, rank, world_size, start):
            index = order[part]
            yield Batch(self.features[view[part], index], self.targets[index], index)


@torch.no_grad()
def views(  # noqa: PLR0913  (each is a different thing)
    here: World, recipe: Recipe, number: int, images: Resident | Streamed, model: nn.Module, key: Key
) -> Views:
    """Every process makes all of them: what a view shows must not depend on how many processes there are."""
    device, dtype = next(model.parameters()).device, frozen.precision(recipe)
    backbone = frozen.still(model, dtype=dtype).backbone
    assert isinstance(backbone, nn.Module)
    everything = torch.arange(len(images.targets))
    made: list[Tensor] = []
    backbone.eval()  # a folded copy, or the frozen backbone itself, which trains in no mode but this one
    for view in range(number):
        seen: list[Tensor] = []
        stream = images.epoch(everything, key=key.fold(view), batch_size=recipe.evaluation.batch_size)
        for batch in here.heeding(stream):
            with torch.autocast(device.type, dtype=dtype, enabled=dtype == torch.bfloat16):
                seen.append(backbone(batch.images).float())
        made.append(torch.cat(seen))
    return Views(torch.stack(made), images.targets.to(device))

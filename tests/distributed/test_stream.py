"""The images of every global batch are the same for any number of processes."""

from __future__ import annotations

import pytest
import torch

from longtail import build
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.keys import Key
from longtail.recipe import Sampling

ALONE = World(torch.device("cpu"))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("rule", ["instance", "class_balanced"])
def test_every_number_of_processes_sees_the_same_global_batches(worker, size, rule):
    """Image and augmented pixels; 331 images in batches of 36 leave 7: not a multiple of 4, nor of 2."""
    recipe = worker.tiny.recipe(worker.tiny.stage(batch_size=36, sampling=Sampling(rule=rule)))
    data, stage, key = build.dataset(recipe.data), recipe.stages[0], Key(9).fold("representation")

    def batches(here: World):
        feed = Feed(here, recipe, data)
        return [list(feed.epoch(stage, key, epoch, start)) for epoch, start in ((0, 0), (1, 3))]

    one = batches(ALONE)
    ranks = [batches(World(torch.device("cpu"), rank, size)) for rank in range(size)]
    for epoch, steps in enumerate(one):
        for number, (step, _, batch, share) in enumerate(steps):
            parts = [rank[epoch][number] for rank in ranks]
            assert {part[0] for part in parts} == {step} and share == 1.0
            assert sum(part[3] for part in parts) == pytest.approx(size)  # each image weighs one
            positions, images = torch.empty_like(batch.positions), torch.empty_like(batch.images)
            for rank, part in enumerate(parts):
                positions[rank::size], images[rank::size] = part[2].positions, part[2].images
            assert torch.equal(positions, batch.positions)
            assert torch.equal(images, batch.images)

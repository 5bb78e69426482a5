"""What one step prepares before it touches a batch."""

from __future__ import annotations

import torch

from longtail import build
from longtail.engine import trainable
from longtail.engine.distributed import World
from longtail.engine.step import Step
from longtail.keys import Key
from longtail.losses import CrossEntropy

CPU = torch.device("cpu")


def test_every_process_draws_noise_of_its_own_and_the_same_again(tiny):
    recipe = tiny.recipe()
    stage, model = recipe.stages[0], build.model(recipe.model, 10, Key(0))
    optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), CPU)
    steps = [Step(World(CPU, rank, 2), recipe, stage, model, CrossEntropy(), optimizer) for rank in range(2)]

    def seeds(key):
        for step in steps:
            step.prepare(0.1, key)
        return [step.noise.initial_seed() for step in steps]

    first, later = Key(3).fold("noise", 7), Key(3).fold("noise", 8)
    found = seeds(first)
    assert len({*found, *seeds(later)}) == 4
    assert seeds(first) == found

"""What a stage eats: the epoch's order, its batches, how they are mixed. All of it derived, none stored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import torch
from torch import Tensor, nn

from longtail.build.training import batches
from longtail.data import mixing, sampling
from longtail.data.batches import Batch, Resident
from longtail.data.mixing import Mixture
from longtail.data.splits import Dataset
from longtail.data.streaming import Streamed
from longtail.engine import schedule
from longtail.engine.cached import Views, views
from longtail.engine.distributed import World
from longtail.errors import UsageError
from longtail.keys import Key
from longtail.losses import Mixed
from longtail.recipe import Contrasted, ManifoldMixup, Recipe, Remix, Sampling, Stage, TwoBranch

# Models called with (images, second, weight) where a stage names two samplings.
TAKE_PAIRS = (TwoBranch, Contrasted)


class Feed:
    """Training batches for any stage and epoch, from any step on; evaluation batches in file order."""

    def __init__(self, world: World, recipe: Recipe, data: Dataset):
        self.world, self.recipe, self.data = world, recipe, data
        self.train = batches(recipe.images, data.train, world.device, channels_last=recipe.channels_last)
        self.evaluation = evaluation_batches(world, recipe, data)
        self.counts = data.counts.to(world.device)
        self.views: Views | None = None

    def entered(self, stage: Stage, model: nn.Module, key: Key) -> None:
        """A stage begins, or goes on: where it trains on cached features, they are made here."""
        self.views = None
        if stage.cached is not None:
            self.views = views(
                self.world, self.recipe, stage.cached.views, self.train, model, key.fold("cached")
            )

    def steps(self, stage: Stage) -> int:
        if stage.batch_size % self.world.size:
            raise UsageError(
                f"stage {stage.name}: batch_size {stage.batch_size} is not divisible by "
                f"{self.world.size} processes; choose another"
            )
        self._check_pairs(stage)
        return -(-len(self.data.train.targets) // stage.batch_size)

    def epoch(
        self, stage: Stage, key: Key, epoch: int, start: int
    ) -> Iterator[tuple[int, Mixture, Batch, float]]:
        """(step of the stage, what goes into the model, the raw batch, this process's share of the mean)."""
        first = self._compared(stage, key.fold("first"), epoch, start)
        second: Iterator[Batch | None] = repeat(None)
        if stage.paired is not None:
            second = self._stream(stage, stage.paired, key.fold("second"), epoch, start)
        weight = torch.tensor(schedule.first_weight(epoch, stage.epochs), device=self.world.device)
        total, steps = len(self.data.train.targets), self.steps(stage)
        plan = self._plan(stage, key.fold("mixing", epoch), steps)
        for number, (batch, other) in enumerate(zip(first, second), start):
            size = min(stage.batch_size, total - number * stage.batch_size)
            share = len(batch.target) * self.world.size / (size * stage.views)
            mixture = self._mix(stage, plan, batch, number) if other is None else pair(batch, other, weight)
            yield epoch * steps + number, mixture, batch, share

    def _check_pairs(self, stage: Stage) -> None:
        takes_pairs = isinstance(self.recipe.model, TAKE_PAIRS)
        if stage.paired is not None and (stage.mixing is not None or not takes_pairs):
            raise UsageError(
                f"stage {stage.name}: paired needs a model of two branches and no mixing; "
                "set stages.N.paired or stages.N.mixing to null"
            )
        if stage.views > 1 and stage.mixing is not None:
            raise UsageError(
                f"stage {stage.name}: views of an image are compared, not mixed; "
                "set stages.N.views to 1 or stages.N.mixing to null"
            )
        if takes_pairs and isinstance(stage.mixing, ManifoldMixup):
            raise UsageError(f"stage {stage.name}: manifold mixup needs a model of one branch; use mixup")

    def order(self, rule: Sampling, key: Key, epoch: int, epochs: int) -> Tensor:
        return sampling.indices(
            self.data.train.targets,
            rule.rule,
            seed=key.fold("order").integer(),
            epoch=epoch,
            epochs=epochs,
            classes=len(self.data.names),
            power=rule.power,
            beta=rule.beta,
        )

    def _compared(self, stage: Stage, key: Key, epoch: int, start: int) -> Iterator[Batch]:
        """The first stream; of several views of its images each has draws of its own, in one batch."""
        views = [self._stream(stage, stage.sampling, key, epoch, start, view) for view in range(stage.views)]
        return views[0] if len(views) == 1 else map(together, zip(*views, strict=True))

    def _stream(  # noqa: PLR0913  (where in the run)
        self, stage: Stage, rule: Sampling, key: Key, epoch: int, start: int, view: int = 0
    ) -> Iterator[Batch]:
        augment = key.fold("view", view) if view else key
        source = self.train if self.views is None else self.views
        return source.epoch(
            self.order(rule, key, epoch, stage.epochs),
            key=augment.fold("augment", epoch),
            batch_size=stage.batch_size,
            start=start,
            rank=self.world.rank,
            world_size=self.world.size,
        )

    def _plan(self, stage: Stage, key: Key, steps: int) -> mixing.MixPlan | None:
        if stage.mixing is None:
            return None
        return mixing.plan(
            stage.mixing.kind,
            stage.mixing.alpha,
            key=key,
            steps=steps,
            batch_size=stage.batch_size // self.world.size,
            rank=self.world.rank,
            device=self.world.device,
        )

    def _mix(self, stage: Stage, plan: mixing.MixPlan | None, batch: Batch, step: int) -> Mixture:
        if plan is None:
            return Mixture(batch.images, batch.target)
        if isinstance(stage.mixing, Remix):
            rule = stage.mixing
            return mixing.mix(
                batch.images, batch.target, plan, step, counts=self.counts, kappa=rule.kappa, tau=rule.tau
            )
        return mixing.mix(batch.images, batch.target, plan, step)


def together(views: tuple[Batch, ...]) -> Batch:
    """One batch of all the views, one view after the other."""
    return Batch(*(torch.cat(parts) for parts in zip(*views, strict=True)))


def pair(first: Batch, second: Batch, weight: Tensor) -> Mixture:
    """Two batches as one step's input: the loss of a `Mixed` weighs the first's classes with `weight`."""
    return Mixture(first.images, Mixed(first.target, second.target, weight), second=second.images)


def evaluation_batches(world: World, recipe: Recipe, data: Dataset) -> Resident | Streamed:
    """The split that this recipe is evaluated on: test, or the held-out images while something is chosen."""
    held_out = recipe.evaluation.split == "held_out"
    if held_out and data.held_out is None:
        raise UsageError(
            "evaluation.split=held_out, but this data has no held-out images; "
            'set data.held_out, for example --set \'data.held_out={"source":"stratified"}\''
        )
    split = data.held_out if held_out and data.held_out is not None else data.test
    return batches(recipe.images, split, world.device, channels_last=recipe.channels_last)

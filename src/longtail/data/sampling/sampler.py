"""The thin torch Sampler around `indices`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TypedDict

import torch
from torch.utils import data

from longtail.data.sampling.chances import Rule
from longtail.data.sampling.order import Targets, indices, labels_of, whole
from longtail.data.sampling.ranks import Remainder, share


class State(TypedDict):
    """Where a sampler stands: plain numbers, fit for JSON."""

    rule: str
    seed: int
    draws: int
    epoch: int
    position: int
    checksum: int  # of the order of the epoch: whatever it depends on must not have changed


class Sampler(data.Sampler[int]):
    """Feeds a DataLoader the order of `indices`, the part of one rank, from any point of an epoch on.

    Call `set_epoch` before each epoch, as with torch's DistributedSampler: it selects the order, and an epoch
    that is not announced repeats the previous order. Under several processes pass `rank` and `world_size`,
    and give the DataLoader the batch size of one process: batch t of all ranks together is then
    `order[t * B : (t + 1) * B]`. See `share` for the last images of an epoch.

    Example:
        >>> sampler = Sampler([0] * 90 + [1] * 10, "class_balanced", seed=1)
        >>> loader = data.DataLoader(torch.arange(100), batch_size=20, sampler=sampler)
        >>> for epoch in range(2):
        ...     sampler.set_epoch(epoch)
        ...     batches = [batch.shape for batch in loader]
        >>> len(batches)
        5
    """

    def __init__(  # noqa: PLR0913
        self,
        targets: Targets,
        rule: Rule = "instance",
        *,
        seed: int = 0,
        epochs: int = 1,
        classes: int | None = None,
        power: float = 0.5,
        beta: float = 0.9999,
        draws: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        remainder: Remainder = "drop",
    ):
        self.targets = labels_of(targets)
        self.rule: Rule = rule
        self.seed, self.epochs, self.classes = whole("seed", seed), epochs, classes
        self.power, self.beta = power, beta
        self.draws = len(self.targets) if draws is None else whole("draws", draws)
        self.rank, self.world_size = rank, world_size
        self.remainder: Remainder = remainder
        self.epoch = 0
        self._start = 0  # where in the global order the current pass began
        self._given = 0  # how many indices this rank has handed out since
        self._finished = False
        self._share(torch.empty(0))  # a wrong rank is an error now, not later
        self.order()  # and so are wrong targets

    def order(self) -> torch.Tensor:
        """The global order of the current epoch, the same on every rank."""
        return indices(
            self.targets,
            self.rule,
            seed=self.seed,
            epoch=self.epoch,
            classes=self.classes,
            power=self.power,
            beta=self.beta,
            epochs=self.epochs,
            draws=self.draws,
        )

    def set_epoch(self, epoch: int) -> None:
        """Select the order of `epoch`. Naming the current epoch again keeps the point of a resumed pass."""
        epoch = whole("epoch", epoch)
        if epoch != self.epoch:
            self.epoch, self._start, self._given, self._finished = epoch, 0, 0, False

    def __iter__(self) -> Iterator[int]:
        if self._finished:
            self._start, self._finished = 0, False
        self._given = 0
        rest = self.order()[self._start :]
        for index in self._share(rest).tolist():
            self._given += 1
            yield index
        self._finished = True

    def __len__(self) -> int:
        start = 0 if self._finished else self._start
        return len(self._share(torch.empty(self.draws - start)))

    def _share(self, order: torch.Tensor) -> torch.Tensor:
        return share(order, rank=self.rank, world_size=self.world_size, remainder=self.remainder)

    def state_dict(self, given: int | None = None) -> State:
        """Where the epoch stands, to continue in the middle of it, with any number of processes.

        `given` is how many indices of this rank the loop has used since the pass began, that is batches
        times batch size. Without it the indices handed out so far count: right for a DataLoader without
        workers, too many for one whose workers read ahead.
        """
        used = self._given if given is None else given
        position = min(self._start + used * self.world_size, self.draws)
        return self._state(position)

    def _state(self, position: int) -> State:
        return State(
            rule=self.rule,
            seed=self.seed,
            draws=self.draws,
            epoch=self.epoch,
            position=position,
            checksum=zlib.crc32(self.order().numpy().tobytes()),
        )

    def load_state_dict(self, state: State) -> None:
        """Continue where `state` was taken: the next pass gives the rest of that epoch."""
        if missing := sorted(State.__annotations__.keys() - state.keys()):
            raise ValueError(f"this is no state of a sampler: it has no {', '.join(missing)}")
        epoch, position = whole("epoch", state["epoch"]), whole("position", state["position"])
        if not 0 <= position <= self.draws:
            raise ValueError(f"a position lies in 0..{self.draws}, not {position}")
        before, self.epoch = self.epoch, epoch
        here = self._state(position)
        if state != here:
            self.epoch = before
            raise ValueError(f"this state belongs to another sampler or other targets: {state} is not {here}")
        self._start, self._given, self._finished = position, 0, False

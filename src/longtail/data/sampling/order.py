"""Targets and a rule to the order of one epoch: vectorised, and a pure function of (seed, rule, epoch).

All sorting is of distinct integers (group, random bits, position), so the result does not depend on the
sorting algorithm, the platform or the version of numpy.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.data.sampling.chances import Rule, probabilities
from longtail.keys import Key, uniforms

Integers = NDArray[np.int64]
Targets = Tensor | NDArray[np.integer] | Sequence[int]

LARGEST_LABEL = 2**24  # tables have a place for every class up to the largest label
PER_CLASS = 4  # consecutive images of a class in the class-aware cycle


def indices(  # noqa: PLR0913
    targets: Targets,
    rule: Rule,
    *,
    seed: int,
    epoch: int,
    classes: int | None = None,
    power: float = 0.5,
    beta: float = 0.9999,
    epochs: int = 1,
    draws: int | None = None,
) -> Tensor:
    """Positions in `targets` in the order in which epoch `epoch` shows them: int64 `[draws]`.

    `draws` is the number of targets unless given, whatever the rule. Each rule, seed and epoch has an order
    of its own. A class-aware order consists of cycles: draws 4KC to 4(K+1)C hold each of the C classes that
    have images exactly four times, the classes in a new order in every cycle.

    Example:
        >>> targets = [0, 0, 0, 0, 0, 0, 1, 1]
        >>> order = indices(targets, "class_aware", seed=0, epoch=0)
        >>> sorted(targets[i] for i in order)
        [0, 0, 0, 0, 1, 1, 1, 1]
    """
    labels = labels_of(targets)
    members = _Members(labels, classes)
    total = len(labels) if draws is None else whole("draws", draws)
    if total < 0:
        raise ValueError(f"draws must not be negative, it is {total}")
    key = Key(whole("seed", seed)).fold("order", rule, whole("epoch", epoch))
    if rule == "instance":
        passes = np.repeat(np.arange(-(-total // len(labels))), len(labels))
        return torch.from_numpy(_grouped_shuffle(key, passes)[:total] % len(labels))
    chances = probabilities(members.sizes, rule, power=power, beta=beta, epoch=epoch, epochs=epochs)
    if rule == "class_aware":
        drawn = _class_cycles(key.fold("classes"), members.sizes, total)
        return torch.from_numpy(members.next_images(key.fold("images"), drawn))
    drawn = _draw_classes(key.fold("classes"), chances.numpy(), total)
    if rule == "progressive":
        return torch.from_numpy(members.next_images(key.fold("images"), drawn))
    return torch.from_numpy(members.any_images(key.fold("images"), drawn))


class _Members:
    """The positions of each class, one class after the other."""

    def __init__(self, labels: Integers, classes: int | None):
        self.sizes: Integers = np.bincount(labels, minlength=classes or 0)
        if classes is not None and len(self.sizes) > classes:
            raise ValueError(f"targets must lie in 0..{classes - 1}, but {int(labels.max())} occurs")
        self.starts: Integers = np.cumsum(self.sizes) - self.sizes
        self.positions = _grouped(labels)

    def any_images(self, key: Key, drawn: Integers) -> Integers:
        """One image of each drawn class, with replacement."""
        sizes = self.sizes[drawn]
        chosen = (uniforms(key, np.arange(len(drawn)), 1)[:, 0] * sizes).astype(np.int64)
        return self.positions[self.starts[drawn] + np.minimum(chosen, sizes - 1)]

    def next_images(self, key: Key, drawn: Integers) -> Integers:
        """The next image of each drawn class; a class that runs out is shuffled anew."""
        wanted = np.bincount(drawn, minlength=len(self.sizes))
        rounds = -(-wanted // np.maximum(self.sizes, 1))
        lengths = rounds * self.sizes
        offsets = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(self.sizes)), lengths)
        within = np.arange(len(owner)) - offsets[owner]
        turn = (np.cumsum(rounds) - rounds)[owner] + within // self.sizes[owner]
        image = self.positions[self.starts[owner] + within % self.sizes[owner]]
        cycles = image[_grouped_shuffle(key, turn)]  # each class's rounds, one after the other
        taken = np.arange(len(drawn)) + np.repeat(offsets - (np.cumsum(wanted) - wanted), wanted)
        order = np.empty(len(drawn), dtype=np.int64)
        order[_grouped(drawn)] = cycles[taken]
        return order


def _class_cycles(key: Key, sizes: Integers, total: int) -> Integers:
    """The class of each draw: cycles over all classes in a new random order, four draws from each."""
    present = np.flatnonzero(sizes)
    cycles = -(-total // (PER_CLASS * len(present)))
    shuffled = _grouped_shuffle(key, np.repeat(np.arange(cycles), len(present))) % len(present)
    return np.repeat(present[shuffled], PER_CLASS)[:total]


def _draw_classes(key: Key, chances: NDArray[np.float64], total: int) -> Integers:
    edges = np.cumsum(chances)
    edges /= edges[-1]  # exactly 1 from the last class with a chance on, so no draw falls behind it
    return np.searchsorted(edges, uniforms(key, np.arange(total), 1)[:, 0], side="right")


def _grouped_shuffle(key: Key, groups: Integers) -> Integers:
    """Positions sorted by group (0, 1, ...), in random order within each."""
    if not len(groups):
        return np.zeros(0, dtype=np.int64)
    position_bits = int(len(groups)).bit_length()
    random_bits = 63 - position_bits - int(groups.max()).bit_length()
    random = (uniforms(key, np.arange(len(groups)), 1)[:, 0] * 2.0**random_bits).astype(np.int64)
    return _positions((groups << random_bits) + random, position_bits)


def _grouped(groups: Integers) -> Integers:
    """Positions sorted by group, in their own order within each: a stable argsort."""
    return _positions(groups, int(len(groups)).bit_length())


def _positions(keys: Integers, position_bits: int) -> Integers:
    packed = np.sort((keys << position_bits) + np.arange(len(keys)))
    return packed & ((1 << position_bits) - 1)


def whole(name: str, value: SupportsIndex) -> int:
    """A plain int: as text in a key, 1.0 and True would give another order than 1."""
    try:
        return int(operator.index(value))
    except TypeError as error:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from error


def labels_of(targets: Targets) -> Integers:
    """Targets of any kind as int64 on the CPU, checked."""
    array = targets.cpu().numpy() if isinstance(targets, Tensor) else np.asarray(targets)
    if array.ndim != 1 or not len(array) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"targets must be a list of class indices, not {array.dtype} of shape {array.shape}")
    if array.min() < 0:
        raise ValueError("targets must not be negative")
    if (largest := int(array.max())) > LARGEST_LABEL:
        raise ValueError(
            f"targets are class indices from 0 to C - 1, but {largest} occurs; number the classes"
        )
    return array.astype(np.int64)

"""Batches of images that live on the device. The order and the draws of an epoch go there once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from longtail.data.augment import Small, resized
from longtail.data.splits import Split
from longtail.keys import Key


class Batch(NamedTuple):
    """Normalised images `[B, 3, H, W]`, targets `[B]`, and which images of the split they are (int64)."""

    images: Tensor
    target: Tensor
    positions: Tensor


def bounds(total: int, batch_size: int, rank: int, world_size: int, start: int = 0) -> Iterator[slice]:
    """Where each global batch from number `start` on has this process's part: every `world_size`-th place.

    All processes get as many parts; that of a last, partial batch may be shorter, or empty.

    Example:
        >>> [list(range(10))[part] for part in bounds(10, 4, rank=1, world_size=2)]
        [[1, 3], [5, 7], [9]]
    """
    if batch_size < 1 or batch_size % world_size:
        raise ValueError(f"batch_size {batch_size} is not divisible by world_size {world_size}")
    for first in range(start * batch_size, total, batch_size):
        yield slice(first + rank, min(first + batch_size, total), world_size)


class Resident:
    """Small images, kept as uint8 on the device and augmented there as whole batches.

    Example:
        >>> split = Split(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.arange(5), tuple("abcde"))
        >>> augment = Small(size=8, crop=1, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        >>> batches = Resident(split, augment, device="cpu")
        >>> order = torch.tensor([4, 0, 3, 1, 2])
        >>> [b.target.tolist() for b in batches.epoch(order, key=Key(0), batch_size=2)]
        [[4, 0], [3, 1], [2]]
    """

    def __init__(
        self, split: Split, augment: Small, *, device: torch.device | str, channels_last: bool = False
    ):
        if not isinstance(split.images, Tensor):
            raise TypeError("Resident takes images in memory; an ImageSource goes through Streamed")
        self.augment, self.device, self.channels_last = augment, torch.device(device), channels_last
        images = resized(split.images, augment.size)
        if channels_last:  # as [N, H, W, 3], so that a batch is one copy of whole images
            images = images.permute(0, 2, 3, 1).contiguous()
        self.images = images.to(self.device)
        self.targets = split.targets.to(self.device)

    def __len__(self) -> int:
        return len(self.targets)

    def epoch(
        self,
        order: Tensor,
        *,
        key: Key,
        batch_size: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> Iterator[Batch]:
        """Augmented batches of `order`, from batch number `start` on. `key` names the epoch.

        What is drawn for a place of the order depends on the key and the place alone, so starting later or on
        more processes gives the same images.
        """
        parts = list(bounds(len(order), batch_size, rank, world_size, start))
        places = np.concatenate([np.arange(len(order))[part] for part in parts] or [np.arange(0)])
        draws = torch.from_numpy(self.augment.draws(key, places)).to(self.device)
        index = order[torch.from_numpy(places)].to(self.device)
        for rows, numbers in zip(_split(index, parts, len(order)), _split(draws, parts, len(order))):
            images = self.augment.train(self._images(rows), numbers)
            yield Batch(images, self.targets.index_select(0, rows), rows)

    def plain(self, batch_size: int, *, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """Every image once, in order, without augmentation."""
        everything = torch.arange(len(self), device=self.device)
        for part in bounds(len(self), batch_size, rank, world_size):
            images = self.augment.plain(_channels_first(self.images[part], self.channels_last))
            yield Batch(images, self.targets[part], everything[part])

    def _images(self, index: Tensor) -> Tensor:
        return _channels_first(self.images.index_select(0, index), self.channels_last)


def _split(values: Tensor, parts: list[slice], total: int) -> tuple[Tensor, ...]:
    return values.split([len(range(total)[part]) for part in parts])


def _channels_first(images: Tensor, channels_last: bool) -> Tensor:
    return images.permute(0, 3, 1, 2) if channels_last else images

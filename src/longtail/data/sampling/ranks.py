"""Which part of a global order each process takes. No torch.distributed: rank and size are arguments."""

from __future__ import annotations

from typing import Literal, assert_never, get_args

import torch
from torch import Tensor

Remainder = Literal["drop", "keep", "repeat"]


def part(order: Tensor, step: int, batch_size: int, *, rank: int = 0, world_size: int = 1) -> Tensor:
    """What one rank sees of global batch `step`, which is `order[step * B : (step + 1) * B]`.

    The ranks take interleaved parts, which never overlap and together are the batch. The last batch may be
    partial: its parts then differ by one image, and may be empty, so weigh each image by one over the size
    of the whole batch, not each rank alike.

    Example:
        >>> part(torch.arange(10), 1, 4, rank=1, world_size=2).tolist()
        [5, 7]
    """
    _check(rank, world_size)
    if step < 0 or batch_size < 1:
        raise ValueError(f"part needs a step from 0 and a batch of at least 1, got {step} and {batch_size}")
    return order[step * batch_size : (step + 1) * batch_size][rank::world_size]


def share(order: Tensor, *, rank: int = 0, world_size: int = 1, remainder: Remainder = "drop") -> Tensor:
    """What one rank sees of a whole epoch, in local batches of B / world_size the same batches as `part`.

    `remainder` says what happens to the last `len(order) % world_size` images. "drop" leaves them out: no
    overlap, and every rank has equally many images and batches, as DistributedDataParallel needs. "keep"
    gives them to the first ranks, which then have one image more, and perhaps one batch more: for loops
    that can bear it. "repeat" fills up with images from the start of the order, as torch's own
    DistributedSampler does: equal lengths, a few images seen twice.
    """
    _check(rank, world_size)
    if remainder not in get_args(Remainder):
        raise ValueError(f'remainder is "drop", "keep" or "repeat", got {remainder!r}')
    surplus = len(order) % world_size
    match remainder:
        case "drop":
            order = order[: len(order) - surplus]
        case "keep":
            pass
        case "repeat" if surplus and len(order):
            missing = torch.arange(world_size - surplus) % len(order)
            order = torch.cat([order, order[missing]])
        case "repeat":
            pass
        case _:
            assert_never(remainder)
    return order[rank::world_size]


def _check(rank: int, world_size: int) -> None:
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, got {world_size}")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must lie in 0..{world_size - 1}, not {rank}")

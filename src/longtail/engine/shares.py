"""How much this process's mean loss counts in the mean over all processes, where classes have weights."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from longtail.engine.distributed import World
from longtail.losses import Mixed, PerExpert, Target


def class_weights(loss: nn.Module) -> nn.Module | None:
    """The weights of a loss that is a weighted mean as a whole, alone or for each expert; else None."""
    inner = loss.base if isinstance(loss, PerExpert) else loss
    return cast(nn.Module | None, getattr(inner, "weights", None))


def shared(
    here: World, weights: nn.Module | None, target: Target, share: float, ignored: int = -100
) -> float | Tensor:
    """`share`, the part of the images; with class weights, the part of the weights of the whole batch.

    A weighted mean divides by the weights of its own samples. Processes that did so each for itself, and then
    took the mean, would find another loss than one process. Of a mixed target each half divides by its own
    weights, so there it stays that way (docs/deviations.md).
    """
    if here.size == 1 or weights is None or isinstance(target, Mixed):
        return share
    each = cast(Tensor, weights(torch.empty(0, device=target.device)))[target.clamp_min(0)]
    mass = (each * (target != ignored)).sum()
    whole = mass.clone()
    here.total([whole])
    return mass * here.size / whole

"""Mixup, CutMix, Remix and manifold mixup: two images and their targets become one.

An epoch's numbers are drawn at once from a key (`plan`); `mix` applies those of a step to a batch. Weights
stay tensors on the device: no step waits for a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, assert_never

import numpy as np
import torch
from torch import Tensor

from longtail.keys import Key
from longtail.losses import Mixed

Kind = Literal["mixup", "cutmix", "remix", "manifold"]


class Mixture(NamedTuple):
    """What goes into the model and the loss.

    `hidden`, when given, is applied to hidden maps by the model. `second` are the images of a pair's second
    batch; the target is then a `Mixed` of both batches' classes, and the model is given its weight too.
    """

    images: Tensor
    target: Tensor | Mixed
    hidden: Callable[[Tensor], Tensor] | None = None
    second: Tensor | None = None

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the model is called with."""
        if self.second is not None and isinstance(self.target, Mixed):
            return self.images, self.second, self.target.weight
        return (self.images, self.hidden) if self.hidden else (self.images,)


@dataclass(frozen=True, eq=False)
class MixPlan:
    """An epoch's draws: per step, how much of the first image stays, who the second is, where CutMix cuts."""

    kind: Kind
    weights: Tensor  # float32 [steps]; empty when nothing is mixed
    partners: Tensor  # int64 [steps, batch]: permutations
    centres: Tensor  # float32 [steps, 2], in [0, 1)

    def to(self, device: torch.device | str) -> MixPlan:
        return replace(
            self,
            weights=self.weights.to(device),
            partners=self.partners.to(device),
            centres=self.centres.to(device),
        )


def plan(
    kind: Kind,
    alpha: float,
    *,
    key: Key,
    steps: int,
    batch_size: int,
    rank: int = 0,
    device: torch.device | str = "cpu",
) -> MixPlan:
    """One weight ~ Beta(alpha, alpha) per step, the same on every process; partners within a process's batch.

    `batch_size` is this process's. With alpha <= 0 nothing is mixed.

    Example:
        >>> made = plan("mixup", 1.0, key=Key(0), steps=2, batch_size=4)
        >>> made.weights.shape, made.partners.sort().values.tolist()
        (torch.Size([2]), [[0, 1, 2, 3], [0, 1, 2, 3]])
    """
    weights = key.fold("weight").numpy().beta(alpha, alpha, steps) if alpha > 0 else np.empty(0)
    order = key.fold("partner", rank).numpy().random((steps, batch_size)).argsort(axis=1)
    centres = key.fold("centre").numpy().random((steps, 2), dtype=np.float32)
    drawn = MixPlan(
        kind,
        torch.from_numpy(weights.astype(np.float32)),
        torch.from_numpy(order),
        torch.from_numpy(centres),
    )
    return drawn.to(device)


def mix(
    images: Tensor,
    target: Tensor,
    plan: MixPlan,
    step: int,
    *,
    counts: Tensor | None = None,
    kappa: float = 3.0,
    tau: float = 0.5,
) -> Mixture:
    """Step `step` of the plan, applied to a batch of any size up to the planned one.

    The first image of a pair keeps the weight, its partner gets the rest. Remix needs `counts` (images per
    class, on the device of the batch).
    """
    if not len(plan.weights):
        return Mixture(images, target)
    weight = plan.weights[step].to(images.device)
    partner = _partners(plan.partners[step].to(images.device), len(images))
    mixed = Mixed(target, target[partner], weight)
    match plan.kind:
        case "mixup":
            return Mixture(lerped(images, partner, weight), mixed)
        case "cutmix":
            images, weight = pasted(images, partner, weight, plan.centres[step].to(images.device))
            return Mixture(images, Mixed(mixed.first, mixed.second, weight))
        case "remix":
            if counts is None:
                raise ValueError("remix needs counts, the number of images per class")
            weights = remixed(mixed.first, mixed.second, weight, counts, kappa, tau)
            return Mixture(lerped(images, partner, weight), Mixed(mixed.first, mixed.second, weights))
        case "manifold":
            return Mixture(images, mixed, partial(_lerped_hidden, partner=partner, weight=weight))
        case _:
            assert_never(plan.kind)


def _partners(partner: Tensor, size: int) -> Tensor:
    """A permutation of `size`: that of the whole batch, without the images a last, partial batch lacks."""
    return partner if size == len(partner) else partner.argsort()[:size].argsort()


def lerped(images: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """`weight * images + (1 - weight) * images[partner]`, in the images' own memory layout."""
    last = not images.is_contiguous()
    rows = (images.permute(0, 2, 3, 1) if last else images).flatten(
        1
    )  # whole images: one copy each, no strides
    mixed = rows.index_select(0, partner).lerp_(rows, weight)
    if not last:
        return mixed.view(images.shape)
    count, values, height, width = images.shape
    return mixed.view(count, height, width, values).permute(0, 3, 1, 2)


def _lerped_hidden(hidden: Tensor, *, partner: Tensor, weight: Tensor) -> Tensor:
    return torch.lerp(hidden[partner], hidden, weight.to(hidden.dtype))


def pasted(images: Tensor, partner: Tensor, weight: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """A box of the partner over each image, and the share of the image that is left (Yun et al. 2019).

    The box has the area 1 - weight before it is cut off at the border, hence the new weight.
    """
    height, width = images.shape[2:]
    share = (1 - weight).sqrt()

    def inside(centre: Tensor, length: int) -> Tensor:
        middle, half = (centre * length).floor(), ((share * length).floor() / 2).floor()
        place = torch.arange(length, device=images.device)
        return (place >= middle - half) & (place < middle + half)

    box = inside(centre[0], height)[:, None] & inside(centre[1], width)
    return torch.where(box, images[partner], images), 1 - box.float().mean()


def remixed(
    first: Tensor, second: Tensor, weight: Tensor, counts: Tensor, kappa: float, tau: float
) -> Tensor:
    """Remix's label weights `[B]`: of very unequal classes the rarer gives the label (Chou et al. 2020)."""
    ratio = counts[first].float() / counts[second].float()
    weights = torch.where((ratio >= kappa) & (weight < tau), 0.0, weight)
    return torch.where((ratio <= 1 / kappa) & (1 - weight < tau), 1.0, weights)

"""Losses of several experts: scores `[B, K, C]`, one prediction, the mean of the experts' clean logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import torch
from torch import Generator, Tensor, nn

from longtail import counts as class_counts
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import not_negative, one_of, positive
from longtail.losses.perclass import PerClass
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Mixed, Target

Together = Literal["sum", "mean"]
Draws = Literal["per_expert", "shared"]
Temperature = Literal["one", "by_count"]


class PerExpert(nn.Module):
    """Any loss of this package, applied to each expert: the sum (or mean) over the K experts.

    The experts of a batch become rows of one larger batch, so a loss with noise draws once for each of them;
    `noise="shared"` gives all experts the draw of one. What the loop supplies per expert, `[B, K, ...]`, is
    taken apart in the same way. In `.eval()` mode this is the cross-entropy of `.logits`.

    Example:
        >>> import torch
        >>> from longtail.losses import CrossEntropy
        >>> PerExpert(CrossEntropy())(torch.zeros(2, 3, 4), torch.tensor([0, 3])).item() / 3
        1.3862943649291992
    """

    def __init__(self, base: nn.Module, *, together: Together = "sum", noise: Draws = "per_expert"):
        super().__init__()
        one_of("together", together, get_args(Together))
        one_of("noise", noise, get_args(Draws))
        self.base, self.together, self.noise = base, together, noise
        self.needs = cast(tuple[str, ...], getattr(base, "needs", ()))
        self.ignore_index = cast(int, getattr(base, "ignore_index", -100))

    def each(self, scores: Tensor) -> Tensor:
        """The clean logits of every expert, `[B, K, C]`."""
        logits = cast(Callable[[Tensor], Tensor], self.base.logits)
        return logits(scores.flatten(0, 1)).unflatten(0, scores.shape[:2])

    def logits(self, scores: Tensor) -> Tensor:
        """The mean over the experts, `[B, C]`: the prediction."""
        return self.each(scores).mean(1)

    def forward(
        self, scores: Tensor, target: Target, *, generator: Generator | None = None, **supplied: Any
    ) -> Tensor:
        scores = checked(scores)
        if not self.training:
            return cross_entropy(self.logits(scores), target, ignore_index=self.ignore_index)
        experts = scores.shape[1]
        if getattr(self.base, "reads_whole_batch", False):  # its statistics are those of one expert
            losses = [self.base(one, target, generator=generator, **supplied) for one in scores.unbind(1)]
            each = torch.stack(losses)
            return each.sum() if self.together == "sum" else each.mean()
        supplied = {name: _rows(value, scores) for name, value in supplied.items()}
        if self.noise == "shared" and hasattr(self.base, "draw") and "noise" not in supplied:
            draw = cast(Callable[..., Tensor], self.base.draw)
            one = draw(scores[:, 0], target, generator=generator)
            supplied["noise"] = one.unsqueeze(-2).expand(*one.shape[:-1], experts, -1).flatten(-3, -2)
        loss = self.base(scores.flatten(0, 1), repeated(target, scores), generator=generator, **supplied)
        # All experts have the same targets and so the same weights: the mean over rows is that over experts.
        return loss * experts if self.together == "sum" else loss


class RIDE(nn.Module):
    """Routing diverse experts (Wang et al. 2021): each expert's loss, and a term that drives them apart.

    `sum_e base(scores_e) + diversity * mean(T)^2 * KL(softmax(mean/T) || softmax(z_e/T))`, with the clean
    logits z and their mean over the experts, which gets no gradient. A negative `diversity` rewards experts
    that disagree. `temperature="by_count"` belongs to the deferred stage, in which the base loss has class
    weights: `T_j = v_j / max v`, `v_j = C pi_j rho + 1 - rho`, so that rare classes may differ more.

    Example:
        >>> import torch
        >>> from longtail.losses import LDAM
        >>> loss = RIDE(LDAM([500, 50, 5]), [500, 50, 5])
        >>> loss(torch.zeros(2, 3, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        base: nn.Module,
        counts: Counts,
        *,
        diversity: float = -0.2,
        temperature: Temperature = "one",
        rho: float = 0.05,
        noise: Draws = "per_expert",
        zero_count: ZeroCount = "error",
    ):
        super().__init__()
        one_of("temperature", temperature, get_args(Temperature))
        if not 0 <= rho <= 1:
            raise ValueError(f"rho must be in [0, 1], got {rho}")
        images = class_counts.checked(counts, zero_count=zero_count)
        heat = functional.ride_temperatures(images, rho if temperature == "by_count" else 0.0)
        self.temperatures = PerClass(heat)
        self.strength = float(diversity * heat.mean() ** 2)
        self.experts = PerExpert(base, noise=noise)
        self.needs, self.ignore_index = self.experts.needs, self.experts.ignore_index

    def each(self, scores: Tensor) -> Tensor:
        return self.experts.each(scores)

    def logits(self, scores: Tensor) -> Tensor:
        return self.experts.logits(scores)

    def forward(
        self, scores: Tensor, target: Target, *, generator: Generator | None = None, **supplied: Any
    ) -> Tensor:
        scores = checked(scores, len(self.temperatures))
        loss = self.experts(scores, target, generator=generator, **supplied)
        if not self.training or not self.strength:
            return loss
        apart = functional.apart(self.each(scores), self.temperatures(scores))
        return loss + self.strength * averaged(apart, scores, target, self.ignore_index)


class Distilled(nn.Module):
    """A loss, and a teacher whose softened prediction each expert imitates (Hinton et al. 2015; RIDE).

    `base + weight * sum_e T^2 KL(softmax(teacher / T) || softmax(z_e / T))`; the loop supplies the teacher's
    clean logits `[B, C]` for the same images. Scores `[B, C]` are those of one expert.

    Example:
        >>> import torch
        >>> from longtail.losses import LDAM
        >>> loss = Distilled(LDAM([500, 50, 5]))
        >>> loss(torch.zeros(2, 3), torch.tensor([0, 2]), teacher=torch.zeros(2, 3)).shape
        torch.Size([])
    """

    def __init__(self, base: nn.Module, *, temperature: float = 1.5, weight: float = 1.0):
        super().__init__()
        self.base = base
        self.temperature, self.weight = positive("temperature", temperature), not_negative("weight", weight)
        self.needs = (*cast(tuple[str, ...], getattr(base, "needs", ())), "teacher")
        self.ignore_index = cast(int, getattr(base, "ignore_index", -100))

    def logits(self, scores: Tensor) -> Tensor:
        return cast(Callable[[Tensor], Tensor], self.base.logits)(scores)

    def forward(
        self,
        scores: Tensor,
        target: Target,
        *,
        generator: Generator | None = None,
        teacher: Tensor | None = None,
        **supplied: Any,
    ) -> Tensor:
        loss = self.base(scores, target, generator=generator, **supplied)
        if not self.training:
            return loss
        logits = self._each(scores)
        if teacher is None or teacher.shape != (len(logits), logits.shape[2]):
            given = None if teacher is None else tuple(teacher.shape)
            raise ValueError(f"teacher must be logits of shape {(len(logits), logits.shape[2])}, got {given}")
        far = functional.distilled(logits, teacher.detach().to(logits), self.temperature)
        return loss + self.weight * averaged(far, logits, target, self.ignore_index)

    def _each(self, scores: Tensor) -> Tensor:
        """The clean logits of every expert, in at least float32."""
        if scores.ndim == 2:
            return self.logits(targets.checked_scores(scores, None)).unsqueeze(1)
        return cast(Callable[[Tensor], Tensor], self.base.each)(checked(scores))


def checked(scores: Tensor, classes: int | None = None) -> Tensor:
    """Scores `[B, K, C]` in at least float32."""
    if scores.ndim != 3 or not scores.shape[1] or (classes is not None and scores.shape[2] != classes):
        wanted = "C" if classes is None else f"{classes}"
        raise ValueError(f"scores must have shape [batch, experts, {wanted}], got {tuple(scores.shape)}")
    return targets.checked_scores(scores.flatten(0, 1), None).unflatten(0, scores.shape[:2])


def repeated(target: Target, scores: Tensor) -> Target:
    """The target of every expert, in the order of `scores.flatten(0, 1)`."""
    targets.checked_kind(target)
    batch, experts = scores.shape[:2]

    def rows(each: Tensor) -> Tensor:
        if len(each) != batch:  # repeated, a wrong length could look right
            raise ValueError(f"a target must have {batch} rows, got {tuple(each.shape)}")
        return each[:, None].expand(-1, experts, *each.shape[1:]).flatten(0, 1)

    if not isinstance(target, Mixed):
        return rows(target)
    weight = target.weight
    if isinstance(weight, Tensor) and weight.ndim:
        weight = rows(weight)
    return Mixed(rows(target.first), rows(target.second), weight)


def averaged(each: Tensor, scores: Tensor, target: Target, ignore_index: int) -> Tensor:
    """The mean over the batch of a term `[B]` that does not ask for the class, ignored samples left out."""
    if not isinstance(target, Mixed) and target.is_floating_point():
        return each.mean()
    parts = [half.total(each) for half in targets.halves(scores[:, 0], target, ignore_index=ignore_index)]
    return parts[0] + parts[1] if len(parts) == 2 else parts[0]


def _rows(value: Any, scores: Tensor) -> Any:
    """What comes per expert, `[B, K, ...]`, as rows `[B * K, ...]`; anything else as it is."""
    if isinstance(value, Tensor) and value.ndim >= 2 and value.shape[:2] == scores.shape[:2]:
        return value.flatten(0, 1)
    return value

"""Losses that shift the logits by what the counts say: LogitAdjusted, BalancedSoftmax, FeatureBalanced.

The shift is for training; `.logits` and `.eval()` have none.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from longtail import clouds
from longtail import counts as class_counts
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import not_negative, positive
from longtail.losses.perclass import PerClass
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Target


class LogitAdjusted(nn.Module):
    """Logit-adjusted loss: cross-entropy of `scale * z + tau * log pi` (Menon et al. 2021).

    Example:
        >>> import torch
        >>> LogitAdjusted([500, 50, 5])(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        counts: Counts,
        tau: float = 1.0,
        scale: float = 1.0,
        *,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        self.log_prior = PerClass(class_counts.log_prior(counts, zero_count=zero_count))
        self.tau, self.scale = not_negative("tau", tau), positive("scale", scale)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        logits = self.logits(targets.checked_scores(scores, len(self.log_prior)))
        if self.training:
            logits = functional.logit_adjusted(logits, self.log_prior(logits), self.tau)
        return cross_entropy(logits, target, ignore_index=self.ignore_index)


class BalancedSoftmax(nn.Module):
    """Balanced softmax: logit adjustment with tau = 1, over `scale * scores` (Ren et al. 2020).

    Example:
        >>> import torch
        >>> BalancedSoftmax([500, 50, 5])(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self, counts: Counts, scale: float = 1.0, *, zero_count: ZeroCount = "error", ignore_index: int = -100
    ):
        super().__init__()
        self.log_prior = PerClass(class_counts.log_prior(counts, zero_count=zero_count))
        self.scale, self.ignore_index = positive("scale", scale), ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        logits = self.logits(targets.checked_scores(scores, len(self.log_prior)))
        if self.training:
            logits = functional.logit_adjusted(logits, self.log_prior(logits), 1.0)
        return cross_entropy(logits, target, ignore_index=self.ignore_index)


class FeatureBalanced(nn.Module):
    """Feature-balanced loss: rare classes lose logit unless their features are long (Li et al. 2022).

    The loop passes `progress`, the part of training that is over, in [0, 1], and `norms [B]` of the features;
    gradient flows into the norms, which is the point of the loss. Both may be left out in `.eval()` mode.

    Example:
        >>> import torch
        >>> loss = FeatureBalanced([500, 50, 5])
        >>> loss(torch.zeros(2, 3), torch.tensor([0, 2]), progress=0.5, norms=torch.ones(2)).shape
        torch.Size([])
    """

    needs: tuple[str, ...] = ("progress", "norms")

    def __init__(
        self,
        counts: Counts,
        strength: float = 60.0,
        *,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        self.cloud = PerClass(clouds.sizes(counts, "log", zero_count=zero_count))
        self.strength = not_negative("strength", strength)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return scores

    def forward(
        self,
        scores: Tensor,
        target: Target,
        *,
        generator: Generator | None = None,
        progress: float | Tensor | None = None,
        norms: Tensor | None = None,
    ) -> Tensor:
        logits = targets.checked_scores(scores, len(self.cloud))
        if self.training:
            if progress is None or not isinstance(norms, Tensor):
                raise TypeError("FeatureBalanced needs progress= in [0, 1] and norms= of the features, [B]")
            _check_progress(progress)
            if norms.shape != (len(logits),):
                raise ValueError(f"norms must have shape [{len(logits)}], got {tuple(norms.shape)}")
            size, norms = self.cloud(logits), norms.to(logits.dtype)
            logits = functional.feature_balanced(logits, size, norms, progress, self.strength)
        return cross_entropy(logits, target, ignore_index=self.ignore_index)


def _check_progress(progress: float | Tensor) -> None:
    if isinstance(progress, Tensor) and (progress.device.type != "cpu" or torch.compiler.is_compiling()):
        return  # as for class indices: to look at it would make the host wait
    if not 0 <= progress <= 1:  # which a NaN is not either
        raise ValueError(f"progress is the part of training that is over, in [0, 1], got {float(progress)}")

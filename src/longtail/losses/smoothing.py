"""LabelAwareSmoothing: the more frequent the class, the less certain it may be."""

from __future__ import annotations

from typing import get_args

from torch import Generator, Tensor, nn
from torch.nn.functional import log_softmax

from longtail import counts as class_counts
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import one_of, positive
from longtail.losses.perclass import PerClass
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Target


class LabelAwareSmoothing(nn.Module):
    """Label smoothing by class count, the loss of MisLAS' second stage (Zhong et al. 2021).

    It is that of `scale * scores`: 1 for a linear head, the logit scale for cosines.

    Example:
        >>> import torch
        >>> LabelAwareSmoothing([500, 50, 5])(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        counts: Counts,
        head: float = 0.3,
        tail: float = 0.0,
        shape: functional.Shape = "concave",
        scale: float = 1.0,
        *,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        if not (0 <= head <= 1 and 0 <= tail <= 1):
            raise ValueError(f"smoothing must be in [0, 1], got head {head} and tail {tail}")
        one_of("shape", shape, get_args(functional.Shape))
        images = class_counts.checked(counts, zero_count=zero_count)
        self.smoothing = PerClass(functional.smoothing(images, head, tail, shape))
        self.scale, self.ignore_index = positive("scale", scale), ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        logits = self.logits(targets.checked_scores(scores, len(self.smoothing)))
        if not self.training:
            return cross_entropy(logits, target, ignore_index=self.ignore_index)
        targets.probabilities(logits, target, unless="smoothing by class")
        log_probabilities, smoothing = log_softmax(logits, 1), self.smoothing(logits)
        total = logits.new_zeros(())
        for half in targets.halves(logits, target, ignore_index=self.ignore_index):
            total = total + half.total(functional.smoothed(log_probabilities, half.target, smoothing))
        return total

"""Cross-entropy weighted by a power of the class frequency: DisAlign's generalised re-weighting."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from longtail import counts as class_counts
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import not_negative, positive
from longtail.losses.perclass import PerClass
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Target


class Reweighted(nn.Module):
    """Cross-entropy of `scale * scores`, a sample of class j weighing pi_j^-rho; the weights sum to C.

    `rho` 0 is plain cross-entropy, 1 weighs every class alike; DisAlign takes 1.2 on ImageNet-LT. The mean is
    PyTorch's weighted mean, as in `ClassBalanced`.

    Example:
        >>> import torch
        >>> Reweighted([500, 50, 5], rho=1.0)(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        counts: Counts,
        rho: float = 1.2,
        scale: float = 1.0,
        *,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        sizes = class_counts.checked(counts, zero_count=zero_count).double()
        weights = (sizes / sizes.sum()) ** -not_negative("rho", rho)
        self.weights = PerClass(weights * len(weights) / weights.sum())
        self.scale, self.ignore_index = positive("scale", scale), ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        logits = self.logits(targets.checked_scores(scores, len(self.weights)))
        weights = self.weights(logits) if self.training else None
        return cross_entropy(logits, target, ignore_index=self.ignore_index, weights=weights)

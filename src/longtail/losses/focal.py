"""Losses that weigh samples: by how well they are known (Focal), by their class (ClassBalanced)."""

from __future__ import annotations

from torch import Generator, Tensor, nn
from torch.nn.functional import log_softmax

from longtail import counts as class_counts
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import not_negative, positive
from longtail.losses.perclass import PerClass
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Target


def _focal(logits: Tensor, target: Target, gamma: float, ignore_index: int, weights: Tensor | None) -> Tensor:
    """`(1 - p_y)^gamma * CE`, gradient through both factors; p from the unweighted CE, weights after."""
    if gamma == 0:
        return cross_entropy(logits, target, ignore_index=ignore_index, weights=weights)
    targets.probabilities(logits, target, unless="a focal term")
    log_probabilities = log_softmax(logits, 1)
    total = logits.new_zeros(())
    for half in targets.halves(logits, target, ignore_index=ignore_index, weights=weights):
        each = functional.each(log_probabilities, half.target)
        total = total + half.total(functional.focal_factor(each, gamma) * each)
    return total


class Focal(nn.Module):
    """Focal loss over the softmax (Lin et al. 2017), as the long-tailed literature uses it.

    `scale` multiplies the scores: 1 for a linear head, the logit scale for cosines.

    Example:
        >>> import torch
        >>> Focal(gamma=2.0)(torch.zeros(2, 4), torch.tensor([0, 3])).shape
        torch.Size([])
    """

    def __init__(self, gamma: float = 1.0, scale: float = 1.0, *, ignore_index: int = -100):
        super().__init__()
        self.gamma, self.scale = not_negative("gamma", gamma), positive("scale", scale)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        logits = self.logits(targets.checked_scores(scores, None))
        return _focal(logits, target, self.gamma if self.training else 0.0, self.ignore_index, None)


class ClassBalanced(nn.Module):
    """Cross-entropy or focal loss weighted by the inverse effective number of images (Cui et al. 2019).

    The weights sum to C; the mean is PyTorch's weighted mean, so a batch of one class is not scaled by them.
    `scale` multiplies the scores, as in `Focal`.

    Example:
        >>> import torch
        >>> ClassBalanced([500, 50, 5])(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        counts: Counts,
        *,
        beta: float = 0.9999,
        gamma: float = 0.0,
        scale: float = 1.0,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        self.weights = PerClass(class_counts.effective_weights(counts, beta, zero_count=zero_count))
        self.gamma, self.scale = not_negative("gamma", gamma), positive("scale", scale)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        logits = self.logits(targets.checked_scores(scores, len(self.weights)))
        if not self.training:
            return cross_entropy(logits, target, ignore_index=self.ignore_index)
        return _focal(logits, target, self.gamma, self.ignore_index, self.weights(logits))

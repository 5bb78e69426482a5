"""Softmax cross-entropy for any target: every loss ends here, and in `.eval()` mode is this and no more."""

from __future__ import annotations

from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy as with_probabilities
from torch.nn.functional import log_softmax

from longtail.losses import functional, targets
from longtail.losses.arguments import positive
from longtail.losses.targets import Target


def cross_entropy(
    logits: Tensor, target: Target, *, ignore_index: int = -100, weights: Tensor | None = None
) -> Tensor:
    """The mean cross-entropy of logits that do not depend on the target."""
    unless = None if weights is None else "class weights"
    matrix = targets.probabilities(logits, target, unless=unless)
    if matrix is not None:
        return with_probabilities(logits, matrix)
    halves = targets.halves(logits, target, ignore_index=ignore_index, weights=weights)
    log_probabilities = log_softmax(logits, 1)
    first, *second = [half.total(functional.each(log_probabilities, half.target)) for half in halves]
    return first + second[0] if second else first


class CrossEntropy(nn.Module):
    """Cross-entropy of `scale * scores`: 1 for a linear head, the logit scale for cosines.

    Example:
        >>> import torch
        >>> round(CrossEntropy()(torch.zeros(2, 4), torch.tensor([0, 3])).item(), 4)
        1.3863
    """

    def __init__(self, scale: float = 1.0, *, ignore_index: int = -100):
        super().__init__()
        self.scale, self.ignore_index = positive("scale", scale), ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        scores = targets.checked_scores(scores, None)
        return cross_entropy(self.logits(scores), target, ignore_index=self.ignore_index)

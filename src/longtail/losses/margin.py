"""Losses on cosines that ask the target class for a margin: CosFace, ArcFace, LDAM.

A head gives cosines in [-1, 1]; scale and margin belong to the loss. In `.eval()` mode there is no margin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Generator, Tensor, nn
from torch.nn.functional import log_softmax

from longtail import clouds
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import angle, not_negative, positive
from longtail.losses.perclass import PerClass, checked_weights
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Target


def _over_halves(
    logits: Callable[[Tensor], Tensor],
    scores: Tensor,
    target: Target,
    ignore_index: int,
    weights: Tensor | None = None,
) -> Tensor:
    """Logits that depend on the class index: made anew, and normalised anew, for each half of the target."""
    targets.probabilities(scores, target, unless="a margin")
    total = scores.new_zeros(())
    for half in targets.halves(scores, target, ignore_index=ignore_index, weights=weights):
        log_probabilities = log_softmax(logits(half.target), 1)
        total = total + half.total(functional.each(log_probabilities, half.target))
    return total


class CosFace(nn.Module):
    """Large margin cosine loss: the target's cosine must win by `margin` (Wang et al. 2018).

    Example:
        >>> import torch
        >>> CosFace()(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(self, scale: float = 30.0, margin: float = 0.35, *, ignore_index: int = -100):
        super().__init__()
        self.scale, self.margin = positive("scale", scale), not_negative("margin", margin)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return self.scale * scores

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        cosine = targets.checked_scores(scores, None)
        if not self.training:
            return cross_entropy(self.logits(cosine), target, ignore_index=self.ignore_index)

        def logits(index: Tensor) -> Tensor:
            return self.logits(functional.cosface(cosine, index, self.margin))

        return _over_halves(logits, cosine, target, self.ignore_index)


class ArcFace(nn.Module):
    """Additive angular margin loss: the target's angle must win by `margin` (Deng et al. 2019).

    Past pi the logit falls on linearly; `easy` gives a margin only where the cosine is positive.

    Example:
        >>> import torch
        >>> ArcFace()(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self, scale: float = 30.0, margin: float = 0.5, easy: bool = False, *, ignore_index: int = -100
    ):
        super().__init__()
        self.scale, self.margin = positive("scale", scale), angle("margin", margin)
        self.boundary: functional.Boundary = "easy" if easy else "arcface"
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return self.scale * scores

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        cosine = targets.checked_scores(scores, None)
        if not self.training:
            return cross_entropy(self.logits(cosine), target, ignore_index=self.ignore_index)

        def logits(index: Tensor) -> Tensor:
            return self.logits(functional.arcface(cosine, index, self.margin, self.boundary))

        return _over_halves(logits, cosine, target, self.ignore_index)


class LDAM(nn.Module):
    """Label-distribution-aware margin loss: CosFace with a margin per class (Cao et al. 2019).

    `margin` is that of the rarest class. `weights [C]` serve the deferred stage (DRW), where they are
    `counts.effective_weights(counts, 0.9999)`; the mean is then PyTorch's weighted mean.

    Example:
        >>> import torch
        >>> LDAM([500, 50, 5])(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        counts: Counts,
        *,
        margin: float = 0.5,
        scale: float = 30.0,
        weights: Tensor | Sequence[float] | None = None,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        relative = clouds.sizes(counts, "power", power=1 / 4, zero_count=zero_count)
        self.margins = PerClass(functional.ldam_margins(relative, not_negative("margin", margin)))
        self.weights = None if weights is None else PerClass(checked_weights(weights, len(relative)))
        self.scale, self.ignore_index = positive("scale", scale), ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return self.scale * scores

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        cosine = targets.checked_scores(scores, len(self.margins))
        if not self.training:
            return cross_entropy(self.logits(cosine), target, ignore_index=self.ignore_index)
        margins = self.margins(cosine)

        def logits(index: Tensor) -> Tensor:
            return self.logits(functional.cosface(cosine, index, margins[index]))

        weights = None if self.weights is None else self.weights(cosine)
        return _over_halves(logits, cosine, target, self.ignore_index, weights)

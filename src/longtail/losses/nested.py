"""NCL: networks that learn from the labels and from one another, on all classes and on the hard ones."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import log_softmax

from longtail import counts as class_counts
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import not_negative, positive
from longtail.losses.experts import checked
from longtail.losses.perclass import PerClass
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Target


class NestedCollaborative(nn.Module):
    """Nested collaborative learning (Li et al. 2022) without its contrastive branch, scores `[B, K, C]`.

    With the balanced logits `z + log n`, over all classes and, `nested` times, over the hard ones:
    `sum_e CE_e + mutual / (K - 1) * sum_(e != f) KL(p_f || p_e)`. Hard are the target and the classes that
    score highest in the first network, a part of `hard` of all; the softmax is then over these alone. The
    prediction is the mean of the networks' plain logits.

    Example:
        >>> loss = NestedCollaborative([500, 50, 5])
        >>> loss(torch.zeros(2, 3, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        counts: Counts,
        *,
        mutual: float = 0.6,
        nested: float = 1.0,
        hard: float = 0.3,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        self.log_prior = PerClass(class_counts.log_prior(counts, zero_count=zero_count))
        self.mutual, self.nested = not_negative("mutual", mutual), not_negative("nested", nested)
        classes = len(self.log_prior)
        self.hardest = min(classes, max(2, round(positive("hard", hard) * classes)))
        self.ignore_index = ignore_index

    def each(self, scores: Tensor) -> Tensor:
        """The clean logits of every network, `[B, K, C]`."""
        return scores

    def logits(self, scores: Tensor) -> Tensor:
        """The mean over the networks, `[B, C]`: the prediction."""
        return scores.mean(1)

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        scores = checked(scores, len(self.log_prior))
        if not self.training:
            return cross_entropy(self.logits(scores), target, ignore_index=self.ignore_index)
        first, balanced = scores[:, 0], functional.logit_adjusted(scores, self.log_prior(scores), 1.0)
        targets.probabilities(first, target, unless="the choice of hard classes")
        total = scores.new_zeros(())
        for half in targets.halves(first, target, ignore_index=self.ignore_index):
            # The target comes first among the chosen classes, whatever its logit.
            ranked = first.detach().scatter(1, half.target[:, None], torch.inf)
            chosen = ranked.topk(self.hardest, 1).indices[:, None].expand(-1, scores.shape[1], -1)
            among_hard = self._collaborating(balanced.gather(2, chosen), torch.zeros_like(half.target))
            among_all = self._collaborating(balanced, half.target)
            total = total + half.total(among_all + self.nested * among_hard)
        return total

    def _collaborating(self, logits: Tensor, index: Tensor) -> Tensor:
        """Labels and the other networks, `[B]`."""
        log_probabilities = log_softmax(logits, -1)
        labels = -log_probabilities.gather(2, index[:, None, None].expand(-1, logits.shape[1], 1)).sum((1, 2))
        return labels + self.mutual * functional.mutual(log_probabilities)

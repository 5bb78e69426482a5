"""LADE: balanced softmax, and a bound that ties each class's logits to a balanced test set."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from longtail import counts as class_counts
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import not_negative
from longtail.losses.perclass import PerClass
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Mixed, Target


class LADE(nn.Module):
    """Label distribution disentangling loss (Hong et al. 2021): `CE(z + log pi) + strength * bound`.

    The bound is `-sum_c pi_c (m_c - S_c - regularization * S_c^2)`: `m_c` the mean logit of class c over its
    own samples (0 where the batch has none), `S_c = log mean_i exp(z_c(i)) / (C pi_c)` over all samples of
    the batch. Both are statistics of the batch: under several processes each has those of its own part; of
    several experts (`PerExpert`) each has its own.

    Example:
        >>> import torch
        >>> LADE([500, 50, 5])(torch.zeros(2, 3), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    reads_whole_batch = True  # a row's loss depends on the other rows

    def __init__(
        self,
        counts: Counts,
        strength: float = 0.1,
        regularization: float = 0.1,
        *,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        self.log_prior = PerClass(class_counts.log_prior(counts, zero_count=zero_count))
        self.strength = not_negative("strength", strength)
        self.regularization = not_negative("regularization", regularization)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return scores

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        scores = targets.checked_scores(scores, len(self.log_prior))
        if not self.training:
            return cross_entropy(scores, target, ignore_index=self.ignore_index)
        targets.probabilities(scores, target, unless="a mean over the samples of each class")
        log_prior = self.log_prior(scores)
        adjusted = functional.logit_adjusted(scores, log_prior, 1.0)
        total = cross_entropy(adjusted, target, ignore_index=self.ignore_index)
        halves = targets.halves(scores, target, ignore_index=self.ignore_index)
        given = (target.first, target.second) if isinstance(target, Mixed) else (target,)
        for half, index in zip(halves, given, strict=True):
            bound = functional.lade(
                scores, half.target, index != self.ignore_index, log_prior, self.regularization
            )
            total = total + self.strength * half.total(bound)
        return total

"""SHIKE: experts that learn from the labels, from one another, and from a teacher without its worst rival."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import log_softmax

from longtail.losses import functional, targets
from longtail.losses.arguments import not_negative
from longtail.losses.experts import PerExpert, checked
from longtail.losses.targets import Target


class SHIKE(nn.Module):
    """Knowledge excavation (Jin et al. 2023), scores `[B, K, C]`.

    `sum_e base(scores_e) + negative * sum_e KL(q || r_e) + mutual * sum_(e != f) KL(p_f || p_e)` with the
    softmax p of the clean logits. The first KL is over the classes other than the target: r_e is the softmax
    of an expert over these, q that of a teacher made of the logits of all, see `hardest_negative`. Gradient
    flows into both sides of either term. The prediction is the mean of the experts' clean logits.

    Example:
        >>> from longtail.losses import CrossEntropy
        >>> loss = SHIKE(CrossEntropy(30.0))
        >>> loss(torch.zeros(2, 3, 4), torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(self, base: nn.Module, *, negative: float = 10.0, mutual: float = 1.0):
        super().__init__()
        self.experts = PerExpert(base)
        self.negative, self.mutual = not_negative("negative", negative), not_negative("mutual", mutual)
        self.needs, self.ignore_index = self.experts.needs, self.experts.ignore_index

    def each(self, scores: Tensor) -> Tensor:
        """The clean logits of every expert, `[B, K, C]`."""
        return self.experts.each(scores)

    def logits(self, scores: Tensor) -> Tensor:
        """The mean over the experts, `[B, C]`: the prediction."""
        return self.experts.logits(scores)

    def forward(
        self, scores: Tensor, target: Target, *, generator: Generator | None = None, **supplied: object
    ) -> Tensor:
        scores = checked(scores)
        loss = self.experts(scores, target, generator=generator, **supplied)
        if not self.training:
            return loss
        logits = self.each(scores)
        first, pairs = logits[:, 0], logits.shape[1] - 1
        targets.probabilities(first, target, unless="the hardest negative class")
        alike = self.mutual * pairs * functional.mutual(log_softmax(logits, -1))
        for half in targets.halves(first, target, ignore_index=self.ignore_index):
            loss = loss + half.total(self.negative * hardest_negative(logits, half.target) + alike)
        return loss


def hardest_negative(logits_BKC: Tensor, index_B: Tensor) -> Tensor:
    """`sum_e KL(q || r_e)` over the classes other than the target, of every sample (Jin et al. 2023).

    The hardest negative is the class whose mean over the experts is highest. The teacher has that mean as its
    logit, and for every other class the largest logit of any expert: among these the hardest loses weight.
    """
    classes = torch.arange(logits_BKC.shape[2], device=logits_BKC.device)
    own_B1C, nothing = (index_B[:, None] == classes)[:, None], torch.finfo(logits_BKC.dtype).min
    rivals_BKC = logits_BKC.masked_fill(
        own_B1C, nothing
    )  # not -inf: of one class alone nothing would be left
    mean_B1C = logits_BKC.mean(1, keepdim=True).masked_fill(own_B1C, nothing)
    hardest_B11 = mean_B1C.argmax(2, keepdim=True)
    teacher_B1C = rivals_BKC.amax(1, keepdim=True).scatter(2, hardest_B11, mean_B1C.gather(2, hardest_B11))
    teacher_B1C, each_BKC = log_softmax(teacher_B1C, -1), log_softmax(rivals_BKC, -1)
    return (teacher_B1C.exp() * (teacher_B1C - each_BKC)).sum((1, 2))

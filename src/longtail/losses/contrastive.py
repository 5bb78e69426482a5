"""Losses that compare embeddings: images of a class with one another, with prototypes, with fixed targets.

The loop supplies `contrasted`, one row for each image (or view of an image): its embedding at length one,
`[N, E]`, or its cosine to the prototype of each class, `[N, C]`.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Generator, Tensor, nn

from longtail.losses import targets
from longtail.losses.arguments import not_negative, one_of, positive
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Mixed, Target

Among = Literal["samples", "prototypes"]
WHY = "a comparison of images by their class"


def supervised_contrastive(
    embedding_NE: Tensor,
    index_N: Tensor,
    kept_N: Tensor,
    temperature: float,
    *,
    extra_NC: Tensor | None = None,
    copies: float = 1.0,
) -> Tensor:
    """`-mean_(p in P_i) log(exp(z_i z_p / t) / sum_(a != i) exp(z_i z_a / t))`, `[N]` (Khosla et al. 2020).

    P_i are the other rows of i's class; an i without any has loss 0. Rows that are not `kept` are nobody's
    company. `extra_NC` are cosines to one more point for each class, of which `copies` lie in the batch:
    those of i's class are positives, all are in the sum (Li et al. 2022).
    """
    similar_NN = product(embedding_NE) / temperature
    itself_NN = torch.eye(len(similar_NN), dtype=torch.bool, device=similar_NN.device)
    others_NN = kept_N & ~itself_NN
    positives_NN = (others_NN & (index_N[:, None] == index_N)).to(similar_NN.dtype)
    # The lowest number and not -inf: a row without company keeps finite gradients.
    among = similar_NN.masked_fill(~others_NN, torch.finfo(similar_NN.dtype).min)
    number_N = positives_NN.sum(1)
    attracted_N = (positives_NN * similar_NN).sum(1)
    if extra_NC is not None:
        extra_NC = extra_NC / temperature
        among = torch.cat([among, extra_NC + math.log(copies)], 1)
        attracted_N = attracted_N + copies * extra_NC.gather(1, index_N[:, None])[:, 0]
        number_N = number_N + copies
    lonely_N = number_N == 0
    each_N = among.logsumexp(1) - attracted_N / number_N.masked_fill(lonely_N, 1.0)
    return each_N.masked_fill(lonely_N, 0.0)


def prototypical(cosine_NC: Tensor, index_N: Tensor, temperature: float) -> Tensor:
    """`-log(exp(c_y / t) / sum_(j != y) exp(c_j / t))`, `[N]` (Wang et al. 2021): below 0 where y leads."""
    similar_NC = cosine_NC / temperature
    own_N = similar_NC.gather(1, index_N[:, None])[:, 0]
    lowest = torch.finfo(similar_NC.dtype).min
    return similar_NC.scatter(1, index_N[:, None], lowest).logsumexp(1) - own_N


class HybridContrastive(nn.Module):
    """A contrastive loss for the features beside cross-entropy for the classifier (Wang et al. 2021).

    For one batch `strength * contrast + CE`. A `Mixed` is a pair of batches, as stages with two samplings
    make it: `weight * strength * contrast(first) + (1 - weight) * CE(second)`; the contrasted rows are then
    those of the first batch, and the scores those of the second.

    Example:
        >>> loss = HybridContrastive(temperature=0.5)
        >>> points = torch.eye(2)[[0, 0, 1, 1]]
        >>> target = torch.tensor([0, 0, 1, 1])
        >>> together = loss(torch.zeros(4, 2), target, contrasted=points)
        >>> bool(together < loss(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), contrasted=points))
        True
    """

    needs = ("contrasted",)

    def __init__(
        self,
        among: Among = "samples",
        *,
        temperature: float = 0.1,
        strength: float = 1.0,
        ignore_index: int = -100,
    ):
        super().__init__()
        one_of("among", among, get_args(Among))
        self.among, self.temperature = among, positive("temperature", temperature)
        self.strength, self.ignore_index = not_negative("strength", strength), ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return scores

    def forward(
        self,
        scores: Tensor,
        target: Target,
        *,
        generator: Generator | None = None,
        contrasted: Tensor | None = None,
    ) -> Tensor:
        scores = targets.checked_scores(scores, None)
        if not self.training:
            return cross_entropy(scores, target, ignore_index=self.ignore_index)
        targets.probabilities(scores, target, unless=WHY)
        contrasted = supplied(contrasted, scores)
        first, second = (target.first, target.second) if isinstance(target, Mixed) else (target, target)
        classified = cross_entropy(scores, second, ignore_index=self.ignore_index)
        classes = scores.shape[1]
        if self.among == "prototypes" and contrasted.shape[1] != classes:
            raise ValueError(f"contrasted must be [N, {classes}] cosines, got {tuple(contrasted.shape)}")
        # Only for its shape: a row of classes for each contrasted row, which the indices are checked against.
        of_first = contrasted.new_zeros(1, 1).expand(len(contrasted), classes)
        (half,) = targets.halves(of_first, first, ignore_index=self.ignore_index)
        if self.among == "prototypes":
            each = prototypical(contrasted, half.target, self.temperature)
        else:
            kept = first != self.ignore_index
            each = supervised_contrastive(contrasted, half.target, kept, self.temperature)
        compared = self.strength * half.total(each)
        if not isinstance(target, Mixed):
            return compared + classified
        weight = targets.checked_weight(target, len(scores))
        return weight * compared + (1 - weight) * classified


class TargetedContrastive(nn.Module):
    """Images attract their class and a fixed target that stands for it; scores are cosines to the targets.

    Targeted supervised contrastive learning (Li et al. 2022) within the batch: the supervised contrastive
    loss with `copies` of each class's target among the rows. The logits are `scores / temperature`, so the
    nearest target is the prediction.

    Example:
        >>> loss = TargetedContrastive()
        >>> loss(torch.eye(3), torch.arange(3), contrasted=torch.eye(3)).shape
        torch.Size([])
    """

    needs = ("contrasted",)

    def __init__(self, *, temperature: float = 0.07, copies: float = 50.0, ignore_index: int = -100):
        super().__init__()
        self.temperature, self.copies = positive("temperature", temperature), positive("copies", copies)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return scores / self.temperature

    def forward(
        self,
        scores: Tensor,
        target: Target,
        *,
        generator: Generator | None = None,
        contrasted: Tensor | None = None,
    ) -> Tensor:
        scores = targets.checked_scores(scores, None)
        if not self.training:
            return cross_entropy(self.logits(scores), target, ignore_index=self.ignore_index)
        targets.probabilities(scores, target, unless=WHY)
        contrasted = supplied(contrasted, scores)
        if len(contrasted) != len(scores):
            raise ValueError(f"contrasted must have {len(scores)} rows, got {len(contrasted)}")
        total = scores.new_zeros(())
        halves = targets.halves(scores, target, ignore_index=self.ignore_index)
        given = (target.first, target.second) if isinstance(target, Mixed) else (target,)
        for half, index in zip(halves, given, strict=True):
            kept = index != self.ignore_index
            each = supervised_contrastive(
                contrasted, half.target, kept, self.temperature, extra_NC=scores, copies=self.copies
            )
            total = total + half.total(each)
        return total


def supplied(contrasted: Tensor | None, scores: Tensor) -> Tensor:
    """What the loop gave, in the precision of the scores."""
    if contrasted is None or contrasted.ndim != 2:
        given = None if contrasted is None else tuple(contrasted.shape)
        raise ValueError(f"contrasted must be one row for each image, [N, E], got {given}")
    return contrasted.to(scores.dtype)


def product(rows: Tensor) -> Tensor:
    """The inner products of all pairs, in the precision of the rows even under autocast."""
    device = "cpu" if rows.device.type == "meta" else rows.device.type  # which knows no autocast
    with torch.autocast(device, enabled=False):
        return rows @ rows.T

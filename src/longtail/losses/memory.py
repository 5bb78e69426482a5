"""Losses for heads with a memory: OLTR's centroid loss, and cross-entropy on remembered features as well."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from longtail.losses import functional, targets
from longtail.losses.arguments import not_negative, positive
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Half, Target


class Centroids(nn.Module):
    """Cross-entropy, and a term that draws features to their class's centroid (OLTR, Liu et al. 2019).

    `CE(scale z) + weight * (mean_i d_iy / 2 + repulsion * relu(margin - mean_i sum_(j != y) d_ij / C))` with
    the squared distances `d [B, C]` to the centroids, which the head measures and the loop supplies.

    Example:
        >>> loss = Centroids()
        >>> loss(torch.zeros(2, 3), torch.tensor([0, 2]), distances=torch.ones(2, 3)).shape
        torch.Size([])
    """

    needs: tuple[str, ...] = ("distances",)

    def __init__(
        self,
        scale: float = 16.0,
        weight: float = 0.01,
        repulsion: float = 0.01,
        margin: float = 10.0,
        *,
        ignore_index: int = -100,
    ):
        super().__init__()
        self.scale, self.weight = positive("scale", scale), not_negative("weight", weight)
        self.repulsion, self.margin = not_negative("repulsion", repulsion), not_negative("margin", margin)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(
        self,
        scores: Tensor,
        target: Target,
        *,
        generator: Generator | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        scores = targets.checked_scores(scores, None)
        entropy = cross_entropy(self.logits(scores), target, ignore_index=self.ignore_index)
        if not self.training:
            return entropy
        if distances is None or distances.shape != scores.shape:
            given = None if distances is None else tuple(distances.shape)
            raise TypeError(f"Centroids needs distances= of shape {tuple(scores.shape)}, got {given}")
        targets.probabilities(scores, target, unless="the distance to a class's centroid")
        halves = targets.halves(scores, target, ignore_index=self.ignore_index)
        terms = [self._term(distances.to(scores), half) for half in halves]
        return entropy + self.weight * (terms[0] + terms[1] if len(terms) == 2 else terms[0])

    def _term(self, distances: Tensor, half: Half) -> Tensor:
        """What one class index per sample asks for; its share of the loss is in the half's shares."""
        own = distances.gather(1, half.target[:, None]).squeeze(1)
        others = (distances.sum(1) - own) / distances.shape[1]
        share = half.total(torch.ones_like(own))  # 1, or how much this half of a mixture counts
        mean = half.total(others) / share.clamp_min(torch.finfo(own.dtype).tiny)
        return half.total(own) / 2 + self.repulsion * share * torch.relu(self.margin - mean)


class Remembered(nn.Module):
    """Cross-entropy of the batch, and `weight` times that of the features in the head's memory.

    A reconstruction (memory-based jitter, Liu et al. 2022): the loop supplies `recalled`, the scores `[M, C]`
    of what the memory holds and its labels, -100 where it holds nothing. An empty memory adds nothing.

    Example:
        >>> loss = Remembered()
        >>> memory = torch.zeros(4, 3), torch.tensor([1, 2, -100, -100])
        >>> loss(torch.zeros(2, 3), torch.tensor([0, 2]), recalled=memory).shape
        torch.Size([])
    """

    needs: tuple[str, ...] = ("recalled",)

    def __init__(self, scale: float = 1.0, weight: float = 1.0, *, ignore_index: int = -100):
        super().__init__()
        self.scale, self.weight = positive("scale", scale), not_negative("weight", weight)
        self.ignore_index = ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return functional.scaled(scores, self.scale)

    def forward(
        self,
        scores: Tensor,
        target: Target,
        *,
        generator: Generator | None = None,
        recalled: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        scores = targets.checked_scores(scores, None)
        entropy = cross_entropy(self.logits(scores), target, ignore_index=self.ignore_index)
        if not self.training:
            return entropy
        if recalled is None or recalled[0].shape != (len(recalled[1]), scores.shape[1]):
            raise TypeError(
                f"Remembered needs recalled=(scores [M, {scores.shape[1]}], labels [M]) of a memory"
            )
        held, labels = recalled
        return entropy + self.weight * cross_entropy(self.logits(held.to(scores)), labels)

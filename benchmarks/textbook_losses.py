"""Each loss as one would type it from its equation: plain PyTorch, a temporary for every term, autograd.

What `longtail.losses` is measured against in loss_cost.py, which also checks that both give the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, one_hot

Loss = Callable[[Tensor, Tensor], Tensor]
SCALE = 30.0


def losses(images: Tensor, norms: Tensor) -> dict[str, Loss]:
    """Every loss at its default arguments, over cosines `[B, C]`; `norms [B]` of the features, for FBL."""
    n = images.double()
    log_prior = torch.log(n / n.sum()).float()
    cloud = (torch.log(n.max() / n) / torch.log(n.max() / n.min())).float()
    margins = (0.5 * (n / n.min()) ** -0.25).float()
    effective = (1 - 0.9999**n) / (1 - 0.9999)
    weights = (len(n) / effective / (1 / effective).sum()).float()
    rarity = ((n / n.sum()) ** -1.2).float()
    rarity = rarity * len(n) / rarity.sum()
    smoothing = (0.3 * torch.sin(math.pi / 2 * (n - n.min()) / (n.max() - n.min()))).float()

    def onehot(target: Tensor) -> Tensor:
        return one_hot(target, len(n)).float()

    def noise(columns: int, like: Tensor) -> Tensor:
        return (torch.randn(len(like), columns) / 3).clamp(-1, 1).abs()

    def focal(scores: Tensor, target: Tensor) -> Tensor:
        each = cross_entropy(scores, target, reduction="none")
        return ((1 - torch.exp(-each)) * each).mean()

    def arcface(cosine: Tensor, target: Tensor) -> Tensor:
        theta = torch.acos(cosine.clamp(-1 + 1e-7, 1 - 1e-7))
        turned = torch.where(theta + 0.5 < math.pi, torch.cos(theta + 0.5), cosine - 0.5 * math.sin(0.5))
        return cross_entropy(SCALE * torch.where(onehot(target) > 0, turned, cosine), target)

    def label_aware(scores: Tensor, target: Tensor) -> Tensor:
        logarithm, given = log_softmax(scores, 1), smoothing[target][:, None]
        soft = (1 - given) * onehot(target) + given / len(n)
        return -(soft * logarithm).sum(1).mean()

    def lade(scores: Tensor, target: Tensor) -> Tensor:
        mine = onehot(target)
        mean = (mine * scores).sum(0) / mine.sum(0).clamp(min=1)
        spread = torch.logsumexp(scores - log_prior - math.log(len(n)), 0) - math.log(len(scores))
        bound = -(log_prior.exp() * (mean - spread - 0.1 * spread**2)).sum()
        return cross_entropy(scores + log_prior, target) + 0.1 * bound

    def euclidean(cosine: Tensor, target: Tensor, columns: int = len(n)) -> Tensor:
        return cross_entropy(SCALE * (cosine - 0.5 * cloud * noise(columns, cosine)), target)

    def turned(cosine: Tensor, size: Tensor) -> Tensor:
        inside, angle = cosine.clamp(-1 + 1e-7, 1 - 1e-7), math.pi / 2 * size
        made = inside * torch.cos(angle) - torch.sqrt(1 - inside**2) * torch.sin(angle)
        return torch.where(inside > -torch.cos(angle), made, -1.0)

    def angular(cosine: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(SCALE * turned(cosine, 0.5 * cloud * noise(len(n), cosine)), target)

    def unified(cosine: Tensor, target: Tensor) -> Tensor:
        size = 0.5 * cloud * noise(len(n), cosine)
        return cross_entropy(SCALE * (turned(cosine, size) - size), target)

    return {
        "CrossEntropy": lambda scores, target: cross_entropy(SCALE * scores, target),
        "Focal": focal,
        "ClassBalanced": lambda scores, target: cross_entropy(scores, target, weight=weights),
        "Reweighted": lambda scores, target: cross_entropy(scores, target, weight=rarity),
        "CosFace": lambda cosine, target: cross_entropy(SCALE * (cosine - 0.35 * onehot(target)), target),
        "ArcFace": arcface,
        "LDAM": lambda cosine, target: cross_entropy(SCALE * (cosine - margins * onehot(target)), target),
        "LogitAdjusted": lambda scores, target: cross_entropy(scores + log_prior, target),
        "BalancedSoftmax": lambda scores, target: cross_entropy(scores + log_prior, target),
        "LabelAwareSmoothing": label_aware,
        "FeatureBalanced": lambda scores, target: cross_entropy(
            scores - 0.5**2 * 60 * cloud / (norms[:, None] + 1e-12), target
        ),
        "LADE": lade,
        "GCL euclidean": euclidean,
        "GCL angular": angular,
        "GCL unified": unified,
        "GCL euclidean, shared noise": lambda cosine, target: euclidean(cosine, target, 1),
    }

"""Heads around a frozen head: learned scales (LWS), alignment (DisAlign), shifts (post-hoc adjustment)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


class Scaled(nn.Module):
    """Learnable weight scaling (LWS): one factor per class on the scores of another head, bias included.

    The factors start at one, so the wrapped head is unchanged until they learn; freeze the wrapped head to
    train them alone. On a cosine head a factor is the inverse temperature of its class.
    """

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head
        self.num_classes = _classes_of(head, "Scaled")
        self.scales = nn.Parameter(torch.ones(self.num_classes))

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features) * self.scales


class Aligned(nn.Module):
    """DisAlign: per-class magnitude and margin on frozen scores, mixed in by a learned confidence.

    z'_j = (1 + k A_j) z_j + k B_j with k = sigmoid(v . features + b). A starts at 1 and B at 0, v at 0.1 and
    b at 0; the wrapped head is meant to stay frozen.
    """

    def __init__(self, head: nn.Module, num_features: int):
        super().__init__()
        self.head = head
        self.num_classes = _classes_of(head, "Aligned")
        self.num_features = num_features
        self.magnitude = nn.Parameter(torch.ones(self.num_classes))
        self.margin = nn.Parameter(torch.zeros(self.num_classes))
        self.confidence_weight = nn.Parameter(torch.full((1, num_features), 0.1))
        self.confidence_bias = nn.Parameter(torch.zeros(1))

    def forward(self, features: Tensor) -> Tensor:
        confidence = functional.linear(features, self.confidence_weight, self.confidence_bias).sigmoid()
        return (1 + confidence * self.magnitude) * self.head(features) + confidence * self.margin


class Shifted(nn.Module):
    """The scores of another head minus `shift` `[C]`, which nothing trains and which is saved with it.

    Example:
        >>> from longtail.heads import Linear
        >>> head = Shifted(Linear(4, 2))
        >>> bool(head(torch.ones(1, 4)).equal(head.head(torch.ones(1, 4))))
        True
    """

    shift: Tensor

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head
        self.num_classes = _classes_of(head, "Shifted")
        self.register_buffer("shift", torch.zeros(self.num_classes))

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features) - self.shift


def _classes_of(head: nn.Module, name: str) -> int:
    num_classes = getattr(cast(object, head), "num_classes", None)
    if not isinstance(num_classes, int):
        raise TypeError(f"{name} wraps a head that has num_classes; {type(head).__name__} has none")
    return num_classes

"""Heads with weights of their own: the linear and the cosine classifier."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.heads import rows


class Linear(nn.Module):
    """An affine classifier, initialised as torch's own linear layer (uniform within 1 / sqrt(D))."""

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        bias: bool = True,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.num_features, self.num_classes = _sized(num_features, num_classes)
        self.weight = nn.Parameter(torch.empty(num_classes, num_features))
        self.bias = nn.Parameter(torch.empty(num_classes)) if bias else None
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw weight and bias anew."""
        bound = self.num_features**-0.5
        self.weight.copy_(rows.drawn(self.weight.shape, bound, generator))
        if self.bias is not None:
            self.bias.copy_(rows.drawn(self.bias.shape, bound, generator))

    def forward(self, features: Tensor) -> Tensor:
        return functional.linear(features, self.weight, self.bias)


class Cosine(nn.Module):
    """The cosine between the features and one anchor per class: scores in [-1, 1], always float32 or wider.

    The lengths of features and anchors do not matter. Normalisation and product run in float32 even under
    autocast and for half inputs, because the loss multiplies the rounding error by its scale. A feature
    vector of zeros (all units dead) has cosine 0 with every class, and a finite gradient.

    Example:
        >>> head = Cosine(64, 10)
        >>> head(torch.ones(4, 64)).shape
        torch.Size([4, 10])
    """

    def __init__(self, num_features: int, num_classes: int, *, generator: torch.Generator | None = None):
        super().__init__()
        self.num_features, self.num_classes = _sized(num_features, num_classes)
        self.weight = nn.Parameter(torch.empty(num_classes, num_features))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the anchors anew: uniform(-1, 1), then rescaled to length one."""
        self.weight.copy_(rows.unit(rows.drawn(self.weight.shape, 1.0, generator)))

    def forward(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            cosine = functional.linear(rows.unit(rows.wide(features)), rows.unit(rows.wide(self.weight)))
            return cosine.clamp(-1.0, 1.0)  # rounding may leave 1.0000001


def _sized(num_features: int, num_classes: int) -> tuple[int, int]:
    if num_features < 1 or num_classes < 1:
        raise ValueError(
            f"a head needs at least one feature and one class, not {num_features}, {num_classes}"
        )
    return num_features, num_classes

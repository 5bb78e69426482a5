"""The head of De-confound-TDE, written from its formulas: what momentum adds to features is taken away."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.heads import rows


class Deconfounded(nn.Module):
    """Several damped cosine classifiers on parts of the features (Tang et al. 2020); scores need a scale.

    In training the score is the mean over the K parts of `<x / |x|, w / (|w| + damping)>`, and a running
    direction follows the features: `direction <- momentum * direction + mean of the batch`. At test time
    each part's `x / |x|` loses `alpha * cos(x, d) * d`, with `d` its part of the direction at length one:
    that is the total direct effect. `alpha` acts at test time only and may be changed on a trained head.

    Example:
        >>> head = Deconfounded(64, 10)
        >>> head(torch.ones(4, 64)).shape
        torch.Size([4, 10])
    """

    direction: Tensor

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        parts: int = 2,
        damping: float = 1 / 32,
        momentum: float = 0.9,
        alpha: float = 1.0,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if parts < 1 or num_features < parts or num_features % parts or num_classes < 1:
            raise ValueError(
                f"features must divide into parts, and there must be a class; got {num_features} features, "
                f"{parts} parts, {num_classes} classes"
            )
        self.num_features, self.num_classes, self.parts = num_features, num_classes, parts
        self.damping, self.momentum, self.alpha = damping, momentum, alpha
        self.weight = nn.Parameter(torch.empty(num_classes, num_features))
        self.register_buffer("direction", torch.zeros(num_features))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the anchors anew, uniform within 1 / sqrt(D) of a part, and forget the direction."""
        bound = (self.num_features // self.parts) ** -0.5
        self.weight.copy_(rows.drawn(self.weight.shape, bound, generator))
        self.direction.zero_()

    def forward(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            features = rows.wide(features)
            if self.training:
                self._follow(features)
            parts = rows.unit(self._cut(features))
            if not self.training and self.alpha:
                direction = rows.unit(self._cut(self.direction.to(features)))
                parts = parts - self.alpha * (parts * direction).sum(-1, keepdim=True) * direction
            anchors = self._cut(rows.wide(self.weight))
            anchors = anchors / (torch.linalg.vector_norm(anchors, dim=-1, keepdim=True) + self.damping)
            return torch.einsum("...kd,ckd->...c", parts, anchors) / self.parts

    @torch.no_grad()
    def _follow(self, features: Tensor) -> None:
        mean = features.reshape(-1, self.num_features).mean(0)
        self.direction.mul_(self.momentum).add_(mean.to(self.direction.dtype))

    def _cut(self, values: Tensor) -> Tensor:
        """`[..., D]` to `[..., K, D / K]`."""
        return values.unflatten(-1, (self.parts, -1))

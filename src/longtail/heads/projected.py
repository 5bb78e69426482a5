"""A linear classifier with a projection beside it, whose embeddings a contrastive loss compares."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.heads import rows


class Projection(nn.Module):
    """Features to embeddings of length one, through one hidden layer as wide as the features."""

    def __init__(self, num_features: int, width: int):
        super().__init__()
        self.hidden_weight = nn.Parameter(torch.empty(num_features, num_features))
        self.hidden_bias = nn.Parameter(torch.empty(num_features))
        self.weight = nn.Parameter(torch.empty(width, num_features))
        self.bias = nn.Parameter(torch.empty(width))

    @torch.no_grad()
    def draw(self, generator: torch.Generator | None = None) -> None:
        """All weights anew, as torch's own linear layers have them."""
        bound = self.weight.shape[1] ** -0.5
        for weights in (self.hidden_weight, self.hidden_bias, self.weight, self.bias):
            weights.copy_(rows.drawn(weights.shape, bound, generator))

    def forward(self, features: Tensor) -> Tensor:
        hidden = functional.relu(functional.linear(features, self.hidden_weight, self.hidden_bias))
        return rows.unit(rows.wide(functional.linear(hidden, self.weight, self.bias)))


class Projected(nn.Module):
    """The two branches of hybrid contrastive learning (Wang et al. 2021) on the same features.

    Scores are those of a linear classifier. `embed` gives what is compared in training: embeddings, or with
    `prototypes` their cosines to one learned vector for each class.

    Example:
        >>> head = Projected(64, 10, width=32)
        >>> head(torch.ones(4, 64)).shape, head.embed(torch.ones(4, 64)).shape
        (torch.Size([4, 10]), torch.Size([4, 32]))
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        width: int = 128,
        prototypes: bool = False,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if min(num_features, num_classes, width) < 1:
            raise ValueError(
                f"a head needs at least one feature, class and dimension, not {num_features}, {num_classes}, "
                f"{width}"
            )
        self.num_features, self.num_classes = num_features, num_classes
        self.weight = nn.Parameter(torch.empty(num_classes, num_features))
        self.bias = nn.Parameter(torch.empty(num_classes))
        self.projection = Projection(num_features, width)
        self.prototypes = nn.Parameter(torch.empty(num_classes, width)) if prototypes else None
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw everything anew; the classifier first, so that it is that of a plain linear head."""
        bound = self.num_features**-0.5
        self.weight.copy_(rows.drawn(self.weight.shape, bound, generator))
        self.bias.copy_(rows.drawn(self.bias.shape, bound, generator))
        self.projection.draw(generator)
        if self.prototypes is not None:
            self.prototypes.copy_(rows.unit(rows.drawn(self.prototypes.shape, 1.0, generator)))

    def forward(self, features: Tensor) -> Tensor:
        return functional.linear(features, self.weight, self.bias)

    def embed(self, features: Tensor) -> Tensor:
        """What a contrastive loss compares, in at least float32: `[..., width]` or `[..., num_classes]`."""
        embedding = self.projection(features)
        if self.prototypes is None:
            return embedding
        with torch.autocast(features.device.type, enabled=False):
            return functional.linear(embedding, rows.unit(rows.wide(self.prototypes)))

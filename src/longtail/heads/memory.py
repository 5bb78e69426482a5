"""Heads with a memory: centroids of the classes (OLTR), features of past batches (memory-based jitter)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail import counts as class_counts
from longtail.counts import Counts
from longtail.heads import rows

REACH = 10.0
EMPTY = -100  # the label of a place that holds nothing: every loss ignores it


class MetaEmbedding(nn.Module):
    """OLTR's classifier (Liu et al. 2019): a feature borrows from class centroids before it is classified.

    `v = r (x + tanh(U x + u) * softmax(h(x)) M)`, with the centroids `M [C, D]`, the hallucinator `h` (the
    trained head that is given) and the reachability `r = 10 / min_j |x - M_j|`. The score of a class is
    `<v / (1 + |v|), w / |w|>`, between -1 and 1: the scale belongs to the loss. No gradient of the scores
    reaches the centroids; `distances` lets a loss move them. They start at zero and `fit` puts them at the
    class means.

    Example:
        >>> from longtail.heads.trained import Linear
        >>> head = MetaEmbedding(Linear(64, 10), 64).fit(torch.eye(64)[:10], torch.arange(10))
        >>> head(torch.ones(4, 64)).shape
        torch.Size([4, 10])
    """

    def __init__(self, head: nn.Module, num_features: int, *, generator: torch.Generator | None = None):
        super().__init__()
        self.hallucinator = head
        self.num_features, self.num_classes = num_features, cast(int, head.num_classes)
        shape = (self.num_classes, num_features)
        self.selector_weight = nn.Parameter(torch.empty(num_features, num_features))
        self.selector_bias = nn.Parameter(torch.empty(num_features))
        self.weight = nn.Parameter(torch.empty(shape))
        self.centroids = nn.Parameter(torch.zeros(shape))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw selector and anchors anew; hallucinator and centroids stay."""
        bound = self.num_features**-0.5
        self.selector_weight.copy_(rows.drawn(self.selector_weight.shape, bound, generator))
        self.selector_bias.copy_(rows.drawn(self.selector_bias.shape, bound, generator))
        self.weight.copy_(rows.unit(rows.drawn(self.weight.shape, 1.0, generator)))

    @torch.no_grad()
    def fit(self, features: Tensor, labels: Tensor, num_classes: int | None = None) -> MetaEmbedding:
        """Put the centroids at the class means of `features` `[N, D]` (zero without any); returns self."""
        if num_classes not in (None, self.num_classes) or features.shape[1:] != (self.num_features,):
            raise ValueError(
                f"fit needs {self.num_classes} classes and features [N, {self.num_features}], "
                f"not {tuple(features.shape)}"
            )
        features = rows.wide(features)
        sums = features.new_zeros(self.centroids.shape).index_add_(0, labels, features)
        images = torch.bincount(labels, minlength=self.num_classes)
        self.centroids.copy_(sums / images.clamp_min(1)[:, None])
        return self

    def distances(self, features: Tensor) -> Tensor:
        """The squared distance `[..., C]` of each feature to each centroid, for the loss that moves them."""
        with torch.autocast(features.device.type, enabled=False):
            return _squared(rows.wide(features), rows.wide(self.centroids))

    def embedded(self, features: Tensor) -> Tensor:
        """`v`: what the memory makes of each feature, in at least float32."""
        asked = rows.wide(self.hallucinator(features)).softmax(-1)
        with torch.autocast(features.device.type, enabled=False):
            features, memory = rows.wide(features), rows.wide(self.centroids.detach())
            nearest = _squared(features, memory).amin(-1, keepdim=True)
            reach = REACH / nearest.clamp_min(1e-12).sqrt()
            weight, bias = rows.wide(self.selector_weight), rows.wide(self.selector_bias)
            selected = functional.linear(features, weight, bias).tanh()
            return reach * (features + selected * (asked @ memory))

    def forward(self, features: Tensor) -> Tensor:
        embedded = self.embedded(features)
        with torch.autocast(features.device.type, enabled=False):
            squashed = embedded / (1 + torch.linalg.vector_norm(embedded, dim=-1, keepdim=True))
            return functional.linear(squashed, rows.unit(rows.wide(self.weight)))


class Remembering(nn.Module):
    """A head, and a memory of `size` features of past batches that it is trained on as well (MBJ).

    A reconstruction from the description of memory-based jitter (Liu et al. 2022): a feature of class j is
    written with the chance `(n_min / n_j)^power`, so that at power 1 every class writes equally often,
    and the oldest makes room. Because the network changes from step to step, a rare image comes to lie in
    the memory in several versions. Scores are those of the wrapped head; only `write` and `begin` change the
    memory, and nobody but the training step calls them.

    Example:
        >>> from longtail.heads.trained import Linear
        >>> head = Remembering(Linear(2, 3), 2, size=4)
        >>> head.begin([50, 5, 5])
        >>> head.write(torch.ones(1, 2), torch.tensor([2]))
        >>> head.recalled()[1].tolist()
        [2, -100, -100, -100]
    """

    features: Tensor
    labels: Tensor
    place: Tensor
    chances: Tensor

    def __init__(self, head: nn.Module, num_features: int, *, size: int = 2048):
        super().__init__()
        if size < 1:
            raise ValueError(f"a memory needs room for one feature, not {size}")
        self.head = head
        self.num_features, self.num_classes = num_features, cast(int, head.num_classes)
        self.register_buffer("features", torch.zeros(size, num_features))
        self.register_buffer("labels", torch.full((size,), EMPTY))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))  # where the next feature goes
        self.register_buffer("chances", torch.ones(self.num_classes))

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features)

    def recalled(self) -> tuple[Tensor, Tensor]:
        """(scores, labels) of what the memory holds; places without a feature have the label -100."""
        return self.head(self.features.clone()), self.labels.clone()  # `write` must not reach the gradient

    @torch.no_grad()
    def begin(self, counts: Counts, power: float = 1.0) -> None:
        """Empty the memory, and set each class's chance to be written from its images."""
        images = class_counts.checked(counts, zero_count="clamp").double()
        self.chances.copy_((images.min() / images) ** power)
        self.features.zero_()
        self.labels.fill_(EMPTY)
        self.place.zero_()

    @torch.no_grad()
    def write(self, features: Tensor, labels: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Writes the features `[B, D]` that chance selects over the oldest. No value is read by the host."""
        size = len(self.labels)
        drawn = torch.rand(len(labels), device=labels.device, generator=generator)
        wanted = drawn < self.chances[labels.clamp_min(0)]
        wanted &= labels >= 0
        chosen = (~wanted).int().argsort(stable=True)  # the selected first, in their order
        number = wanted.sum()
        after = (torch.arange(size, device=labels.device) - self.place) % size  # 0 is written first
        source = chosen[after.clamp_max(len(labels) - 1)]
        is_new = after < number
        self.labels.copy_(torch.where(is_new, labels[source], self.labels))
        fresh = features.to(self.features.dtype)[source]
        self.features.copy_(torch.where(is_new[:, None], fresh, self.features))
        self.place.copy_((self.place + number) % size)


def _squared(features: Tensor, memory: Tensor) -> Tensor:
    """`|x - m|^2` for every pair, `[..., C]`."""
    squares = features.square().sum(-1, keepdim=True) + memory.square().sum(-1)
    return (squares - 2 * functional.linear(features, memory)).clamp_min(0)

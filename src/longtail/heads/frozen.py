"""Heads that nothing trains: tau-normalised weights and nearest class means."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.heads import rows

Means = Literal["un", "l2n", "cl2n"]
Distance = Literal["euclidean", "cosine"]


class NearestMean(nn.Module):
    """Nearest class mean: nothing is trained; a score is minus the squared distance to a mean, or the cosine.

    `un` compares raw features, `l2n` unit features, `cl2n` unit features after the mean of all training
    features has been subtracted. A mean is taken over features prepared in that way, and is not normalised
    again. A class without features scores -inf: it is never predicted.

    Example:
        >>> head = NearestMean("l2n").fit(torch.eye(2), torch.tensor([0, 1]))
        >>> head(torch.tensor([[3.0, 1.0]])).argmax().item()
        0
    """

    center: Tensor
    means: Tensor
    seen: Tensor

    def __init__(self, kind: Means = "cl2n", *, distance: Distance = "euclidean"):
        super().__init__()
        if kind not in get_args(Means) or distance not in get_args(Distance):
            raise ValueError(
                f"NearestMean takes un, l2n or cl2n and euclidean or cosine, not {kind}, {distance}"
            )
        self.kind: Means = kind
        self.distance: Distance = distance
        self.num_classes = 0
        self.register_buffer("center", torch.zeros(0))
        self.register_buffer("means", torch.zeros(0, 0))
        self.register_buffer("seen", torch.zeros(0, dtype=torch.bool))
        self.register_load_state_dict_pre_hook(_take_sizes)

    @torch.no_grad()
    def fit(self, features: Tensor, labels: Tensor, num_classes: int | None = None) -> NearestMean:
        """Take the class means of `features` `[N, D]`; returns self."""
        if features.ndim != 2 or labels.shape != features.shape[:1] or not len(features):
            raise ValueError(
                f"fit needs features [N, D] and labels [N], not {features.shape}, {labels.shape}"
            )
        highest = int(labels.max())
        self.num_classes = highest + 1 if num_classes is None else num_classes
        if int(labels.min()) < 0 or highest >= self.num_classes:
            raise ValueError(f"labels must lie in 0..{self.num_classes - 1}")
        features = rows.wide(features)
        self.center = features.mean(0)
        prepared = self._prepared(features)
        sums = prepared.new_zeros(self.num_classes, features.shape[1]).index_add_(0, labels, prepared)
        images = torch.bincount(labels, minlength=self.num_classes)
        self.means, self.seen = sums / images.clamp_min(1)[:, None], images > 0
        return self

    def forward(self, features: Tensor) -> Tensor:
        if not self.num_classes:
            raise ValueError("NearestMean has no means yet: call fit(features, labels) first")
        with torch.autocast(features.device.type, enabled=False):
            prepared = self._prepared(rows.wide(features))
            means = self.means.to(prepared.dtype)
            if self.distance == "cosine":
                scores = functional.linear(rows.unit(prepared), rows.unit(means))
            else:
                squares = prepared.square().sum(-1, keepdim=True) + means.square().sum(-1)
                scores = 2 * functional.linear(prepared, means) - squares
            return scores.masked_fill(~self.seen, -torch.inf)

    def _prepared(self, features: Tensor) -> Tensor:
        if self.kind == "un":
            return features
        return rows.unit(features - self.center.to(features.dtype) if self.kind == "cl2n" else features)


def _take_sizes(head: nn.Module, state_dict: dict[str, Tensor], prefix: str, *_: object) -> None:
    """The buffers get their sizes from fit(); a fresh module takes them from what is being loaded."""
    means = state_dict.get(prefix + "means")
    if isinstance(head, NearestMean) and means is not None and means.ndim == 2:
        head.num_classes = len(means)
        head.means, head.center = head.means.new_zeros(means.shape), head.center.new_zeros(means.shape[1])
        head.seen = head.seen.new_zeros(len(means))


def tau_normalize(weight: Tensor, tau: float) -> Tensor:
    """tau-normalisation: every row of `weight` `[C, D]` divided by its length to the power tau.

    0 keeps the weights, 1 gives unit rows. The bias is dropped by whoever uses the result. On a cosine head
    this changes nothing, since only directions count there.
    """
    if weight.ndim != 2:
        raise ValueError(f"tau_normalize takes a weight [C, D], not {tuple(weight.shape)}")
    return (rows.wide(weight) / rows.lengths(rows.wide(weight)) ** tau).to(weight.dtype)

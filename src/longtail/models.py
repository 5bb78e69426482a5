"""What the loop trains: a backbone and a head. Losses own scale, margin and noise; see longtail.losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from longtail.backbones import Branched, Depths, Mix, Separate


class Output(NamedTuple):
    """`scores` [B, C] (experts: [B, K, C]) and the `features` they were computed from, [B, D] ([B, K, D])."""

    scores: Tensor
    features: Tensor


class Classifier(nn.Module):
    """One backbone, one head.

    `mix` (manifold mixup) is applied to the hidden maps after layer1 of a residual network, and to the maps
    after the frozen trunk of places_resnet152. timm backbones refuse it.

    Example:
        >>> from longtail import backbones, heads
        >>> network = backbones.make("resnet8", generator=torch.Generator().manual_seed(0))
        >>> model = Classifier(network, heads.Linear(network.num_features, 10))
        >>> model(torch.zeros(2, 3, 8, 8)).scores.shape
        torch.Size([2, 10])
    """

    def __init__(self, backbone: nn.Module, head: nn.Module):
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, images: Tensor, mix: Mix | None = None) -> Output:
        features = self.backbone(images) if mix is None else self.backbone(images, mix)
        return Output(self.head(features), features)


class Heads(nn.Module):
    """One head per expert: features [B, K, D] -> scores [B, K, C]."""

    def __init__(self, heads: Sequence[nn.Module]):
        super().__init__()
        self.num_classes = heads[0].num_classes
        self.each = nn.ModuleList(heads)

    def forward(self, features: Tensor) -> Tensor:
        experts = features.unbind(dim=1)
        return torch.stack([head(x) for head, x in zip(self.each, experts, strict=True)], dim=1)


class Experts(nn.Module):
    """RIDE's network (spec B4, F5): early layers are shared, each expert has its own late layers and head.

    Scores are [B, K, C] and features [B, K, D]; the prediction is that of the mean over experts of the clean
    logits. `mix` acts in the shared part, as in `Classifier`. Over a `Separate` backbone these are whole
    networks side by side (NCL), and `mix` acts in each. Over `Depths` they share all but their last layer and
    multiply its maps with shallow ones (SHIKE).
    """

    def __init__(self, backbone: Branched | Separate | Depths, head: Heads):
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, images: Tensor, mix: Mix | None = None) -> Output:
        features = self.backbone(images, mix)
        return Output(self.head(features), features)


class TwoBranch(nn.Module):
    """BBN's network (spec B1): a shared trunk, and the last residual block twice.

    Training gives two batches of equal size. `images` (drawn uniformly) go through trunk and conventional
    branch to f_c, `second` (drawn in reverse proportion to the counts) through trunk and re-balancing branch
    to f_r; the trunk sees one batch after the other, so its BatchNorm statistics are those of each. With
    `weight` = alpha the head gets the features 2 * [alpha f_c ; (1 - alpha) f_r] of size 2D.

    With `images` alone both branches see them, and at the default alpha of 1/2 the head gets [f_c ; f_r]: the
    network at test time. In either case scores are [B, C] and features are what the head got, [B, 2D].
    """

    def __init__(self, backbone: Branched, head: nn.Module):
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, images: Tensor, second: Tensor | None = None, weight: float | Tensor = 0.5) -> Output:
        if second is None:
            conventional, balancing = self.backbone(images).unbind(dim=1)
        elif second.shape != images.shape:
            raise ValueError(
                f"the two batches must have one shape, got {list(images.shape)} and {list(second.shape)}"
            )
        else:
            conventional, balancing = self.backbone.only(images, 0), self.backbone.only(second, 1)
        features = 2 * torch.cat([weight * conventional, (1 - weight) * balancing], dim=1)
        return Output(self.head(features), features)

"""What the loop trains: a backbone and a head. Losses own scale, margin and noise; see longtail.losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from longtail.backbones import Branched, Depths, Mix, Separate
from longtail.heads import Linear, rows


class Output(NamedTuple):
    """`scores` [B, C] (experts: [B, K, C]) and the `features` they were computed from, [B, D] ([B, K, D]).

    `routes` [B, K - 1] are the logits of a `Routed` head, and `contrasted` [N, E] the rows that a contrastive
    loss compares, of a `Contrasted` model in training.
    """

    scores: Tensor
    features: Tensor
    routes: Tensor | None = None
    contrasted: Tensor | None = None


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


class Routed(nn.Module):
    """Heads of K experts with K - 1 routers (RIDE, Wang et al. 2021): after the first i, is another asked?

    Router i sees `hidden` linear numbers of the i-th expert's features at length one, and the `top` highest
    of the mean logits so far, which are `scale` times the scores; a linear layer makes one logit of both.
    Above 0 the image goes on. The wrapped head is meant to stay frozen.
    """

    def __init__(
        self,
        head: Heads,
        num_features: int,
        *,
        scale: float = 1.0,
        top: int = 30,
        hidden: int = 16,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        classes, routers = head.num_classes, range(len(head.each) - 1)
        assert isinstance(classes, int)
        self.head, self.num_classes, self.scale, self.top = head, classes, scale, min(top, classes)
        self.hidden = nn.ModuleList([Linear(num_features, hidden, generator=generator) for _ in routers])
        self.decide = nn.ModuleList([Linear(hidden + self.top, 1, generator=generator) for _ in routers])

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features)

    def routes(self, features: Tensor, scores: Tensor) -> Tensor:
        """The routers' logits `[B, K - 1]`, for features `[B, K, D]` and the scores of every expert."""
        with torch.autocast(features.device.type, enabled=False):
            directions, means = rows.unit(rows.wide(features)), self.scale * so_far(rows.wide(scores))
            made = [
                decide(torch.cat([hidden(directions[:, i]), means[:, i].topk(self.top).values], dim=1))
                for i, (hidden, decide) in enumerate(zip(self.hidden, self.decide, strict=True))
            ]
            return torch.cat(made, dim=1) if made else means.new_zeros(len(means), 0)


def experts_asked(routes: Tensor) -> Tensor:
    """How many experts each image gets, `[B]`: one more for every router before the first that says stop."""
    return 1 + (routes > 0).long().cumprod(1).sum(1)


def of_those_asked(scores: Tensor, routes: Tensor) -> Tensor:
    """An expert that is not asked says what those before it say on average: the mean over all is theirs."""
    asked = experts_asked(routes)[:, None, None]
    mean = so_far(scores).gather(1, (asked - 1).expand(-1, 1, scores.shape[2]))
    number = torch.arange(scores.shape[1], device=scores.device)[:, None]
    return torch.where(number < asked, scores, mean)


def so_far(scores: Tensor) -> Tensor:
    """The means over the first one, the first two, ... and all of the experts: `[B, K, C]` of such."""
    number = torch.arange(1, scores.shape[1] + 1, device=scores.device, dtype=scores.dtype)
    return scores.cumsum(1) / number[:, None]


def answer(head: nn.Module, features: Tensor) -> Output:
    """What a head makes of features. Beside routers all experts speak in training, later who is asked."""
    scores = head(features)
    if not isinstance(head, Routed):
        return Output(scores, features)
    routes = head.routes(features, scores)
    return Output(scores if head.training else of_those_asked(scores, routes), features, routes)


class Experts(nn.Module):
    """RIDE's network (spec B4, F5): early layers are shared, each expert has its own late layers and head.

    Scores are [B, K, C] and features [B, K, D]; the prediction is that of the mean over experts of the clean
    logits. `mix` acts in the shared part, as in `Classifier`. Over a `Separate` backbone these are whole
    networks side by side (NCL), and `mix` acts in each. Over `Depths` they share all but their last layer and
    multiply its maps with shallow ones (SHIKE). With a `Routed` head the scores at test time are those of the
    experts that an image gets; in training every expert speaks.
    """

    def __init__(self, backbone: Branched | Separate | Depths, head: Heads | Routed):
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, images: Tensor, mix: Mix | None = None) -> Output:
        features = self.backbone(images) if mix is None else self.backbone(images, mix)
        return answer(self.head, features)


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


class Contrasted(nn.Module):
    """One backbone, and a head with two branches: scores, and in training embeddings to be compared.

    With two batches (hybrid contrastive learning) the embeddings are those of `images` and the scores those
    of `second`; the backbone sees both at once, so its BatchNorm statistics are those of all the images, as
    at test time. `weight` is the loss's affair. A head without `embed`, of a later stage, has scores alone.
    """

    def __init__(self, backbone: nn.Module, head: nn.Module):
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(
        self, images: Tensor, second: Tensor | None = None, weight: float | Tensor | None = None
    ) -> Output:
        if second is None:
            compared = features = self.backbone(images)
        else:
            both = self.backbone(torch.cat([images, second]))
            compared, features = both.split([len(images), len(second)])
        embed = cast(Callable[[Tensor], Tensor] | None, getattr(self.head, "embed", None))
        contrasted = embed(compared) if embed is not None and self.training else None
        return Output(self.head(features), features, contrasted=contrasted)

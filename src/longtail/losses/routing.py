"""The loss of RIDE's routers: when are the experts so far wrong, and the next ones right?"""

from __future__ import annotations

from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from longtail.losses import targets
from longtail.losses.arguments import positive
from longtail.losses.experts import PerExpert, checked
from longtail.losses.targets import Target


class Routing(nn.Module):
    """Each expert's loss, and the mean over the K - 1 routers of their cross-entropy (Wang et al. 2021).

    Router i answers whether an image should go on after the first i experts. It should, with label 1, where
    their mean prediction is wrong and that of some longer row of experts is right: these images count
    `positives` times. The labels have no gradient, so with experts that stand still their own loss is a
    constant. The loop passes `routes` `[B, K - 1]`, the routers' logits, by `longtail.models.Routed`.

    Example:
        >>> import torch
        >>> from longtail.losses import LDAM
        >>> loss = Routing(LDAM([500, 50, 5]))
        >>> loss(torch.zeros(2, 3, 3), torch.tensor([0, 2]), routes=torch.zeros(2, 2)).shape
        torch.Size([])
    """

    def __init__(self, base: nn.Module, *, positives: float = 100.0):
        super().__init__()
        self.experts, self.positives = PerExpert(base), positive("positives", positives)
        self.needs = (*self.experts.needs, "routes")
        self.ignore_index = self.experts.ignore_index

    def each(self, scores: Tensor) -> Tensor:
        """The clean logits of every expert, `[B, K, C]`."""
        return self.experts.each(scores)

    def logits(self, scores: Tensor) -> Tensor:
        """The mean over the experts, `[B, C]`: the prediction."""
        return self.experts.logits(scores)

    def forward(
        self,
        scores: Tensor,
        target: Target,
        *,
        generator: Generator | None = None,
        routes: Tensor | None = None,
        **supplied: object,
    ) -> Tensor:
        scores = checked(scores)
        loss = self.experts(scores, target, generator=generator, **supplied)
        routers = scores.shape[1] - 1
        if not self.training or not routers:
            return loss
        if routes is None or routes.shape != (len(scores), routers):
            given = None if routes is None else tuple(routes.shape)
            raise ValueError(
                f"routes must be the routers' logits of shape {(len(scores), routers)}, got {given}"
            )
        logits, weight = self.each(scores).detach(), scores.new_full((), self.positives)
        targets.probabilities(logits[:, 0], target, unless="which experts are right")
        for half in targets.halves(logits[:, 0], target, ignore_index=self.ignore_index):
            answers = undecided(logits, half.target).to(scores)
            each = binary_cross_entropy_with_logits(
                routes.to(scores), answers, pos_weight=weight, reduction="none"
            )
            loss = loss + half.total(each.mean(1))
        return loss


def undecided(logits_BKC: Tensor, index_B: Tensor) -> Tensor:
    """`[B, K - 1]`: whether the first i experts are wrong, and the first j right for some j > i."""
    right_BK = logits_BKC.cumsum(1).argmax(2) == index_B[:, None]  # a sum is highest where the mean is
    later_BK = right_BK.flip(1).cumsum(1).flip(1) > 0  # here or further on
    return ~right_BK[:, :-1] & later_BK[:, 1:]

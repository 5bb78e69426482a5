"""GCL: the Gaussian clouded logit loss (Li, Cheung, Lu; CVPR 2022 and TAI 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy as with_probabilities
from torch.nn.functional import log_softmax

from longtail import clouds
from longtail.clouds import Cloud
from longtail.counts import Counts, ZeroCount
from longtail.losses import functional, targets
from longtail.losses.arguments import angle, not_negative, one_of, positive
from longtail.losses.functional import Boundary, Form
from longtail.losses.fused import Terms, clouded_cross_entropy
from longtail.losses.perclass import PerClass, checked_weights
from longtail.losses.softmax import cross_entropy
from longtail.losses.targets import Half, Mixed, Target

NoiseLaw = Literal["independent", "shared"]
Halves = Literal["shared", "independent"]


class GCL(nn.Module):
    """Lowers every logit at random, rare classes the most, so that their samples are pushed further in.

    The noise is `|clip(N(0, sigma^2), -1, 1)|`, one draw per sample and class (`noise="independent"`) or one
    per sample (`"shared"`); class j moves by `strength * cloud_j * noise`. `form` says where: the cosine
    (euclidean), the angle (angular, up to pi/2) or both (unified). `margin` is for the target class alone: an
    angle in the angular form, a cosine offset in the others. `boundary` says what happens past pi. `focal` is
    the exponent of `(1 - p_y)`, without gradient. Under a `Mixed` target both halves see one draw, or two
    with `halves="independent"`. Class `weights [C]` give PyTorch's weighted
    mean. In `.eval()` mode this is the cross-entropy of `scale * cosine`.

    Example:
        >>> loss = GCL(torch.tensor([500, 50, 5]), form="angular")
        >>> loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 2])).shape
        torch.Size([])
    """

    def __init__(  # noqa: PLR0913 - the paper and its code have that many free choices
        self,
        counts: Counts,
        *,
        form: Form = "euclidean",
        cloud: Cloud = "log",
        power: float = 1 / 4,
        strength: float = 0.5,
        scale: float = 30.0,
        margin: float = 0.0,
        boundary: Boundary = "clip",
        focal: float = 0.0,
        noise: NoiseLaw = "independent",
        sigma: float = 1 / 3,
        halves: Halves = "shared",
        weights: Tensor | Sequence[float] | None = None,
        zero_count: ZeroCount = "error",
        ignore_index: int = -100,
    ):
        super().__init__()
        one_of("form", form, get_args(Form))
        one_of("boundary", boundary, get_args(Boundary))
        one_of("noise", noise, get_args(NoiseLaw))
        one_of("halves", halves, get_args(Halves))
        self.cloud = PerClass(clouds.sizes(counts, cloud, power=power, zero_count=zero_count))
        self.terms = Terms(
            form=form,
            boundary=boundary,
            strength=not_negative("strength", strength),
            scale=positive("scale", scale),
            margin=(angle if form == "angular" else not_negative)("margin", margin),
            focal=not_negative("focal", focal),
        )
        self.weights = None if weights is None else PerClass(checked_weights(weights, len(self.cloud)))
        self.noise: NoiseLaw = noise
        self.halves: Halves = halves
        self.sigma, self.ignore_index = positive("sigma", sigma), ignore_index

    def logits(self, scores: Tensor) -> Tensor:
        return self.terms.scale * scores

    def forward(
        self,
        cosine: Tensor,
        target: Target,
        *,
        generator: Generator | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """The loss; `noise` replaces the draw: before clipping and absolute value, [B, C] or [B, 1].

        With `halves="independent"` and a `Mixed` target it is [2, B, C] or [2, B, 1].
        """
        cosine = targets.checked_scores(cosine, len(self.cloud))
        if not self.training:
            return cross_entropy(self.logits(cosine), target, ignore_index=self.ignore_index)
        terms, size = self.terms, self.terms.strength * self.cloud(cosine)
        weights = None if self.weights is None else self.weights(cosine)
        unless = "a margin" if terms.margin else "a focal term" if terms.focal else None
        unless = unless if weights is None else "class weights"
        matrix = targets.probabilities(cosine, target, unless=unless)
        if matrix is not None:
            (drawn,) = self._draws(cosine, noise, generator, 1)
            return with_probabilities(self._logits(cosine, size, drawn, None), matrix)
        halves = targets.halves(cosine, target, ignore_index=self.ignore_index, weights=weights)
        twice = isinstance(target, Mixed) and self.halves == "independent"
        draws = self._draws(cosine, noise, generator, 2 if twice else 1)
        if not twice and not terms.margin:  # the logits are the same for both halves
            return self._loss(cosine, size, draws[0], halves, spent=noise is None)
        # A shared draw is read twice here, so only draws of their own may be overwritten.
        spent = noise is None and len(draws) == len(halves)
        parts = [
            self._loss(cosine, size, drawn, (half,), spent=spent)
            for half, drawn in zip(halves, draws if twice else draws * len(halves), strict=True)
        ]
        return parts[0] + parts[1] if len(parts) == 2 else parts[0]

    def draw(self, cosine: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        """The raw draw of one call, as `noise=` takes it: for several calls that are to see the same."""
        twice = isinstance(target, Mixed) and self.halves == "independent"
        drawn = torch.stack(self._draws(cosine, None, generator, 2 if twice else 1))
        return drawn if twice else drawn[0]

    def _draws(
        self, cosine: Tensor, noise: Tensor | None, generator: Generator | None, times: int
    ) -> tuple[Tensor, ...]:
        """One or two raw draws, each [B, C] or [B, 1]."""
        batch, classes = cosine.shape
        if noise is None:
            shape = (times, batch, 1 if self.noise == "shared" else classes)
            drawn = torch.empty(shape, dtype=cosine.dtype, device=cosine.device)
            return tuple(drawn.normal_(0.0, self.sigma, generator=generator).unbind())
        if not isinstance(cast(object, noise), Tensor):
            raise TypeError(f"noise must be a tensor, the raw draw, got {type(noise).__name__}")
        shapes = [(batch, classes), (batch, 1)] if times == 1 else [(2, batch, classes), (2, batch, 1)]
        if noise.shape not in shapes:
            raise ValueError(f"noise must have shape {shapes[0]} or {shapes[1]}, got {tuple(noise.shape)}")
        drawn = noise.detach().to(cosine)
        return (drawn,) if times == 1 else tuple(drawn.unbind())

    def _loss(
        self, cosine: Tensor, size: Tensor, drawn: Tensor, halves: tuple[Half, ...], spent: bool
    ) -> Tensor:
        if not torch.compiler.is_compiling():
            return clouded_cross_entropy(cosine, drawn, size, self.terms, halves, spent=spent)
        # A compiler fuses the plain equations by itself, and cannot see into a hand-written gradient.
        logits = self._logits(cosine, size, drawn, halves[0].target)
        log_probabilities = log_softmax(logits, 1)
        total = logits.new_zeros(())
        for half in halves:
            each = functional.each(log_probabilities, half.target)
            if self.terms.focal:
                each = functional.focal_factor(each, self.terms.focal).detach() * each
            total = total + half.total(each)
        return total

    def _logits(self, cosine: Tensor, size: Tensor, drawn: Tensor, index: Tensor | None) -> Tensor:
        terms, cloud = self.terms, size * drawn.clamp(-1, 1).abs()
        return terms.scale * functional.gcl(cosine, cloud, terms.form, terms.boundary, terms.margin, index)

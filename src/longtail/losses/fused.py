"""The clouded cross-entropy and its gradient in one go, a few rows at a time.

`functional.gcl` under autograd makes a dozen `[B, C]` temporaries; at 8,142 classes their memory traffic
costs more than the arithmetic. Here each block of rows stays in the cache from the noise to the gradient, the
draw's own memory becomes the gradient, and the softmax is taken once. tests/losses/test_fused.py holds this
file to `functional.gcl`. Second derivatives need the plain equations: this one raises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from longtail.losses import functional
from longtail.losses.functional import Boundary, Form
from longtail.losses.targets import Half

# Elements per block on the CPU: a megabyte of float32, so that a block and its temporaries stay in the cache.
_BLOCK = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a clouded logit is made of besides the cloud."""

    form: Form
    boundary: Boundary
    strength: float
    scale: float
    margin: float
    focal: float


def clouded_cross_entropy(
    cosine: Tensor, noise: Tensor, size: Tensor, terms: Terms, halves: tuple[Half, ...], *, spent: bool
) -> Tensor:
    """The weighted loss of one set of clouded logits; `spent` lets the gradient overwrite the noise."""
    learns = torch.is_grad_enabled() and cosine.requires_grad
    return cast(Tensor, _Clouded.apply(cosine, noise, size, terms, halves, spent, learns))


class _Clouded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cosine: Tensor,
        noise: Tensor,
        size: Tensor,
        terms: Terms,
        halves: tuple[Half, ...],
        spent: bool,
        learns: bool,
    ) -> Tensor:
        batch, classes = cosine.shape
        reuse = spent and noise.shape == cosine.shape
        gradient = noise if reuse else torch.empty(cosine.shape, dtype=cosine.dtype, device=cosine.device)
        rows = max(1, _BLOCK // classes) if cosine.device.type == "cpu" else batch
        loss = cosine.new_zeros(())
        if rows >= batch:
            loss += _block(cosine, noise, size, terms, halves, gradient, learns)
            ctx.gradient = gradient if learns else None
            return loss
        for start in range(0, batch, rows):
            block = slice(start, start + rows)
            some = tuple(_rows(half, block) for half in halves)
            loss += _block(cosine[block], noise[block], size, terms, some, gradient[block], learns)
        # An attribute, not save_for_backward: backward hands out this very tensor, and a reference held here
        # keeps autograd from adopting its memory as somebody's .grad.
        ctx.gradient = gradient if learns else None
        return loss

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph=True: a constant here would make it silently wrong
            raise RuntimeError("GCL has no second derivative; use losses.functional.gcl under autograd")
        (outer,) = grad_outputs
        gradient = cast(Tensor, ctx.gradient)
        # Reading the factor on an accelerator would make the host wait.
        unchanged = outer.device.type == "cpu" and outer.item() == 1
        return gradient if unchanged else gradient * outer, None, None, None, None, None, None


def _rows(half: Half, block: slice) -> Half:
    share = half.share
    return Half(half.target[block], share[block] if isinstance(share, Tensor) and share.ndim else share)


def _block(
    cosine: Tensor,
    noise: Tensor,
    size: Tensor,
    terms: Terms,
    halves: tuple[Half, ...],
    gradient: Tensor,
    learns: bool,
) -> Tensor:
    """The loss of some rows; their gradient is written into `gradient`, which may be the noise itself."""
    in_place = gradient if noise.shape == gradient.shape else None
    magnitude = torch.clamp(noise, -1, 1, out=in_place).abs_()
    index = halves[0].target[:, None]
    if terms.form == "euclidean":
        logits, slope = cosine * terms.scale, None
    else:
        logits, slope = _angular(cosine, magnitude, size, terms, index)
    if terms.form != "angular":
        logits.addcmul_(magnitude, size, value=-terms.scale)
        if terms.margin:
            logits.scatter_add_(1, index, _column(index, logits, -terms.margin * terms.scale))
    if not learns:
        return _losses(logits, torch.logsumexp(logits, 1), terms, halves)[0]
    top = logits.amax(1)
    softmax = torch.softmax(logits, 1, out=gradient)
    # The largest probability is at least 1/C, so its logarithm gives the log-sum-exp without a second exp.
    loss, factors = _losses(logits, top - softmax.amax(1).log(), terms, halves)
    # d loss / d cosine = scale * slope * (factor * softmax - factor * [j == y]), summed over the halves
    softmax.mul_(sum(factors[1:], factors[0])[:, None] * terms.scale)
    for half, factor in zip(halves, factors, strict=True):
        softmax.scatter_add_(1, half.target[:, None], factor[:, None] * -terms.scale)
    if slope is not None:
        softmax.mul_(slope)
    return loss


def _losses(
    logits: Tensor, total: Tensor, terms: Terms, halves: tuple[Half, ...]
) -> tuple[Tensor, list[Tensor]]:
    """The weighted loss, and for each half what the samples' own losses were multiplied by."""
    loss, factors = logits.new_zeros(()), list[Tensor]()
    for half in halves:
        each = total - logits.gather(1, half.target[:, None])[:, 0]
        factor = torch.ones_like(each).mul_(half.share)
        if terms.focal:
            factor = factor * functional.focal_factor(each, terms.focal)
        loss += (factor * each).sum()
        factors.append(factor)
    return loss, factors


def _angular(
    cosine: Tensor, magnitude: Tensor, size: Tensor, terms: Terms, index: Tensor
) -> tuple[Tensor, Tensor]:
    """`scale * cos(theta + angle)` and its slope by the cosine over the scale (`functional.gcl_angular`)."""
    angle = magnitude * (size * (math.pi / 2))
    if terms.margin and terms.form == "angular":
        angle.scatter_add_(1, index, _column(index, angle, terms.margin))
    if terms.boundary == "clip" and terms.strength / 2 * math.pi + terms.margin > math.pi:
        angle.clamp_(max=math.pi)
    poles, crossed = _reach(cosine, terms)
    near = functional.clamped(cosine) if poles else cosine
    across = angle.sin()
    fallen = _fallen(near, angle, across, terms.boundary) if crossed else near
    along = angle.cos_()  # in place, as is the slope: every further block-sized temporary misses the cache
    sine = near.square().neg_().add_(1).sqrt_()
    turned = torch.mul(near, along).addcmul_(sine, across, value=-1)
    edge = along.neg() if crossed and terms.boundary != "easy" else torch.zeros_like(size)
    slope = along.addcdiv_(across.mul_(near), sine)  # cos a + c sin a / sin t
    if crossed:
        # A mask of 0.0 and 1.0, blended by arithmetic: masked_fill and where cost ten passes each on a CPU.
        within = torch.gt(near, edge, out=torch.empty_like(near))
        beyond = 1 - within
        turned.mul_(within)
        slope.mul_(within)
        if terms.boundary == "clip":
            turned.sub_(beyond)
        else:
            slope.add_(beyond)
            turned.addcmul_(beyond, fallen)
    if poles:  # no slope where the cosine was clamped
        slope.mul_(torch.eq(near, cosine, out=sine))
    return turned.mul_(terms.scale), slope


def _reach(cosine: Tensor, terms: Terms) -> tuple[bool, bool]:
    """Whether some cosine may be clamped at +-1, and whether some angle may cross the boundary.

    Most batches do neither, which saves a third of the passes. An accelerator is not asked: it would have to
    be waited for.
    """
    if cosine.device.type != "cpu":
        return True, terms.boundary != "none"
    low, high = (float(value) for value in cosine.aminmax())
    widest = math.pi / 2 * terms.strength + (terms.margin if terms.form == "angular" else 0.0)
    lowest = 0.0 if terms.boundary == "easy" else -math.cos(min(widest, math.pi))
    # Written so that a NaN counts as both.
    poles = not (low > -0.999999 and high < 0.999999)
    return poles, terms.boundary != "none" and not low > lowest + 1e-6


def _fallen(near: Tensor, angle: Tensor, across: Tensor, boundary: Boundary) -> Tensor:
    """What stands in for the turned cosine beyond the boundary; its slope by the cosine is 1."""
    match boundary:
        case "released":
            return near - across
        case "arcface":
            return torch.addcmul(near, angle, across, value=-1)
        case _:
            return near


def _column(index: Tensor, like: Tensor, value: float) -> Tensor:
    return like.new_full(index.shape, value)

"""The equations, one function each. Pure: no modules, no state, no randomness.

B batch, C classes, K experts. A cloud is already times the strength and the noise: `strength * size_C *
noise_BC`, none of it negative. Equation numbers are those of the GCL paper (arXiv 2305.10648) as listed in
docs/method.md.
"""

from __future__ import annotations

import math
from typing import Literal, assert_never

import torch
from torch import Tensor
from torch.nn import functional

Boundary = Literal["clip", "none", "easy", "released", "arcface"]
Form = Literal["euclidean", "angular", "unified"]
Shape = Literal["concave", "linear", "convex"]


def scaled(scores_BC: Tensor, scale: float) -> Tensor:
    """`s z`: the logits of a head's scores. With the scale 1 of a linear head nothing is computed."""
    return scores_BC if scale == 1 else scale * scores_BC


# ---------------------------------------------------------------------------------------- clouded cosines


def gcl_euclidean(cosine_BC: Tensor, cloud_BC: Tensor) -> Tensor:
    """`cos(theta) - cloud`: the normalised Euclidean form, before the scale (Eq. 6)."""
    return cosine_BC - cloud_BC


def gcl_angular(cosine_BC: Tensor, angle_BC: Tensor, boundary: Boundary) -> Tensor:
    """`cos(theta + angle)`: the angular form, before the scale (Eq. 8); `angle = pi/2 * cloud`.

    Past pi the cosine would rise again. Where `theta + angle > pi`, clip: -1; none: let it rise; released:
    `cos(theta) - sin(angle)`; arcface: `cos(theta) - angle * sin(angle)`; easy: the clean cosine wherever it
    is not positive.
    """
    # cos(t + a) = cos t cos a - sin t sin a needs no acos. The derivative holds 1 / sin t: clamp first.
    cosine_BC = clamped(cosine_BC)
    if boundary == "clip":
        angle_BC = angle_BC.clamp(max=math.pi)
    along_BC, across_BC = torch.cos(angle_BC), torch.sin(angle_BC)
    turned_BC = cosine_BC * along_BC - torch.sqrt(1 - cosine_BC * cosine_BC) * across_BC
    match boundary:
        case "none":
            return turned_BC
        case "clip":
            return torch.where(cosine_BC > -along_BC, turned_BC, -1.0)
        case "easy":
            return torch.where(cosine_BC > 0, turned_BC, cosine_BC)
        case "released":
            return torch.where(cosine_BC > -along_BC, turned_BC, cosine_BC - across_BC)
        case "arcface":
            return torch.where(cosine_BC > -along_BC, turned_BC, cosine_BC - angle_BC * across_BC)
        case _:
            assert_never(boundary)


def gcl(
    cosine_BC: Tensor,
    cloud_BC: Tensor,
    form: Form,
    boundary: Boundary,
    margin: float = 0.0,
    index_B: Tensor | None = None,
) -> Tensor:
    """The unified form with its two switches (Eq. 7), before the scale.

    The margin is for the target class alone: an angle in the angular form, a cosine offset in the other two.
    """
    offset_BC = cloud_BC if form == "angular" or not margin else _added(cloud_BC, margin, index_B)
    if form == "euclidean":
        return gcl_euclidean(cosine_BC, offset_BC)
    angle_BC = cloud_BC * (math.pi / 2)
    if form == "angular":
        return gcl_angular(cosine_BC, _added(angle_BC, margin, index_B) if margin else angle_BC, boundary)
    return gcl_angular(cosine_BC, angle_BC, boundary) - offset_BC


def clamped(cosine_BC: Tensor) -> Tensor:
    """Cosines kept off +-1, where `1 / sin(theta)` is infinite; the gradient out there is 0 (spec A9)."""
    edge = 1.0 - (1e-12 if cosine_BC.dtype == torch.float64 else 1e-7)
    return cosine_BC.clamp(-edge, edge)


# ---------------------------------------------------------------------------------- margins of the target


def cosface(cosine_BC: Tensor, index_B: Tensor, margin: float | Tensor) -> Tensor:
    """`cos(theta) - margin` for the target, the cosine for the others (Wang et al. 2018)."""
    return _added(cosine_BC, -margin, index_B)


def arcface(cosine_BC: Tensor, index_B: Tensor, margin: float, boundary: Boundary) -> Tensor:
    """`cos(theta + margin)` for the target, the cosine for the others (Deng et al. 2019)."""
    own_B1 = cosine_BC.gather(1, index_B[:, None])
    turned_B1 = gcl_angular(own_B1, torch.full_like(own_B1, margin), boundary)
    return cosine_BC.scatter(1, index_B[:, None], turned_B1)


def ldam_margins(relative_C: Tensor, largest: float) -> Tensor:
    """`m_j` proportional to `n_j^(-1/4)`, the rarest class has the largest (Cao et al. 2019)."""
    return largest * relative_C


def _added(values_BC: Tensor, amount: float | Tensor, index_B: Tensor | None) -> Tensor:
    if index_B is None:
        raise ValueError("a margin needs class indices")
    if isinstance(amount, Tensor):
        amount_B1 = amount.to(values_BC)[:, None]
    else:
        amount_B1 = values_BC.new_full((len(index_B), 1), amount)
    return values_BC.scatter_add(1, index_B[:, None], amount_B1)


# ------------------------------------------------------------------------------------------- adjustments


def logit_adjusted(logits_BC: Tensor, log_prior_C: Tensor, tau: float) -> Tensor:
    """`z + tau * log pi` (Menon et al. 2021); tau = 1 is balanced softmax (Ren et al. 2020)."""
    return logits_BC + tau * log_prior_C


def feature_balanced(
    logits_BC: Tensor, size_C: Tensor, norms_B: Tensor, progress: float | Tensor, strength: float
) -> Tensor:
    """`z - t * strength * size / |f|` with the curriculum `t = progress^2` (Li et al. 2022)."""
    return logits_BC - (progress**2 * strength) * size_C / (norms_B[:, None] + 1e-12)


def lade(
    logits_BC: Tensor, index_B: Tensor, kept_B: Tensor, log_prior_C: Tensor, regularization: float
) -> Tensor:
    """`-sum_c pi_c (mean of z_c over class c - S_c - k S_c^2)`, a share for each sample (Hong et al. 2021).

    `S_c = log mean_i exp(z_c(i) - log pi_c - log C)` over the kept samples. The mean of the shares over the
    kept samples is the bound; a class without samples has the mean 0.
    """
    classes, prior_C = logits_BC.shape[1], log_prior_C.exp()
    own_BC = (index_B[:, None] == torch.arange(classes, device=index_B.device)) & kept_B[:, None]
    kept_B = kept_B | ~kept_B.any()  # of no samples at all nobody asks for the share, but it has to be finite
    number = kept_B.sum()
    weight_BC = own_BC * (prior_C * number / own_BC.sum(0).clamp_min(1))
    spread_BC = (logits_BC - log_prior_C - math.log(classes)).masked_fill(~kept_B[:, None], -torch.inf)
    normalizer_C = torch.logsumexp(spread_BC, 0) - number.to(logits_BC.dtype).log()
    same = (prior_C * (normalizer_C + regularization * normalizer_C**2)).sum()
    return same - (weight_BC * logits_BC).sum(1)


def smoothing(counts_C: Tensor, head: float, tail: float, shape: Shape) -> Tensor:
    """How much of its probability a class gives to all: `head` for the most frequent, `tail` for the rarest.

    With `x = (n_j - n_min) / (n_max - n_min)`, concave: `tail + (head - tail) * sin(pi x / 2)`; linear:
    `tail + (head - tail) * x`; convex: `head + (head - tail) * sin(3 pi / 2 + pi x / 2)` (Zhong et al. 2021).
    """
    images_C = counts_C.double()
    span = images_C.max() - images_C.min()
    place_C = (images_C - images_C.min()) / span if span > 0 else torch.zeros_like(images_C)
    match shape:
        case "concave":
            return tail + (head - tail) * torch.sin(math.pi / 2 * place_C)
        case "linear":
            return tail + (head - tail) * place_C
        case "convex":
            return head + (head - tail) * torch.sin(1.5 * math.pi + math.pi / 2 * place_C)
        case _:
            assert_never(shape)


# ------------------------------------------------------------------------------------- losses per sample


def each(log_probabilities_BC: Tensor, index_B: Tensor) -> Tensor:
    """`-log p_y` of every sample."""
    return functional.nll_loss(log_probabilities_BC, index_B, reduction="none")


def smoothed(log_probabilities_BC: Tensor, index_B: Tensor, smoothing_C: Tensor) -> Tensor:
    """`(1 - e_y) * (-log p_y) + e_y * mean_j(-log p_j)` (label-aware smoothing, Zhong et al. 2021)."""
    given_B = smoothing_C[index_B]
    return (1 - given_B) * each(log_probabilities_BC, index_B) - given_B * log_probabilities_BC.mean(1)


def focal_factor(each_B: Tensor, gamma: float) -> Tensor:
    """`(1 - p_y)^gamma` from `-log p_y` (Lin et al. 2017)."""
    # 1 - exp(-x) by expm1 keeps its digits near p = 1; below gamma = 1 the slope at exactly 0 is infinite.
    return (-torch.expm1(-each_B)).clamp_min(torch.finfo(each_B.dtype).tiny) ** gamma


# ------------------------------------------------------------------------------- several experts, logits_BKC


def ride_temperatures(counts_C: Tensor, rho: float) -> Tensor:
    """`T_j = v_j / max v` with `v_j = C * pi_j * rho + 1 - rho`; all 1 for rho = 0 (Wang et al. 2021)."""
    images_C = counts_C.double()
    value_C = len(images_C) * images_C / images_C.sum() * rho + 1 - rho
    return value_C / value_C.max()


def apart(logits_BKC: Tensor, temperature_C: Tensor) -> Tensor:
    """`sum_e KL(softmax(mean / T) || softmax(z_e / T))` of every sample; the mean gets no gradient."""
    mean_B1C = functional.log_softmax(logits_BKC.detach().mean(1, keepdim=True) / temperature_C, -1)
    each_BKC = functional.log_softmax(logits_BKC / temperature_C, -1)
    return (mean_B1C.exp() * (mean_B1C - each_BKC)).sum((1, 2))


def distilled(logits_BKC: Tensor, teacher_BC: Tensor, temperature: float) -> Tensor:
    """`sum_e T^2 KL(softmax(teacher / T) || softmax(z_e / T))` of every sample (Hinton et al. 2015)."""
    teacher_B1C = functional.log_softmax(teacher_BC[:, None] / temperature, -1)
    each_BKC = functional.log_softmax(logits_BKC / temperature, -1)
    return temperature**2 * (teacher_B1C.exp() * (teacher_B1C - each_BKC)).sum((1, 2))


def mutual(log_probabilities_BKC: Tensor) -> Tensor:
    """`sum_(e != f) KL(p_f || p_e) / (K - 1)` of every sample; gradient flows into both (Li et al. 2022)."""
    experts = log_probabilities_BKC.shape[1]
    if experts == 1:
        return log_probabilities_BKC.new_zeros(len(log_probabilities_BKC))
    ahead_BKC = experts * log_probabilities_BKC - log_probabilities_BKC.sum(1, keepdim=True)
    return (log_probabilities_BKC.exp() * ahead_BKC).sum((1, 2)) / (experts - 1)

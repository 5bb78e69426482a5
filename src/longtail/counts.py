"""Class counts: the one thing a method may know about the data. Profiles, shot groups, effective numbers.

Counts are an int64 tensor `[C]` of training images per class, class 0 first. Every loss, cloud, sampler and
report takes them and nothing else of the data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

Counts = Tensor | Sequence[int] | NDArray[Any]
ZeroCount = Literal["error", "clamp"]
ShotRule = Literal["paper", "decoupling", "lfme"]


def checked(counts: Counts, *, zero_count: ZeroCount = "error") -> Tensor:
    """The counts as an int64 CPU tensor `[C]`; a ValueError where they cannot be counts.

    A class without images is an error, unless `zero_count="clamp"` treats it as a class of one image.
    """
    whole = _whole(counts)
    if zero_count == "clamp":
        return whole.clamp(min=1)
    if zero_count != "error":
        raise ValueError(f'zero_count must be "error" or "clamp", got {zero_count!r}')
    if bool((whole == 0).any()):
        where = (whole == 0).nonzero().flatten().tolist()
        raise ValueError(f'classes without images: {where[:10]}; zero_count="clamp" counts them as one')
    return whole


def _whole(counts: Counts) -> Tensor:
    try:
        given = torch.as_tensor(counts).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:  # None, text, rows of unequal length, 2 ** 70
        raise ValueError(f"counts must be one whole number per class, got {counts!r:.60}") from error
    if given.ndim != 1 or not len(given):
        raise ValueError(f"counts must be one number per class, shape [C], got shape {tuple(given.shape)}")
    if given.dtype == torch.bool or given.is_complex():
        raise ValueError(f"counts must be whole numbers, got {given.dtype}")
    if given.is_floating_point() and not bool((torch.isfinite(given) & (given == given.round())).all()):
        raise ValueError("counts must be finite whole numbers")
    if given.is_floating_point() and bool((given.abs() >= 2.0**53).any()):
        raise ValueError("counts of 2^53 and more are not exact in floating point; pass them as integers")
    whole = given.to(torch.int64)
    if bool((whole < 0).any()):
        raise ValueError(f"counts must not be negative: class {int(whole.argmin())} has {int(whole.min())}")
    return whole


# ---------------------------------------------------------------------------------------------- profiles


def exponential(classes: int, largest: int, ratio: float) -> Tensor:
    """`n_i = int(largest * (1/ratio) ** (i / (C - 1)))`, truncated as the published CIFAR-LT lists are.

    Example:
        >>> exponential(10, 5000, 100).tolist()
        [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    factor = 1.0 / _checked_ratio(ratio)
    return _profile(classes, largest, lambda i: _truncated(largest * factor ** (i / max(classes - 1, 1))))


def step(classes: int, largest: int, ratio: float) -> Tensor:
    """The first `C // 2` classes have `largest` images, the others `int(largest / ratio)`.

    Example:
        >>> step(4, 500, 10).tolist()
        [500, 500, 50, 50]
    """
    factor = 1.0 / _checked_ratio(ratio)
    half = classes // 2 if classes > 1 else 1
    return _profile(classes, largest, lambda i: largest if i < half else _truncated(largest * factor))


def pareto(classes: int, largest: int, smallest: int, alpha: float = 6.0) -> Tensor:
    """The density of a Pareto law of index alpha, read off at equal steps: the shape of ImageNet-LT.

    `n_i = max(smallest, int(largest * x_i ** -(alpha + 1)))` with `x_i = 1 + (x_last - 1) * i / (C - 1)` and
    `x_last = (largest / smallest) ** (1 / (alpha + 1))`, so that the curve starts at `largest` and ends at
    `smallest`. The published ImageNet-LT and Places-LT lists hold details that no formula restores: their
    totals (115,846 and 62,500) differ from this one's. Use their lists to compare with papers.

    Example:
        >>> pareto(5, 1280, 5).tolist()
        [1280, 201, 46, 14, 5]
    """
    if not 1 <= smallest <= largest:
        raise ValueError(f"pareto needs 1 <= smallest <= largest, got {smallest} and {largest}")
    if not (math.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be finite and positive, got {alpha}")
    exponent = alpha + 1
    last = (largest / smallest) ** (1 / exponent)

    def count(i: int) -> int:
        place = 1 + (last - 1) * i / max(classes - 1, 1)
        return max(smallest, _truncated(largest * place**-exponent))

    return _profile(classes, largest, count)


def balanced(classes: int, each: int) -> Tensor:
    """The same number of images for every class."""
    return _profile(classes, each, lambda _: each)


def _profile(classes: int, largest: int, count: Callable[[int], int]) -> Tensor:
    if classes < 1 or classes != int(classes):
        raise ValueError(f"there must be a whole number of classes, at least one, got {classes}")
    if not (math.isfinite(largest) and largest >= 1 and largest == int(largest)):
        raise ValueError(f"the largest class must have a whole number of images, at least one, got {largest}")
    made = torch.tensor([count(i) for i in range(int(classes))], dtype=torch.int64)
    if int(made.min()) < 1:
        raise ValueError(f"this profile leaves class {int(made.argmin())} without images; lower the ratio")
    return made


def _truncated(images: float) -> int:
    """The whole part; of 0.9999999999999999, which is 49 * (1 / 49), it is 1."""
    nearest = round(images)
    return nearest if abs(images - nearest) <= 1e-12 * images else int(images)


def _checked_ratio(ratio: float) -> float:
    if not (math.isfinite(ratio) and ratio >= 1):
        raise ValueError(f"ratio is largest over smallest and at least 1, got {ratio}")
    return ratio


# ------------------------------------------------------------------------------------------ descriptions


def ratio(counts: Counts, *, zero_count: ZeroCount = "error") -> float:
    """The realised imbalance, largest over smallest count. CIFAR-100 at a nominal 200 is really 250.

    Example:
        >>> ratio(exponential(100, 500, 200))
        250.0
    """
    whole = checked(counts, zero_count=zero_count)
    return int(whole.max()) / int(whole.min())


def log_prior(counts: Counts, *, zero_count: ZeroCount = "error") -> Tensor:
    """`log pi_j = log(n_j / N)`, float64: what logit adjustment and its kin add to the logits."""
    images = checked(counts, zero_count=zero_count).double()
    return torch.log(images / images.sum())


def effective_number(counts: Counts, beta: float) -> Tensor:
    """`E_n = (1 - beta^n) / (1 - beta)` per class, float64 (Eq. 12); n in the limit beta = 1."""
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be in [0, 1], got {beta}")
    images = _whole(counts).double()
    if beta == 1:
        return images
    if beta == 0:  # every class that has an image has one effective image; 0 * log 0 below would be NaN
        return (images > 0).double()
    # 1 - beta^n by expm1: for few images and beta near 1 the plain difference loses ten digits.
    return -torch.expm1(images * math.log(beta)) / (1 - beta)


def effective_weights(counts: Counts, beta: float, *, zero_count: ZeroCount = "error") -> Tensor:
    """Class weights proportional to 1 / E_n that sum to C, float64 (Cui et al. 2019)."""
    inverse = 1 / effective_number(checked(counts, zero_count=zero_count), beta)
    return inverse * (len(inverse) / inverse.sum())


class Shots(NamedTuple):
    """Which classes are many-shot, medium-shot and few-shot: three boolean tensors `[C]`."""

    many: Tensor
    medium: Tensor
    few: Tensor

    def means(self, values: Tensor) -> tuple[float, float, float]:
        """The mean of `values [C]` over each group; NaN, not 0, for a group without classes."""
        if not isinstance(cast(object, values), Tensor):
            kind = type(values).__name__
            raise TypeError(f"values must be a tensor [C], got {kind}; pass torch.as_tensor(values)")
        chosen = values.detach().double().cpu()
        many, medium, few = (float(chosen[mask].mean()) for mask in self)
        return many, medium, few


def shots(counts: Counts, rule: ShotRule = "paper") -> Shots:
    """Many, medium and few. They differ at 20 and 100 images only, which moves published columns.

    | rule | many | medium | few |
    | --- | --- | --- | --- |
    | paper | n > 100 | 20 < n <= 100 | n <= 20 |
    | decoupling | n > 100 | 20 <= n <= 100 | n < 20 |
    | lfme | n >= 100 | 20 < n < 100 | n <= 20 |
    """
    whole = _whole(counts)
    if rule not in ("paper", "decoupling", "lfme"):
        raise ValueError(f'the shot rule is "paper", "decoupling" or "lfme", got {rule!r}')
    many = whole >= 100 if rule == "lfme" else whole > 100
    few = whole < 20 if rule == "decoupling" else whole <= 20
    return Shots(many, ~many & ~few, few)


def suggest_scale(classes: int, confidence: float = 0.9999) -> float:
    """A logit scale for few classes: the least that lets a perfectly placed sample reach `confidence`.

    With anchors on a simplex (`cos = -1/(C-1)` to each other) and the feature on its anchor, the softmax of
    `scale * cosine` gives `1 / (1 + (C-1) exp(-scale * C/(C-1)))`; this solves for the scale. It is guidance
    and no default: 30, the paper's value, serves ten classes and more. With two, 30 lets logits differ by 60,
    and a step moves them by the square of the scale: where the learning rate is large for that, training can
    end with every image in the head class. Where it is not, 30 does as well or better; lower the rate first.

    Example:
        >>> [round(suggest_scale(classes), 1) for classes in (2, 10, 100)]
        [4.6, 10.3, 13.7]
    """
    if classes < 2:
        raise ValueError(f"a scale is for two classes or more, got {classes}")
    if not 1 / classes < confidence < 1:
        raise ValueError(f"confidence must be between 1/C and 1, got {confidence}")
    return (classes - 1) / classes * math.log((classes - 1) * confidence / (1 - confidence))

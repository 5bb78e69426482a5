"""Cloud sizes: how far the logit of each class is perturbed, from its count alone (Eq. 16 and 17).

A rare class gets a large cloud. Sizes are divided by their maximum, so they lie in [0, 1] and the strength of
the perturbation is a separate number of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, assert_never, get_args

import torch
from torch import Tensor

from longtail import counts as class_counts
from longtail.counts import Counts, ZeroCount

CloudName = Literal["log", "power", "cosine", "none"]
Cloud = CloudName | Tensor | Sequence[float]

# Cosines below this are rounding: cos(pi/2) is 6e-17 in float64, and dividing by it would make equal counts
# 1. The other forms have no such error, and their sizes may be as small: n_max * n^-4 of a million is 1e-18.
_ROUNDING = 1e-12


def raw(
    counts: Counts, cloud: CloudName = "log", *, power: float = 1 / 4, zero_count: ZeroCount = "error"
) -> Tensor:
    """Sizes before the division by their maximum, float64 `[C]`.

    log: `log n_max - log n_j`; power: `n_max * n_j^-power`; cosine: `cos(pi/2 * n_j / n_max)`; none: 0.
    """
    if cloud not in get_args(CloudName):
        raise ValueError(f'cloud is "log", "power", "cosine", "none" or one number per class, got {cloud!r}')
    images = class_counts.checked(counts, zero_count=zero_count).double()
    largest = images.max()
    match cloud:
        case "log":
            return torch.log(largest) - torch.log(images)
        case "power":
            if not (math.isfinite(power) and power > 0):
                raise ValueError(f"power must be positive, got {power}")
            return largest * images**-power
        case "cosine":
            made = torch.cos(images / largest * (math.pi / 2))
            return torch.where(made < _ROUNDING, 0.0, made)
        case "none":
            return torch.zeros_like(images)
        case _:
            assert_never(cloud)


def sizes(
    counts: Counts, cloud: Cloud = "log", *, power: float = 1 / 4, zero_count: ZeroCount = "error"
) -> Tensor:
    """Cloud sizes in [0, 1], largest 1, float64 `[C]`; `cloud` may be a vector of your own.

    Equal counts give 0 for `log` and `cosine`. They give 1 for `power`: an offset common to all classes,
    which cancels in the softmax when the noise is shared and is pure noise when it is not. One class always
    gives 0.

    Example:
        >>> [round(size, 3) for size in sizes([1000, 100, 10], "log").tolist()]
        [0.0, 0.5, 1.0]
    """
    if isinstance(cloud, str):
        unscaled = raw(counts, cloud, power=power, zero_count=zero_count)
    else:
        unscaled = _own(cloud, len(class_counts.checked(counts, zero_count=zero_count)))
    if len(unscaled) == 1:
        return torch.zeros_like(unscaled)
    largest = unscaled.max()
    return unscaled / largest if largest > 0 else unscaled


def _own(cloud: Tensor | Sequence[float], classes: int) -> Tensor:
    try:
        given = torch.as_tensor(cloud).detach().cpu().double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"a cloud of your own is one number per class, got {cloud!r:.60}") from error
    if given.shape != (classes,):
        raise ValueError(f"a cloud of your own needs shape [{classes}], got {tuple(given.shape)}")
    if not bool((torch.isfinite(given) & (given >= 0)).all()):
        raise ValueError("cloud sizes must be finite and not negative")
    return given

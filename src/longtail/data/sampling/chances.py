"""Counts and a rule to the chance of each class (spec C)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from longtail import clouds
from longtail import counts as class_counts
from longtail.counts import Counts

Rule = Literal[
    "instance",
    "class_balanced",
    "square_root",
    "power",
    "effective_number",
    "cben",
    "progressive",
    "class_aware",
    "reverse",
]


def probabilities(  # noqa: PLR0913
    counts: Counts,
    rule: Rule,
    *,
    power: float = 0.5,
    beta: float = 0.9999,
    epoch: int = 0,
    epochs: int = 1,
) -> Tensor:
    """The chance of each class under `rule`: float64 `[C]`, sum 1, and 0 for a class without images.

    `power` belongs to the rule of that name, `beta` to effective_number and cben, `epoch` (from 0) of
    `epochs` to progressive, which starts as instance sampling and ends class-balanced.

    Example:
        >>> probabilities([90, 10], "square_root").tolist()
        [0.75, 0.25]
        >>> probabilities([90, 10, 0], "class_balanced").tolist()
        [0.5, 0.5, 0.0]
    """
    clamped = class_counts.checked(counts, zero_count="clamp")
    present = torch.as_tensor(counts).cpu() > 0
    if not present.any():
        raise ValueError("no class has an image, so there is nothing to sample")
    images = clamped[present]
    weights = torch.zeros(len(clamped), dtype=torch.float64)
    weights[present] = _weights(images, rule, power=power, beta=beta, mix=_progress(rule, epoch, epochs))
    chances = weights / weights.sum()
    if not bool(chances.isfinite().all()):  # only the power can be too large for float64, or be NaN
        raise ValueError(
            f"power must be finite and moderate for counts up to {int(images.max())}, got {power}"
        )
    return chances


def _weights(images: Tensor, rule: Rule, *, power: float, beta: float, mix: float) -> Tensor:
    """Not normalised; `images` holds no zero."""
    n = images.double()
    match rule:
        case "instance":
            return n
        case "class_balanced" | "class_aware":
            return torch.ones_like(n)
        case "square_root":
            return n.sqrt()
        case "power":
            return n**power
        case "effective_number":
            return n / class_counts.effective_number(images, beta)
        case "cben":
            return n / _effective_number(n, beta + 1e-5 * clouds.sizes(images, "log"))
        case "progressive":
            return (1 - mix) * n / n.sum() + mix / len(n)
        case "reverse":
            return 1 / n
        case _:
            raise ValueError(f"unknown sampling rule {rule!r}; there are {', '.join(get_args(Rule))}")


def _effective_number(n: Tensor, beta: Tensor) -> Tensor:
    """`counts.effective_number` with a beta per class."""
    if not 0 < float(beta.min()) <= float(beta.max()) < 1:
        raise ValueError(f"cben needs 0 < beta < 1 - 1e-5, got {float(beta.min())}")
    return -torch.expm1(n * beta.log()) / (1 - beta)


def _progress(rule: Rule, epoch: int, epochs: int) -> float:
    if rule != "progressive":
        return 0.0
    if not 0 <= epoch < epochs:
        raise ValueError(f"progressive sampling knows epochs 0 to {epochs - 1}, not {epoch}; give epochs=")
    return epoch / (epochs - 1) if epochs > 1 else 0.0

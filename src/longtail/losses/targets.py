"""What a loss may be asked to predict, and how much each sample weighs in the mean."""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple, cast

import torch
from torch import Tensor


class Mixed(NamedTuple):
    """Two class indices per image, as mixup and its kin produce: `weight` for `first`, the rest for `second`.

    `weight` is one number for the batch (a float or a tensor without dimensions) or one per image, `[B]`.
    """

    first: Tensor
    second: Tensor
    weight: float | Tensor


Target = Tensor | Mixed

_PART = "the weight of Mixed is the part of `first` and lies in [0, 1]"
_OFF = 0.01  # how far a row of probabilities may be from 1: a thousand of them, each rounded to 16 bits


class Half(NamedTuple):
    """Class indices `[B]` that are safe to gather with, and what each sample's loss is multiplied by."""

    target: Tensor
    share: float | Tensor

    def total(self, each: Tensor) -> Tensor:
        """The weighted mean of the losses `each [B]`: the shares already hold the division."""
        return (each * self.share).sum()


def checked_scores(scores: Tensor, classes: int | None) -> Tensor:
    """Scores `[B, C]` in at least float32: 16-bit cosines times a scale of 30 lose tenths of a logit."""
    if not isinstance(cast(object, scores), Tensor):
        raise TypeError(f"scores must be a tensor [batch, C], got {type(scores).__name__}")
    if scores.ndim != 2 or (classes is not None and scores.shape[1] != classes):
        wanted = "C" if classes is None else f"{classes}"
        raise ValueError(f"scores must have shape [batch, {wanted}], got {tuple(scores.shape)}")
    if not scores.is_floating_point():
        raise TypeError(f"scores must be floating point, got {scores.dtype}")
    if not scores.shape[0]:
        raise ValueError("the batch is empty: a mean over no samples has no value")
    return scores if scores.dtype in (torch.float32, torch.float64) else scores.float()


def checked_kind(target: Target) -> None:
    """A TypeError where a list, an array or a bare tuple stands in for a target."""
    parts = (target.first, target.second) if isinstance(target, Mixed) else (target,)
    for part in parts:
        if not isinstance(cast(object, part), Tensor):
            raise TypeError(
                "a target is a tensor of class indices [B], a Mixed(first, second, weight) of two of them or "
                f"a tensor of probabilities [B, C], not {type(part).__name__}"
            )


def probabilities(scores: Tensor, target: Target, *, unless: str | None = None) -> Tensor | None:
    """The target as a `[B, C]` probability matrix, or None where it holds class indices.

    `unless` names the term of a loss that depends on the class index; such a loss refuses a matrix.
    """
    checked_kind(target)
    if isinstance(target, Mixed) or not target.is_floating_point():
        return None
    if target.shape != scores.shape:
        raise ValueError(
            f"a floating point target holds probabilities of shape {tuple(scores.shape)}, "
            f"got {tuple(target.shape)}; class indices are integers"
        )
    if unless is not None:
        raise TypeError(
            f"probability targets do not go with {unless}, which depends on the class index; "
            "pass Mixed(first, second, weight)"
        )
    matrix = target.to(scores.dtype)
    # As for class indices, the values of an accelerator are not looked at.
    if matrix.device.type == "cpu" and not torch.compiler.is_compiling():
        off = (matrix.sum(1) - 1).abs().max()
        if not (float(matrix.min()) >= 0 and float(off) <= _OFF):
            raise ValueError("probability targets must not be negative, and each row must sum to 1")
    return matrix


def halves(
    scores: Tensor, target: Target, *, ignore_index: int = -100, weights: Tensor | None = None
) -> tuple[Half, ...]:
    """One half for class indices, two for a `Mixed`; each is averaged over its own samples.

    Samples of `ignore_index` get share 0; a half of nothing else gives 0. Class `weights [C]` give PyTorch's
    weighted mean, which divides by the weights of the targets.
    """
    if not isinstance(target, Mixed):
        return (_half(scores, target, ignore_index, weights, None),)
    mix = checked_weight(target, len(scores))
    mix = mix.to(scores) if isinstance(mix, Tensor) else mix
    first = _half(scores, target.first, ignore_index, weights, mix)
    return first, _half(scores, target.second, ignore_index, weights, 1 - mix)


def checked_weight(target: Mixed, samples: int) -> float | Tensor:
    mix = target.weight
    if not isinstance(mix, Tensor):
        if not isinstance(cast(object, mix), Real):
            raise TypeError(f"{_PART}; it is a number or a tensor, got {type(mix).__name__}")
        if not 0 <= mix <= 1:
            raise ValueError(f"{_PART}, got {mix}")
    elif mix.ndim and mix.shape != (samples,):
        raise ValueError(f"the weight of Mixed is one number or [{samples}], got {tuple(mix.shape)}")
    elif mix.device.type == "cpu" and not torch.compiler.is_compiling():  # as for class indices
        outside = mix[~((mix >= 0) & (mix <= 1))]
        if len(outside):
            raise ValueError(f"{_PART}, got {float(outside[0])}")
    return mix


def _half(
    scores: Tensor, index: Tensor, ignore_index: int, weights: Tensor | None, mix: float | Tensor | None
) -> Half:
    if index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
        raise TypeError(f"class indices must be integers, got {index.dtype}")
    if index.shape != (len(scores),):
        raise ValueError(f"class indices must have shape [{len(scores)}], got {tuple(index.shape)}")
    index = index.long()
    share = mix if mix is not None else 1.0
    if not _may_hold_ignored(index, scores.shape[1], ignore_index):
        if weights is None:
            return Half(index, share / len(scores))
        valid = weights.to(scores)[index]
    else:
        kept = index != ignore_index
        index = torch.where(kept, index, 0)
        valid = kept.to(scores.dtype) if weights is None else weights.to(scores)[index] * kept
    # A half without a sample has only zeros to divide: 0 / tiny = 0, where 0 / 0 would be NaN.
    return Half(index, share * valid / valid.sum().clamp_min(torch.finfo(scores.dtype).tiny))


def _may_hold_ignored(index: Tensor, classes: int, ignore_index: int) -> bool:
    """Whether to mask; on the CPU also whether every index is a class.

    Reading the values of an accelerator's tensor would make the host wait for it, so there the mask is always
    made and a wrong index is left to the device's own assertion. Nor are values read while compiling.
    """
    if index.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    low, high = index.aminmax()
    if low >= 0 and high < classes:
        return 0 <= ignore_index < classes
    wrong = index[((index < 0) | (index >= classes)) & (index != ignore_index)]
    if len(wrong):
        raise ValueError(f"target {int(wrong[0])} is not one of the classes 0..{classes - 1}")
    return True

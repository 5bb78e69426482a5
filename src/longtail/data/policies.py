"""AutoAugment's CIFAR-10 policy and RandAugment, on whole uint8 batches, driven by given numbers in [0, 1).

An image's numbers name its operations and their signs. Strengths follow the papers' ranges (Cubuk et al.
2019, 2020); the sign of a shear, shift, turn or enhancement is drawn, as in common practice. What moves in
from outside is black.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import torch
from torch import Tensor

from longtail.data import pixels


class Operation(IntEnum):
    IDENTITY = 0
    SHEAR_X = 1
    SHEAR_Y = 2
    TRANSLATE_X = 3
    TRANSLATE_Y = 4
    ROTATE = 5
    INVERT = 6
    SOLARIZE = 7
    POSTERIZE = 8
    AUTOCONTRAST = 9
    BRIGHTNESS = 10
    CONTRAST = 11
    EQUALIZE = 12
    COLOR = 13
    SHARPNESS = 14


# amount = start + sign * slope * strength, for strength in [0, 1]; whether the sign is drawn. A shift is a
# share of the width: 150 of 331 pixels.
_START, _SLOPE, _SIGNED = zip(
    *{
        Operation.IDENTITY: (0.0, 0.0, False),
        Operation.SHEAR_X: (0.0, 0.3, True),
        Operation.SHEAR_Y: (0.0, 0.3, True),
        Operation.TRANSLATE_X: (0.0, 150 / 331, True),
        Operation.TRANSLATE_Y: (0.0, 150 / 331, True),
        Operation.ROTATE: (0.0, 30.0, True),
        Operation.INVERT: (0.0, 0.0, False),
        Operation.SOLARIZE: (256.0, -256.0, False),
        Operation.POSTERIZE: (8.0, -4.0, False),
        Operation.AUTOCONTRAST: (0.0, 0.0, False),
        Operation.BRIGHTNESS: (1.0, 0.9, True),
        Operation.CONTRAST: (1.0, 0.9, True),
        Operation.EQUALIZE: (0.0, 0.0, False),
        Operation.COLOR: (1.0, 0.9, True),
        Operation.SHARPNESS: (1.0, 0.9, True),
    }.values()
)

# Two (operation, probability, level of 0..9) per sub-policy: the CIFAR-10 table of the AutoAugment paper.
_CIFAR10 = """
Invert .1 7, Contrast .2 6;  Rotate .7 2, Translate_X .3 9;  Sharpness .8 1, Sharpness .9 3
Shear_Y .5 8, Translate_Y .7 9;  AutoContrast .5 8, Equalize .9 2;  Shear_Y .2 7, Posterize .3 7
Color .4 3, Brightness .6 7;  Sharpness .3 9, Brightness .7 9;  Equalize .6 5, Equalize .5 1
Contrast .6 7, Sharpness .6 5;  Color .7 7, Translate_X .5 8;  Equalize .3 7, AutoContrast .4 8
Translate_Y .4 3, Sharpness .2 6;  Brightness .9 6, Color .2 8;  Solarize .5 2, Invert .0 3
Equalize .2 0, AutoContrast .6 0;  Equalize .2 8, Equalize .6 4;  Color .9 9, Equalize .6 6
AutoContrast .8 4, Solarize .2 8;  Brightness .1 3, Color .7 0;  Solarize .4 5, AutoContrast .9 3
Translate_Y .9 9, Translate_Y .7 9;  AutoContrast .9 2, Solarize .8 3;  Equalize .8 8, Invert .1 3
Translate_Y .7 9, AutoContrast .9 1
"""


def _parsed(table: str) -> tuple[tuple[tuple[Operation, float, float], ...], ...]:
    """Sub-policies as ((operation, probability, strength in [0, 1]), ...)."""
    rows = [row for line in table.strip().splitlines() for row in line.split(";")]
    cells = [[cell.split() for cell in row.split(",")] for row in rows]
    return tuple(
        tuple((Operation[name.upper()], float(chance), int(level) / 9) for name, chance, level in row)
        for row in cells
    )


CIFAR10 = _parsed(_CIFAR10)

# RandAugment's fourteen: no inversion, and "leave it" is one of them.
RANDOM = tuple(operation for operation in Operation if operation != Operation.INVERT)


@dataclass(frozen=True)
class AutoAugment:
    """One of 25 learned pairs of operations per image, each with its probability."""

    columns: int = 5  # which pair; then, for each of its two, whether and with which sign

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        facts = _facts(images.device)[_choice(draws[:, 0], len(CIFAR10))]
        for turn in range(2):
            operation, chance, strength = facts[:, turn].unbind(1)
            asked = draws[:, 1 + 2 * turn] < chance
            operation = torch.where(asked, operation, Operation.IDENTITY).long()
            amount = amounts(operation, strength, draws[:, 2 + 2 * turn], images.shape[3])
            images = applied(images, operation, amount)
        return images


@dataclass(frozen=True)
class RandAugment:
    """`count` operations per image, drawn evenly from fourteen, all of one strength (magnitude of 30)."""

    count: int = 2
    magnitude: float = 9.0

    @property
    def columns(self) -> int:
        return 2 * self.count

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        table = _random(images.device)
        strength = torch.full((len(images),), self.magnitude / 30, device=images.device)
        for turn in range(self.count):
            operation = table[_choice(draws[:, 2 * turn], len(RANDOM))]
            amount = amounts(operation, strength, draws[:, 2 * turn + 1], images.shape[3])
            images = applied(images, operation, amount)
        return images


# The tables go to a device once, not once a batch.
@cache
def _facts(device: torch.device) -> Tensor:
    return torch.tensor(CIFAR10, dtype=torch.float32, device=device)


@cache
def _random(device: torch.device) -> Tensor:
    return torch.tensor(RANDOM, device=device)


@cache
def _ranges(device: torch.device) -> Tensor:
    return torch.tensor((_START, _SLOPE, _SIGNED), dtype=torch.float32, device=device)


def _choice(draw: Tensor, count: int) -> Tensor:
    return (draw * count).long().clamp_(max=count - 1)  # the product may round up to `count`


def amounts(operation: Tensor, strength: Tensor, draw: Tensor, width: int) -> Tensor:
    """What each operation is given: pixels, degrees, bits, a threshold, a factor. A draw < 1/2 is a minus."""
    start, slope, signed = _ranges(draw.device)[:, operation]
    amount = start + torch.where((draw < 0.5) & (signed > 0), -1.0, 1.0) * slope * strength
    shift = (operation == Operation.TRANSLATE_X) | (operation == Operation.TRANSLATE_Y)
    amount = torch.where(shift, (amount * width).trunc(), amount)
    return torch.where(operation == Operation.POSTERIZE, amount.round(), amount)


Change = Callable[[Tensor, Tensor, Tensor], Tensor]


def applied(images: Tensor, operation: Tensor, amount: Tensor, *, grouped: bool | None = None) -> Tensor:
    """Each image changed by its own operation, kind by kind.

    `grouped` hands a kind only the images that ask for it, which needs their number on the host: free on a
    CPU (the default there), a stall on an accelerator, where every kind sees the whole batch. Same result.
    """
    grouped = images.device.type == "cpu" if grouped is None else grouped
    kinds: tuple[tuple[int, int, Change], ...] = (
        (Operation.SHEAR_X, Operation.ROTATE, _geometry),
        (Operation.INVERT, Operation.CONTRAST, _curve),
        (Operation.EQUALIZE, Operation.EQUALIZE, lambda some, _, __: pixels.equalized(some)),
        (Operation.COLOR, Operation.COLOR, lambda some, _, factor: pixels.coloured(some, factor)),
        (Operation.SHARPNESS, Operation.SHARPNESS, lambda some, _, factor: pixels.sharpened(some, factor)),
    )
    for first, last, change in kinds:
        asked = (operation >= first) & (operation <= last)
        if grouped:
            rows = asked.nonzero().squeeze(1)
            if len(rows):
                changed = change(images.index_select(0, rows), operation[rows], amount[rows])
                images = images.index_copy(0, rows, changed)
        else:
            images = torch.where(asked[:, None, None, None], change(images, operation, amount), images)
    return images


def _geometry(images: Tensor, operation: Tensor, amount: Tensor) -> Tensor:
    height, width = images.shape[2:]
    only: Callable[[Operation], Tensor] = lambda which: torch.where(operation == which, amount, 0.0)  # noqa: E731
    one, shear_x, shear_y = torch.ones_like(amount), only(Operation.SHEAR_X), only(Operation.SHEAR_Y)
    straight = torch.stack(
        (one, shear_x, only(Operation.TRANSLATE_X), shear_y, one, only(Operation.TRANSLATE_Y)), 1
    )
    turned = pixels.rotation(amount, height, width)
    turns = (operation == Operation.ROTATE)[:, None]
    return pixels.warped(images, torch.where(turns, turned, straight))


def _curve(images: Tensor, operation: Tensor, amount: Tensor) -> Tensor:
    ramp = torch.arange(256, dtype=torch.float32, device=images.device)
    curves = ramp.expand(len(images), 1, 256)
    for which, made in (
        (Operation.INVERT, pixels.inverted_curve(ramp)),
        (Operation.SOLARIZE, pixels.solarized_curve(ramp, amount)),
        (Operation.POSTERIZE, pixels.posterized_curve(ramp, amount)),
        (Operation.BRIGHTNESS, pixels.brightened_curve(ramp, amount)),
        (Operation.CONTRAST, pixels.contrasted_curve(images, ramp, amount)),
        (Operation.AUTOCONTRAST, pixels.autocontrast_curve(images, ramp)),  # last: a curve for each channel
    ):
        curves = torch.where((operation == which)[:, None, None], made, curves)
    return pixels.looked_up(images, curves.to(torch.uint8))

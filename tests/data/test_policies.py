"""Each operation beside Pillow's; each policy beside a slow one that reads the same draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from longtail.data import policies
from longtail.data.policies import CIFAR10, RANDOM, AutoAugment, Operation, RandAugment, applied
from longtail.keys import Key, uniforms


def pictures(count: int, seed: int = 0, size: int = 32) -> torch.Tensor:
    """Noise, smooth ramps and nearly constant images: histograms of every kind."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 256, (count, 3, size, size), generator=generator)
    ramp = torch.linspace(0, 1, size).expand(3, size, size) * torch.rand(count, 3, 1, 1, generator=generator)
    kind = torch.arange(count) % 4
    images = noise.clone()
    images[kind == 1] = (ramp * 180 + 40)[kind == 1].long()
    images[kind == 2] = noise[kind == 2] % 3 + 100
    images[kind == 3] = (noise[kind == 3] * ramp[kind == 3]).long()
    return images.to(torch.uint8)


def to_pil(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def from_pil(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def sheared(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


PILLOW = {
    Operation.IDENTITY: lambda image, a: image,
    Operation.SHEAR_X: lambda image, a: sheared(image, 1, a, 0, 0, 1, 0),
    Operation.SHEAR_Y: lambda image, a: sheared(image, 1, 0, 0, a, 1, 0),
    Operation.TRANSLATE_X: lambda image, a: sheared(image, 1, 0, a, 0, 1, 0),
    Operation.TRANSLATE_Y: lambda image, a: sheared(image, 1, 0, 0, 0, 1, a),
    Operation.ROTATE: lambda image, a: image.rotate(a),
    Operation.INVERT: lambda image, a: ImageOps.invert(image),
    Operation.SOLARIZE: lambda image, a: ImageOps.solarize(image, a),
    Operation.POSTERIZE: lambda image, a: ImageOps.posterize(image, int(a)),
    Operation.AUTOCONTRAST: lambda image, a: ImageOps.autocontrast(image),
    Operation.BRIGHTNESS: lambda image, a: ImageEnhance.Brightness(image).enhance(a),
    Operation.CONTRAST: lambda image, a: ImageEnhance.Contrast(image).enhance(a),
    Operation.EQUALIZE: lambda image, a: ImageOps.equalize(image),
    Operation.COLOR: lambda image, a: ImageEnhance.Color(image).enhance(a),
    Operation.SHARPNESS: lambda image, a: ImageEnhance.Sharpness(image).enhance(a),
}
FACTORS = (0.1, 0.37, 1.0, 1.3, 1.9)
AMOUNTS = {
    Operation.SHEAR_X: (-0.3, -0.1, 0.0, 0.2333),
    Operation.SHEAR_Y: (-0.2666, 0.0, 0.1, 0.3),
    Operation.TRANSLATE_X: (-14.0, -3.0, 0.0, 8.0),
    Operation.TRANSLATE_Y: (-14.0, 0.0, 1.0, 12.0),
    Operation.ROTATE: (-30.0, -6.667, 0.0, 13.0),
    Operation.SOLARIZE: (0.0, 28.4, 100.0, 199.2, 256.0),
    Operation.POSTERIZE: (4.0, 5.0, 7.0, 8.0),
    Operation.BRIGHTNESS: FACTORS,
    Operation.CONTRAST: FACTORS,
    Operation.COLOR: FACTORS,
    Operation.SHARPNESS: FACTORS,
}
MOVES = (Operation.SHEAR_X, Operation.SHEAR_Y, Operation.ROTATE)


@pytest.mark.parametrize("operation", Operation)
def test_operation_equals_pillow(operation):
    images = pictures(24)
    changed = 0
    for amount in AMOUNTS.get(operation, (0.0,)):
        found = applied(images, torch.full((24,), int(operation)), torch.full((24,), amount))
        wanted = torch.stack([from_pil(PILLOW[operation](to_pil(image), amount)) for image in images])
        off = (found.int() - wanted.int()).abs()
        if operation in MOVES:  # the nearest of two pixels equally near
            assert (off.amax(1) > 0).float().mean() <= 0.002
        else:  # Pillow's autocontrast loses a level where a float falls short of a whole number
            allowed = 0.01 if operation == Operation.AUTOCONTRAST else 0.0
            assert off.max() <= 1 and (off > 0).float().mean() <= allowed
        changed += int((found != images).sum())
    assert changed or operation == Operation.IDENTITY


@pytest.mark.parametrize("policy", [AutoAugment(), RandAugment(), RandAugment(count=3, magnitude=30.0)])
def test_grouping_by_operation_changes_no_pixel(policy, monkeypatch):
    images = pictures(64)
    draws = torch.from_numpy(uniforms(Key(0), np.arange(64), policy.columns)).float()
    grouped = policy(images, draws)
    whole = policies.applied
    monkeypatch.setattr(policies, "applied", lambda *given: whole(*given, grouped=False))
    assert torch.equal(policy(images, draws), grouped) and not torch.equal(grouped, images)


def slow_amount(operation: Operation, strength: float, draw: float, width: int) -> float:
    sign = -1 if draw < 0.5 else 1
    match operation:
        case Operation.SHEAR_X | Operation.SHEAR_Y:
            return sign * 0.3 * strength
        case Operation.TRANSLATE_X | Operation.TRANSLATE_Y:
            return float(int(sign * 150 / 331 * width * strength))
        case Operation.ROTATE:
            return sign * 30 * strength
        case Operation.SOLARIZE:
            return 256 * (1 - strength)
        case Operation.POSTERIZE:
            return 8 - round(4 * strength)
        case Operation.BRIGHTNESS | Operation.CONTRAST | Operation.COLOR | Operation.SHARPNESS:
            return 1 + sign * 0.9 * strength
        case _:
            return 0.0


def agree(found: torch.Tensor, wanted: list[Image.Image]) -> None:
    off = (found.int() - torch.stack([from_pil(image) for image in wanted]).int()).abs()
    # Rounding may differ by one level; a later equalisation spreads it, so few pixels may differ by more.
    assert (off > 1).float().mean() < 0.01 and (off > 0).float().mean() < 0.03


def test_autoaugment_equals_pillow_sample_by_sample():
    images = pictures(200)
    draws = uniforms(Key(1), np.arange(200), 5).astype(np.float32)
    wanted = []
    for image, row in zip(images, draws.tolist()):
        picture = to_pil(image)
        for turn, (operation, chance, strength) in enumerate(CIFAR10[int(row[0] * 25)]):
            if row[1 + 2 * turn] < chance:
                amount = slow_amount(operation, strength, row[2 + 2 * turn], 32)
                picture = PILLOW[operation](picture, amount)
        wanted.append(picture)
    agree(AutoAugment()(images, torch.from_numpy(draws)), wanted)


def test_randaugment_equals_pillow_sample_by_sample():
    images = pictures(200, seed=1)
    draws = uniforms(Key(2), np.arange(200), 4).astype(np.float32)
    wanted = []
    for image, row in zip(images, draws.tolist()):
        picture = to_pil(image)
        for turn in range(2):
            operation = RANDOM[int(row[2 * turn] * 14)]
            picture = PILLOW[operation](picture, slow_amount(operation, 9 / 30, row[2 * turn + 1], 32))
        wanted.append(picture)
    agree(RandAugment()(images, torch.from_numpy(draws)), wanted)


def test_the_table_is_the_papers():
    assert len(CIFAR10) == 25 and len(RANDOM) == 14
    assert all(len(pair) == 2 for pair in CIFAR10)
    first, last = CIFAR10[0], CIFAR10[24]
    assert first == ((Operation.INVERT, 0.1, 7 / 9), (Operation.CONTRAST, 0.2, 6 / 9))
    assert last == ((Operation.TRANSLATE_Y, 0.7, 1.0), (Operation.AUTOCONTRAST, 0.9, 1 / 9))
    uses = {op: sum(op == cell[0] for pair in CIFAR10 for cell in pair) for op in Operation}
    assert uses[Operation.EQUALIZE] == 9 and uses[Operation.SHEAR_X] == 0 and sum(uses.values()) == 50


def test_every_sub_policy_and_sign_is_drawn():
    rows = torch.from_numpy(uniforms(Key(0), np.arange(2000), 5)).float()
    assert set((rows[:, 0] * 25).long().tolist()) == set(range(25))
    operation = torch.full((2000,), int(Operation.ROTATE))
    amount = policies.amounts(operation, torch.ones(2000), rows[:, 2], 32)
    assert set(amount.tolist()) == {-30.0, 30.0} and abs(float(amount.mean())) < 3


def test_zero_probability_never_applies():
    images = pictures(8)
    which = next(i for i, pair in enumerate(CIFAR10) if pair[1][1] == 0.0)
    draws = torch.zeros(8, 5)
    draws[:, 0] = (which + 0.5) / 25
    draws[:, 1] = 0.999  # not the first of the pair
    assert torch.equal(AutoAugment()(images, draws), images)

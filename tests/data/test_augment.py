"""The references are slow: one image at a time, with Pillow, from the same draws."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from longtail.data.augment import BELOW_ONE, Normalize, Small, cropped, is_channels_last, resized
from longtail.keys import Key

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def pictures(count: int, size: int = 32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def small(**changes: object) -> Small:
    return Small(**{"size": 32, "crop": 4, "flip": True, "mean": MEAN, "std": STD, **changes})


def batch(augment: Small, count: int, place: int = 0) -> torch.Tensor:
    return torch.from_numpy(augment.draws(Key(3), np.arange(place, place + count)))


def to_pil(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def to_float(image: Image.Image) -> torch.Tensor:
    pixels = np.asarray(image).transpose(2, 0, 1) / 255
    return torch.tensor((pixels - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None])


def padded_crop(image: Image.Image, row: list[float], padding: int) -> Image.Image:
    top, left = (int(u * (2 * padding + 1)) for u in row)
    return ImageOps.expand(image, padding, fill=0).crop((left, top, left + image.width, top + image.height))


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("crop", "flip"), [(4, True), (4, False), (0, True), (0, False), (1, True)])
def test_crop_and_flip_equal_pillow_one_image_at_a_time(layout, crop, flip):
    augment, images = small(crop=crop, flip=flip), pictures(40)
    draws = batch(augment, 40)
    found = augment.train(images.contiguous(memory_format=layout), draws)
    mirrored = 0
    for image, row, got in zip(images, draws.tolist(), found):
        wanted = padded_crop(to_pil(image), row[:2], crop) if crop else to_pil(image)
        if flip and row[2 * (crop > 0)] < 0.5:
            wanted, mirrored = ImageOps.mirror(wanted), mirrored + 1
        close(got, to_float(wanted))
    assert found.is_contiguous(memory_format=layout)
    assert 0 < mirrored < 40 or not flip


def test_padding_is_black_before_normalisation():
    augment = small(flip=False)
    white = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    corner = augment.train(white, torch.zeros(1, 2))[0, :, 0, 0]
    close(corner, torch.tensor([-m / s for m, s in zip(MEAN, STD)], dtype=torch.float64))


def test_rotation_equals_pillow():
    augment, images = small(crop=0, flip=False, rotation=15.0), pictures(50)
    draws = batch(augment, 50)
    found = augment.train(images, draws)
    different = 0
    for image, row, got in zip(images, draws.tolist(), found):
        wanted = to_float(to_pil(image).rotate((2 * row[0] - 1) * 15.0))
        different += int(((got.double() - wanted).abs() > 1e-5).any(0).sum())
    assert different <= 50 * 1024 // 1000  # ties of the nearest pixel, at most


def test_loss_of_colours_equals_pillow_for_the_images_that_were_drawn():
    images = pictures(16)
    augment = small(crop=0, flip=False, grayscale=0.5)
    draws = batch(augment, 16)
    lost = draws[:, 0] < 0.5
    assert 0 < int(lost.sum()) < 16
    augment.normalize = Normalize((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))
    found = augment.train(images, draws).round().to(torch.uint8)
    for image, made, grey in zip(images, found, lost, strict=True):
        pixels = Image.fromarray(image.permute(1, 2, 0).numpy())
        wanted = pixels.convert("L").convert("RGB") if grey else pixels
        assert np.array_equal(made.permute(1, 2, 0).numpy(), np.asarray(wanted))


def test_cutout_erases_a_square_to_the_mean_colour():
    augment = small(crop=0, flip=False, cutout=16)
    images, draws = pictures(30), batch(augment, 30)
    found, plain = augment.train(images, draws), augment.plain(images)
    for got, before, (row, column) in zip(found, plain, draws.tolist()):
        top, left = int(row * 32) - 8, int(column * 32) - 8
        wanted = before.clone()
        for y in range(max(top, 0), min(top + 16, 32)):
            for x in range(max(left, 0), min(left + 16, 32)):
                wanted[:, y, x] = 0
        assert torch.equal(got, wanted)


def test_everything_at_once_equals_each_step_after_the_other():
    images = pictures(16)
    whole = small(rotation=15.0, cutout=8, policy="randaugment", grayscale=0.5)
    draws = batch(whole, 16)
    assert whole.columns == 2 + 1 + 1 + 4 + 1 + 2
    found = whole.train(images, draws)
    unit = Normalize((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))  # leaves bytes as they are

    def alone(images: torch.Tensor, columns: slice, **only: object) -> torch.Tensor:
        step = small(**{"crop": 0, "flip": False, **only})
        step.normalize = unit
        return step.train(images, draws[:, columns]).round().to(torch.uint8)

    images = alone(images, slice(0, 3), crop=4, flip=True)
    images = alone(images, slice(3, 4), rotation=15.0)
    images = alone(images, slice(4, 8), policy="randaugment")
    images = alone(images, slice(8, 9), grayscale=0.5)
    last = small(crop=0, flip=False, cutout=8)
    assert torch.equal(found, last.train(images, draws[:, 9:]))


@pytest.mark.parametrize("policy", ["none", "autoaugment", "randaugment"])
def test_layout_changes_no_value(policy):
    augment, images = small(policy=policy, rotation=10.0, cutout=4, grayscale=0.5), pictures(24)
    draws = batch(augment, 24)
    found = augment.train(images.contiguous(memory_format=torch.channels_last), draws)
    assert torch.equal(found, augment.train(images, draws)) and is_channels_last(found)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.integers(0, 10), st.integers(4, 9), st.integers(0, 5))
def test_an_image_does_not_depend_on_its_batch(count, place, size, padding):
    augment, images = small(size=size, crop=padding, policy="autoaugment"), pictures(count, size)
    draws = batch(augment, count, place)
    together = augment.train(images, draws)
    for number in range(count):
        one = augment.train(images[number : number + 1], batch(augment, 1, place + number))
        assert torch.equal(one[0], together[number])


def test_draws_are_below_one_and_cover_every_offset():
    augment = small()
    draws = augment.draws(Key(0), np.arange(4000))
    assert draws.dtype == np.float32 and draws.shape == (4000, 3) and draws.max() < 1 and draws.min() >= 0
    offsets = {(int(a * 9), int(b * 9)) for a, b, _ in draws.tolist()}
    assert offsets == {(a, b) for a in range(9) for b in range(9)}
    edge = torch.full((1, 2), float(BELOW_ONE))
    images = pictures(1)
    assert torch.equal(cropped(images, edge, edge[:, :0], 4)[0, :, :28, :28], images[0, :, 4:, 4:])


def test_draws_depend_on_key_and_place_only():
    augment = small()
    every = augment.draws(Key(1).fold("augment", 2), np.arange(100))
    some = augment.draws(Key(1).fold("augment", 2), np.array([70, 3]))
    assert np.array_equal(some, every[[70, 3]])
    assert not np.array_equal(every, augment.draws(Key(1).fold("augment", 3), np.arange(100)))


def global_state() -> tuple[object, ...]:
    legacy = np.random.get_state()[1]  # noqa: NPY002  (nothing may move it)
    return random.getstate(), legacy.tolist(), torch.get_rng_state().tolist()


def test_global_randomness_is_neither_read_nor_moved():
    augment, images = small(policy="randaugment", cutout=8), pictures(8)
    results = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  (poison)
        torch.manual_seed(seed)
        before = global_state()
        results.append(augment.train(images, batch(augment, 8)))
        assert before == global_state()
    assert torch.equal(*results)


def test_plain_is_normalisation_alone():
    images = pictures(3)
    for image, got in zip(images, small().plain(images)):
        close(got, to_float(to_pil(image)))


def test_images_of_another_size_are_resized_as_pillow_does():
    images = pictures(3, 48)
    found = resized(images, 32)
    for image, got in zip(images, found):
        wanted = to_pil(image).resize((32, 32), Image.Resampling.BILINEAR)
        assert np.abs(np.asarray(wanted).transpose(2, 0, 1).astype(int) - got.numpy()).max() <= 1
    augment = small()
    assert augment.train(images, batch(augment, 3)).shape == (3, 3, 32, 32)
    assert resized(images, 48) is images


def test_an_empty_batch_stays_empty():
    augment = small(policy="autoaugment", rotation=5.0, cutout=4)
    assert augment.train(pictures(0), batch(augment, 0)).shape == (0, 3, 32, 32)


def test_no_augmentation_takes_no_draws():
    augment = small(crop=0, flip=False)
    images = pictures(4)
    draws = augment.draws(Key(0), np.arange(4))
    assert draws.shape == (4, 0) and math.prod(draws.shape) == 0
    assert torch.equal(augment.train(images, torch.from_numpy(draws)), augment.plain(images))


@pytest.mark.parametrize("policy", ["none", "autoaugment", "randaugment"])
def test_no_number_is_needed_on_the_host(policy):
    """A tensor on the meta device has no values: whatever waits for one raises."""
    augment = small(policy=policy, rotation=15.0, cutout=8)
    found = augment.train(pictures(6).to("meta"), batch(augment, 6).to("meta"))
    assert found.shape == (6, 3, 32, 32) and found.device.type == "meta"

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import mixing
from longtail.data.augment import Small
from longtail.data.batches import Batch, Resident, bounds
from longtail.data.splits import Split
from longtail.keys import Key

CENTRE = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
KEY = Key(7).fold("augment", 3)


def split(count: int = 23, size: int = 8) -> Split:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)
    return Split(images, torch.randint(0, 5, (count,), generator=generator), tuple("abcde"))


def resident(count: int = 23, *, channels_last: bool = False, **augment: object) -> Resident:
    small = Small(**{"size": 8, "crop": 2, "flip": True, "cutout": 3, **CENTRE, **augment})
    return Resident(split(count), small, device="cpu", channels_last=channels_last)


def order(count: int = 23, draws: int | None = None) -> torch.Tensor:
    return torch.randint(0, count, (draws or count,), generator=torch.Generator().manual_seed(1))


def digest(batches: list[Batch]) -> str:
    stream = hashlib.sha256()
    for batch in batches:
        for part in batch:
            stream.update(part.contiguous().numpy().tobytes())
    return stream.hexdigest()


def assert_equal(one: list[Batch], two: list[Batch]) -> None:
    assert len(one) == len(two)
    for left, right in zip(one, two):
        assert all(torch.equal(a, b) for a, b in zip(left, right))


def test_an_epoch_is_one_image_at_a_time_in_order():
    batches, index = resident(), order(draws=31)
    found = list(batches.epoch(index, key=KEY, batch_size=4))
    source = split()
    slow = []
    for first in range(0, 31, 4):
        rows = index[first : first + 4]
        images = [
            batches.augment.train(
                source.images[i][None], torch.from_numpy(batches.augment.draws(KEY, np.array([place])))
            )[0]
            for place, i in enumerate(rows.tolist(), first)
        ]
        slow.append(Batch(torch.stack(images), source.targets[rows], rows))
    assert_equal(found, slow)
    assert digest(found) == digest(slow) and [len(b.target) for b in found] == [4] * 7 + [3]


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("count", [22, 23, 24, 25, 29])
def test_processes_share_the_global_batch(world_size, count):
    batches, index = resident(29), order(29, draws=count)
    whole = list(batches.epoch(index, key=KEY, batch_size=8))
    ranks = [
        list(batches.epoch(index, key=KEY, batch_size=8, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    assert {len(rank) for rank in ranks} == {len(whole)}
    for step, batch in enumerate(whole):
        for rank in range(world_size):
            for mine, every in zip(ranks[rank][step], batch):
                assert torch.equal(mine, every[rank::world_size])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 9), st.integers(1, 9))
def test_a_later_start_is_the_rest_of_the_epoch(start, batch_size):
    batches, index = resident(), order()
    whole = list(batches.epoch(index, key=KEY, batch_size=batch_size))
    assert_equal(list(batches.epoch(index, key=KEY, batch_size=batch_size, start=start)), whole[start:])


def test_a_repeated_image_is_augmented_anew():
    batches = resident()
    images = next(iter(batches.epoch(torch.zeros(16, dtype=torch.int64), key=KEY, batch_size=16))).images
    assert len({image.numpy().tobytes() for image in images}) > 8


def test_another_epoch_draws_other_numbers():
    batches, index = resident(), order()
    one, two = (list(batches.epoch(index, key=Key(7).fold("augment", e), batch_size=8)) for e in (3, 4))
    assert torch.equal(one[0].positions, two[0].positions)
    assert not torch.equal(one[0].images, two[0].images)


@pytest.mark.parametrize("augment", [{}, {"policy": "randaugment"}, {"rotation": 10.0}])
def test_layout_changes_no_value(augment):
    plain, last = resident(**augment), resident(channels_last=True, **augment)
    one, two = (list(b.epoch(order(), key=KEY, batch_size=8)) for b in (plain, last))
    assert_equal(one, two)
    assert_equal(list(plain.plain(8)), list(last.plain(8)))
    assert all(b.images.is_contiguous(memory_format=torch.channels_last) for b in [*two, *last.plain(8)])
    assert all(b.images.is_contiguous() for b in [*one, *plain.plain(8)])


@pytest.mark.parametrize("world_size", [1, 2])
def test_plain_is_every_image_once_in_order(world_size):
    batches, source = resident(), split()
    parts = [list(batches.plain(8, rank=rank, world_size=world_size)) for rank in range(world_size)]
    seen = sorted(int(p) for part in parts for batch in part for p in batch.positions)
    assert seen == list(range(23)) and len(batches) == 23
    for part in parts:
        for batch in part:
            assert torch.equal(batch.images, batches.augment.plain(source.images[batch.positions]))
            assert torch.equal(batch.target, source.targets[batch.positions])


def test_images_of_another_size_are_resized_once():
    batches = resident(size=12)
    assert batches.images.shape[2:] == (12, 12)
    assert next(batches.epoch(order(), key=KEY, batch_size=8)).images.shape == (8, 3, 12, 12)
    assert next(batches.plain(8)).images.shape == (8, 3, 12, 12)


def test_a_batch_is_not_changed_by_what_follows():
    batches = resident()
    stream = batches.epoch(order(), key=KEY, batch_size=8)
    first = next(stream)
    copies = [part.clone() for part in first]
    first.images.add_(1.0)
    list(stream)
    assert torch.equal(first.target, copies[1]) and torch.equal(first.positions, copies[2])
    again = next(batches.epoch(order(), key=KEY, batch_size=8))
    assert torch.equal(again.images, copies[0])


def test_batch_size_must_divide_among_processes():
    with pytest.raises(ValueError, match="batch_size 6 is not divisible by world_size 4"):
        list(bounds(10, 6, 0, 4))


def test_an_image_source_is_refused():
    class Lazy:
        def __len__(self) -> int:
            return 1

    with pytest.raises(TypeError, match="Streamed"):
        Resident(Split(Lazy(), torch.zeros(1, dtype=torch.int64), ("a",)), Small(**CENTRE), device="cpu")


def test_no_number_is_needed_on_the_host_and_the_epoch_travels_once(monkeypatch):
    """A tensor on the meta device has no values: whatever waits for one raises."""
    small = Small(size=8, crop=2, policy="autoaugment", **CENTRE)
    batches = Resident(split(), small, device="meta", channels_last=True)
    stream = batches.epoch(order(), key=KEY, batch_size=8)
    first = next(stream)
    copies = []
    original = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda t, *a, **k: copies.append(t) or original(t, *a, **k))
    rest = list(stream)
    assert [b.images.shape[0] for b in (first, *rest)] == [8, 8, 7]
    assert not [t for t in copies if t.device.type == "cpu"]
    assert {part.device.type for b in (first, *rest) for part in b} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "augment", [{}, {"policy": "autoaugment"}, {"policy": "randaugment"}, {"rotation": 15.0}]
)
@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_an_accelerator_gives_the_same_batches_without_waiting(augment, kind):
    found = []
    for device in ("cpu", "cuda"):
        small = Small(size=8, crop=2, cutout=3, **augment, **CENTRE)
        batches = Resident(split(), small, device=device, channels_last=True)
        plan = mixing.plan(kind, 1.0, key=KEY, steps=3, batch_size=8, device=device)
        stream = batches.epoch(order(), key=KEY, batch_size=8)
        mixed = [mixing.mix(*next(stream)[:2], plan, 0).images]  # tables travel with the first batch
        torch.cuda.set_sync_debug_mode("error" if device == "cuda" else "default")
        try:
            mixed += [mixing.mix(b.images, b.target, plan, step).images for step, b in enumerate(stream, 1)]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        found.append(torch.cat([images.cpu() for images in mixed]))
    differ = (found[0] - found[1]).abs() > 1e-4
    assert float(differ.float().mean()) < 0.01  # a pixel or a level at a tie

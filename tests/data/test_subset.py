"""The published counts and the canonical choice: the golden numbers are those of the field's own loaders."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.data import subset
from longtail.errors import DataError

TOTALS = {
    (10, "exponential"): {10: 20431, 20: 17023, 50: 13996, 100: 12406, 200: 11203},
    (100, "exponential"): {10: 19573, 20: 15907, 50: 12608, 100: 10847, 200: 9502},
    (10, "step"): {10: 27500, 20: 26250, 50: 25500, 100: 25250, 200: 25125},
    (100, "step"): {10: 27500, 20: 26250, 50: 25500, 100: 25250, 200: 25100},
}
SHA256_STARTS = {
    (10, 50): "7bb90363b243a944",
    (10, 100): "8a54f5b6fa972295",
    (10, 200): "334c2d61143b39bf",
    (100, 50): "1bc82de2629e5cbd",
    (100, 100): "f123ec136d44ab1b",
    (100, 200): "36f76462dfbbe6f4",
}
FIRST_POSITIONS = {
    (10, 0): [398, 3833, 4836, 4572, 636],
    (10, 1): [597, 332, 521, 3935, 4800],
    (10, 9): [2204, 3816, 2206, 2507, 1926],
    (100, 0): [90, 254, 283, 445, 461],
    (100, 1): [277, 307, 436, 88, 261],
    (100, 99): [348, 153, 363, 361, 299],
}


def full_targets(classes: int, seed: int = 7) -> torch.Tensor:
    """Fifty thousand balanced targets in a mixed order, as in the official files."""
    generator = torch.Generator().manual_seed(seed)
    return torch.arange(50_000).remainder(classes)[torch.randperm(50_000, generator=generator)]


@pytest.mark.parametrize(("classes", "profile"), TOTALS)
def test_totals_are_the_published_ones(classes, profile):
    for ratio, total in TOTALS[classes, profile].items():
        wanted = subset.wanted_counts(torch.full((classes,), 50_000 // classes), profile, ratio)
        assert int(wanted.sum()) == total
        assert int(wanted[0]) == 50_000 // classes


def test_cifar100_at_ratio_200_ends_with_two_images_and_not_two_and_a_half():
    _, manifest = subset.long_tail(full_targets(100), ratio=200)
    assert manifest["counts"][-1] == 2 and max(manifest["counts"]) / 2 == 250


@pytest.mark.parametrize(("classes", "ratio"), SHA256_STARTS)
def test_canonical_choice_has_the_golden_hash(classes, ratio):
    indices, manifest = subset.long_tail(full_targets(classes), "exponential", ratio, official=True)
    assert manifest["selection"] == "canonical"
    assert manifest["positions_sha256"].startswith(SHA256_STARTS[classes, ratio])
    assert manifest["sha256"] == hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest()


@pytest.mark.parametrize(("classes", "label"), FIRST_POSITIONS)
def test_canonical_choice_starts_with_the_golden_positions(classes, label):
    targets = full_targets(classes)
    indices, manifest = subset.long_tail(targets, ratio=100)
    start = sum(manifest["counts"][:label])
    members = np.flatnonzero(targets.numpy() == label)
    assert indices[start : start + 5].tolist() == members[FIRST_POSITIONS[classes, label]].tolist()


def test_choice_is_class_sorted_and_nested_over_ratios():
    targets = full_targets(10)
    small, _ = subset.long_tail(targets, ratio=200)
    large, _ = subset.long_tail(targets, ratio=50)
    assert np.all(np.diff(targets.numpy()[small]) >= 0)
    assert set(small.tolist()) < set(large.tolist())


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    subset.long_tail(full_targets(10), ratio=100)
    assert np.array_equal(before[0], np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(before[1], torch.get_rng_state())


def test_another_seed_chooses_other_images():
    targets = full_targets(10)
    assert not np.array_equal(subset.long_tail(targets, seed=0)[0], subset.long_tail(targets, seed=1)[0])


def test_auto_takes_the_first_images_of_a_partial_copy():
    targets = torch.tensor([1, 0, 1, 0, 0, 1, 0, 1])
    indices, manifest = subset.long_tail(targets, ratio=4, official=False)
    assert manifest["selection"] == "first" and indices.tolist() == [1, 3, 4, 6, 0]


def test_profile_follows_the_order_of_class_sizes():
    targets = torch.tensor([0] * 4 + [1] * 9 + [2] * 6)
    _, manifest = subset.long_tail(targets, ratio=9, selection="first")
    assert manifest["counts"] == [1, 9, 3]


def test_ratio_that_needs_more_images_than_there_are_names_the_class():
    with pytest.raises(DataError, match=r"class dog has 20 images.*ratio 2 needs 50") as caught:
        subset.long_tail(torch.tensor([0] * 100 + [1] * 20), ratio=2, names=("cat", "dog"))
    assert caught.value.number == 313


def test_ratio_that_leaves_a_class_empty_is_an_error():
    with pytest.raises(DataError, match="cannot be spread at ratio 100"):
        subset.long_tail(torch.tensor([0] * 10 + [1] * 10), ratio=100)


def test_pareto_ends_at_largest_over_ratio():
    _, manifest = subset.long_tail(torch.arange(1000) % 5, "pareto", 40)
    assert (manifest["counts"][0], manifest["counts"][-1]) == (200, 5)


def test_stratified_split_keeps_shares_and_is_the_same_every_time():
    targets = torch.tensor([0] * 100 + [1] * 10 + [2] * 3 + [3])
    kept, chosen = subset.stratified(targets, 4, 0.2, "test")
    assert sorted([*kept, *chosen]) == list(range(len(targets)))
    assert torch.bincount(targets[torch.from_numpy(chosen)], minlength=4).tolist() == [20, 2, 1, 0]
    assert np.array_equal(chosen, subset.stratified(targets, 4, 0.2, "test")[1])
    assert not np.array_equal(chosen, subset.stratified(targets, 4, 0.2, "held_out")[1])
    pair = torch.tensor([0, 0, 1])
    assert len(subset.stratified(pair, 2, 0.1, "x")[1]) == 0
    assert pair[torch.from_numpy(subset.stratified(pair, 2, 0.1, "x", at_least=1)[1])].tolist() == [0]


def written(tmp_path: Path, targets: torch.Tensor, **change: object) -> str:
    _, manifest = subset.long_tail(targets, ratio=4)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest | change))
    return str(path)


def test_manifest_brings_back_the_same_indices(tmp_path):
    targets = torch.arange(40) % 4
    path = written(tmp_path, targets)
    indices, manifest = subset.from_manifest(path, targets, ("a", "b", "c", "d"))
    again, expected = subset.long_tail(targets, ratio=4)
    assert np.array_equal(indices, again)
    assert manifest == {key: expected[key] for key in manifest}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sha256": "0" * 64}, "was changed"),
        ({"counts": [1, 2, 3, 4]}, "other data"),
        ({"indices": [1, 2.5]}, "no manifest"),
        ({"indices": [True]}, "no manifest"),
        ({"indices": None}, "no manifest"),
        ({"indices": [99], "sha256": subset.sha256(np.array([99]))}, "outside"),
        ({"indices": [1, 1], "sha256": subset.sha256(np.array([1, 1]))}, "repeat"),
        ({"indices": [2**70]}, "no manifest"),
    ],
)
def test_manifest_that_does_not_fit_is_refused(tmp_path, change, says):
    targets = torch.arange(40) % 4
    with pytest.raises(DataError, match=says) as caught:
        subset.from_manifest(written(tmp_path, targets, **change), targets, ("a", "b", "c", "d"))
    assert caught.value.number == 314


@pytest.mark.skipif(not os.environ.get("LONGTAIL_DATA"), reason="LONGTAIL_DATA names no folder with CIFAR")
def test_canonical_positions_are_those_of_the_real_cifar10_subset():
    """The shared subset holds the canonical images in order: positions rise as they do inside a class."""
    folder = Path(os.environ["LONGTAIL_DATA"]) / "cifar-10-batches-bin"
    positions = np.loadtxt(folder / "canonical_index.txt", dtype=np.int64)
    chosen = subset.canonical(
        [5000] * 10, subset.wanted_counts(torch.full((10,), 5000), "exponential", 50).tolist()
    )
    start = 0
    for picked in chosen:  # positions inside a class and in the whole set rise together
        own = positions[start : start + len(picked)]
        assert np.array_equal(np.argsort(own), np.argsort(picked))
        start += len(picked)
    assert start == len(positions)

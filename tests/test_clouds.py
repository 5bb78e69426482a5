"""Cloud sizes against the golden table, the degenerate inputs, and what must hold for any counts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail import clouds

CIFAR10_R100 = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
# Spec A6. The last digit of its log row is that of log(n_max/n_j)/log(r).
GOLDEN = {
    ("log", 0.25): [0, 0.1111, 0.2223, 0.3334, 0.4447, 0.5556, 0.6667, 0.7780, 0.8899, 1],
    ("power", 1 / 3): [0.2154, 0.2555, 0.3031, 0.3594, 0.4264, 0.5055, 0.5996, 0.7112, 0.8446, 1],
    ("power", 1 / 4): [0.3162, 0.3594, 0.4085, 0.4642, 0.5277, 0.5995, 0.6814, 0.7744, 0.8810, 1],
    ("cosine", 0.25): [0, 0.5886, 0.8451, 0.9434, 0.9797, 0.9927, 0.9975, 0.9992, 0.9998, 1],
}
RAW_ENDS = {
    ("log", 0.25): (0, 4.6052),
    ("power", 1 / 3): (292.40, 1357.21),
    ("power", 1 / 4): (594.60, 1880.30),
}
NAMES = ("log", "power", "cosine")

many_counts = st.lists(st.integers(1, 1_000_000), min_size=2, max_size=40)


@pytest.mark.parametrize(("form", "expected"), GOLDEN.items())
def test_sizes_are_the_golden_ones(form, expected):
    cloud, power = form
    made = clouds.sizes(CIFAR10_R100, cloud, power=power)
    assert made.dtype == torch.float64
    assert made.tolist() == pytest.approx(expected, abs=5.1e-5)


@pytest.mark.parametrize(("form", "ends"), RAW_ENDS.items())
def test_raw_sizes_are_the_golden_ones(form, ends):
    made = clouds.raw(CIFAR10_R100, form[0], power=form[1])
    assert (float(made[0]), float(made[-1])) == pytest.approx(ends, abs=5.1e-3)


@given(many_counts)
def test_sizes_follow_their_definitions(images):
    largest, smallest = max(images), min(images)
    log, power = clouds.sizes(images, "log").tolist(), clouds.sizes(images, "power", power=1 / 3).tolist()
    for j, n in enumerate(images):
        if largest > smallest:
            assert log[j] == pytest.approx(math.log(largest / n) / math.log(largest / smallest), abs=1e-7)
        assert power[j] == pytest.approx((n / smallest) ** (-1 / 3), rel=1e-12)
    raw = [math.cos(n / largest * math.pi / 2) for n in images]
    peak = max(raw)
    for found, value in zip(clouds.sizes(images, "cosine").tolist(), raw, strict=True):
        assert found == pytest.approx(value / peak if peak > 1e-12 else 0, abs=1e-9)


@pytest.mark.parametrize("cloud", NAMES)
@given(images=many_counts)
def test_a_rarer_class_has_a_cloud_at_least_as_large(cloud, images):
    made = clouds.sizes(images, cloud)
    order = torch.tensor(images).argsort(descending=True, stable=True)
    assert bool((made[order].diff() >= -1e-12).all())
    assert bool(((made >= 0) & (made <= 1)).all())


@pytest.mark.parametrize("cloud", NAMES)
@given(images=many_counts, seed=st.integers(0, 99))
def test_sizes_permute_with_the_classes(cloud, images, seed):
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    given_ = torch.tensor(images)
    # Not bit for bit: a vector unit rounds a power differently from the scalar rest of the row.
    torch.testing.assert_close(
        clouds.sizes(given_[order], cloud), clouds.sizes(given_, cloud)[order], rtol=1e-13, atol=0
    )


@pytest.mark.parametrize("cloud", NAMES)
@given(images=many_counts)
def test_ten_times_the_images_change_nothing(cloud, images):
    assert clouds.sizes([10 * n for n in images], cloud).tolist() == pytest.approx(
        clouds.sizes(images, cloud).tolist(), abs=1e-6
    )


def test_the_default_is_log_and_the_default_power_a_quarter():
    assert torch.equal(clouds.sizes(CIFAR10_R100), clouds.sizes(CIFAR10_R100, "log"))
    for made in (clouds.sizes, clouds.raw):
        quarter = made(CIFAR10_R100, "power", power=0.25)
        assert torch.equal(made(CIFAR10_R100, "power"), quarter)


def test_the_head_has_no_cloud_and_the_tail_the_whole():
    for cloud in ("log", "cosine"):
        made = clouds.sizes(CIFAR10_R100, cloud)
        assert made[0] == 0 and made[-1] == 1
    assert float(clouds.sizes(CIFAR10_R100, "power", power=1 / 3)[0]) == pytest.approx(100 ** (-1 / 3))


def test_equal_counts_have_no_cloud_but_for_power():
    assert clouds.sizes([7, 7, 7], "log").tolist() == [0, 0, 0]
    assert clouds.sizes([7, 7, 7], "cosine").tolist() == [0, 0, 0]  # cos(pi/2) is 6e-17, and 6e-17/6e-17 is 1
    assert clouds.sizes([7, 7, 7], "power").tolist() == [1, 1, 1]


@pytest.mark.parametrize("cloud", [*NAMES, "none", [3.0]])
def test_one_class_has_no_cloud(cloud):
    assert clouds.sizes([5], cloud).tolist() == [0]


def test_no_cloud_is_zero_and_a_cloud_of_ones_own_is_divided_by_its_maximum():
    assert clouds.sizes([5, 1], "none").tolist() == [0, 0]
    assert clouds.sizes([5, 1, 1], [0, 2, 4]).tolist() == [0, 0.5, 1]
    assert clouds.sizes([5, 1, 1], torch.zeros(3)).tolist() == [0, 0, 0]


def test_a_huge_ratio_stays_finite():
    for cloud in NAMES:
        made = clouds.sizes([10**12, 10**6, 1], cloud)
        assert bool(torch.isfinite(made).all()) and made[-1] == 1


def test_small_sizes_are_not_taken_for_rounding():
    assert clouds.sizes([10**6, 10**5], "power", power=4).tolist() == pytest.approx([1e-4, 1])
    assert clouds.sizes([10**6, 10**6], "power", power=4).tolist() == [1, 1]
    assert clouds.sizes([5, 1], [1e-13, 2e-13]).tolist() == pytest.approx([0.5, 1])


def test_a_class_without_images_is_an_error_unless_clamped():
    with pytest.raises(ValueError, match="without images"):
        clouds.sizes([10, 0, 5])
    assert torch.equal(clouds.sizes([10, 0, 5], zero_count="clamp"), clouds.sizes([10, 1, 5]))


@pytest.mark.parametrize(
    "cloud", ["logarithm", [1.0], [1.0, -1.0], [1.0, math.nan], [[1.0, 2.0]], None, ["a", "b"], 3.0]
)
def test_what_cannot_be_a_cloud_is_an_error(cloud):
    with pytest.raises(ValueError, match="cloud"):
        clouds.sizes([5, 1], cloud)


def test_a_raw_cloud_of_unknown_name_is_the_same_error():
    with pytest.raises(ValueError, match="cloud is .*'fog'"):
        clouds.raw([5, 1], "fog")


@pytest.mark.parametrize("power", [0, -1, math.nan, math.inf])
def test_a_power_that_would_turn_the_clouds_round_is_an_error(power):
    with pytest.raises(ValueError, match="power"):
        clouds.sizes([5, 1], "power", power=power)

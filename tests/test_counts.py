"""Class counts against the published lists and against their definitions in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail import counts

# Spec E1: CIFAR-LT totals and smallest classes, by (largest, classes, ratio).
TOTALS = {
    (5000, 10, 10): (20431, 500),
    (5000, 10, 20): (17023, 250),
    (5000, 10, 50): (13996, 100),
    (5000, 10, 100): (12406, 50),
    (5000, 10, 200): (11203, 25),
    (500, 100, 10): (19573, 50),
    (500, 100, 20): (15907, 25),
    (500, 100, 50): (12608, 10),
    (500, 100, 100): (10847, 5),
    (500, 100, 200): (9502, 2),
}
STEP_TOTALS = {
    (5000, 10): {10: 27500, 20: 26250, 50: 25500, 100: 25250, 200: 25125},
    (500, 100): {10: 27500, 20: 26250, 50: 25500, 100: 25250, 200: 25100},
}
# fmt: off
CIFAR100_R100 = [
    500, 477, 455, 434, 415, 396, 378, 361, 344, 328, 314, 299, 286, 273, 260, 248, 237, 226, 216,
    206, 197, 188, 179, 171, 163, 156, 149, 142, 135, 129, 123, 118, 112, 107, 102, 98, 93, 89, 85,
    81, 77, 74, 70, 67, 64, 61, 58, 56, 53, 51, 48, 46, 44, 42, 40, 38, 36, 35, 33, 32, 30, 29, 27,
    26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 15, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8,
    8, 7, 7, 7, 6, 6, 6, 6, 5, 5, 5, 5,
]
CIFAR100_R200_HEAD = [500, 473, 449, 425, 403, 382, 362, 343, 325, 308]
# fmt: on


@pytest.mark.parametrize(("key", "expected"), TOTALS.items())
def test_exponential_gives_the_published_totals_and_smallest_class(key, expected):
    largest, classes, ratio = key
    made = counts.exponential(classes, largest, ratio)
    assert (int(made.sum()), int(made.min())) == expected
    assert made.dtype == torch.int64 and made[0] == largest


def test_exponential_gives_the_published_lists():
    assert counts.exponential(10, 5000, 50).tolist() == [5000, 3237, 2096, 1357, 878, 568, 368, 238, 154, 100]
    assert counts.exponential(10, 5000, 200).tolist() == [5000, 2775, 1540, 854, 474, 263, 146, 81, 45, 25]
    assert counts.exponential(100, 500, 100).tolist() == CIFAR100_R100
    made = counts.exponential(100, 500, 200).tolist()
    assert made[:10] == CIFAR100_R200_HEAD
    assert made[-11:] == [4, 4, 3, 3, 3, 3, 3, 2, 2, 2, 2]


@pytest.mark.parametrize(("largest", "classes"), STEP_TOTALS)
def test_step_gives_the_published_totals(largest, classes):
    for ratio, total in STEP_TOTALS[largest, classes].items():
        made = counts.step(classes, largest, ratio)
        assert int(made.sum()) == total
        assert made[: classes // 2].tolist() == [largest] * (classes // 2)


@pytest.mark.parametrize(("largest", "ratio"), [(49, 49), (98, 49), (4980, 249)])
def test_rounding_takes_no_image_away(largest, ratio):
    assert int(largest * (1 / ratio)) < largest // ratio
    for made in (counts.exponential(10, largest, ratio), counts.step(10, largest, ratio)):
        assert int(made[-1]) == largest // ratio


def test_a_fraction_of_an_image_is_cut_and_not_rounded():
    assert counts.step(2, 500, 200 / 1.5).tolist() == [500, 3]  # of 3.75
    assert counts.step(2, 29, 10).tolist() == [29, 2]
    assert counts.exponential(3, 29, 10).tolist() == [29, 9, 2]  # of 9.17 and 2.9
    assert counts.pareto(4, 29, 2, alpha=1.0).tolist() == [29, 7, 3, 2]  # of 7.74 and 3.52


def test_the_realised_ratio_differs_from_the_nominal_where_truncation_bites():
    assert counts.ratio(counts.exponential(100, 500, 200)) == 250.0
    assert counts.ratio(counts.exponential(10, 5000, 100)) == 100.0


def test_pareto_follows_its_definition():
    made, last = counts.pareto(1000, 1280, 5).tolist(), (1280 / 5) ** (1 / 7)
    for i in (0, 1, 17, 500, 998):
        assert made[i] == max(5, int(1280 * (1 + (last - 1) * i / 999) ** -7))
    assert made[0] == 1280 and made[-1] == 5 and made == sorted(made, reverse=True)


def test_a_profile_that_empties_a_class_is_an_error():
    with pytest.raises(ValueError, match="without images"):
        counts.exponential(10, 50, 100)


@pytest.mark.parametrize("classes", [0, -3, 2.5])
def test_a_profile_of_no_whole_number_of_classes_is_an_error(classes):
    with pytest.raises(ValueError, match="whole number of classes"):
        counts.balanced(classes, 5)


@pytest.mark.parametrize("largest", [0, -5, 5.5, math.nan, math.inf])
def test_a_largest_class_without_a_whole_number_of_images_is_an_error(largest):
    for profile in (
        lambda: counts.exponential(3, largest, 1),
        lambda: counts.step(3, largest, 1),
        lambda: counts.pareto(3, largest, 1),
        lambda: counts.balanced(3, largest),
    ):
        with pytest.raises(ValueError, match="largest"):
            profile()


@pytest.mark.parametrize("alpha", [0, -1, math.nan, math.inf])
def test_a_pareto_law_needs_a_positive_index(alpha):
    with pytest.raises(ValueError, match="alpha"):
        counts.pareto(5, 50, 10, alpha=alpha)


@pytest.mark.parametrize("ratio", [0.5, 0, -1, math.nan, math.inf])
def test_a_ratio_below_one_is_an_error(ratio):
    with pytest.raises(ValueError, match="ratio"):
        counts.exponential(10, 5000, ratio)


def test_one_class_is_a_profile():
    for made in (
        counts.exponential(1, 7, 1),
        counts.step(1, 7, 1),
        counts.pareto(1, 7, 7),
        counts.balanced(1, 7),
    ):
        assert made.tolist() == [7]


@given(st.integers(1, 300), st.integers(1, 10_000), st.floats(1, 1000))
def test_exponential_never_rises_and_ends_at_the_ratio(classes, largest, ratio):
    if int(largest * (1 / ratio)) < 1:
        return
    made = counts.exponential(classes, largest, ratio)
    assert len(made) == classes and int(made[0]) == largest
    assert bool((made[1:] <= made[:-1]).all())
    if classes > 1:
        assert abs(int(made[-1]) - largest / ratio) <= 1 + 1e-6


# ----------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize("given_", [[3, 2, 1], (3, 2, 1), np.array([3, 2, 1]), torch.tensor([3.0, 2.0, 1.0])])
def test_counts_may_be_a_list_an_array_or_a_tensor(given_):
    assert counts.checked(given_).tolist() == [3, 2, 1]
    assert counts.checked(given_).dtype == torch.int64


@pytest.mark.parametrize(
    "given_",
    [
        *([], [[1, 2]], 3, [1, -2], [1.5, 2.0], [1.0, math.nan], [1.0, math.inf], [True, False], [1, 0]),
        *(None, "500, 50", [1, "many"], {0: 5}, [[1, 2], [3]], [2**70], [1e30, 1.0]),
    ],
)
def test_what_cannot_be_counts_is_an_error(given_):
    with pytest.raises(ValueError, match="counts|classes without images"):
        counts.checked(given_)


def test_a_class_without_images_counts_as_one_when_clamped():
    assert counts.checked([5, 0], zero_count="clamp").tolist() == [5, 1]
    with pytest.raises(ValueError, match="zero_count"):
        counts.checked([5, 1], zero_count="maybe")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- effective number


def test_effective_number_is_the_published_one():
    # Spec C5, CIFAR-10-LT at ratio 100 and beta 0.9999.
    golden = [3934.85, 2589.71, 1644.03, 1021.08, 624.67, 379.63, 229.34, 138.05, 82.66, 49.88]
    made = counts.effective_number(counts.exponential(10, 5000, 100), 0.9999)
    assert made.tolist() == pytest.approx(golden, abs=5e-3)


def test_effective_weights_are_the_published_ones():
    # Spec B1, the weights of LDAM-DRW.
    golden = [0.0506, 0.0769, 0.1211, 0.1950, 0.3188, 0.5246, 0.8683, 1.4426, 2.4092, 3.9927]
    made = counts.effective_weights(counts.exponential(10, 5000, 100), 0.9999)
    assert made.tolist() == pytest.approx(golden, abs=5e-5)


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=30), st.floats(0, 1))
def test_effective_number_is_the_geometric_sum(images, beta):
    made = counts.effective_number(images, beta).tolist()
    for n, found in zip(images, made, strict=True):
        if n <= 500:
            assert found == pytest.approx(math.fsum(beta**k for k in range(n)), rel=1e-9)
        assert 1 - 1e-9 <= found <= n * (1 + 1e-9)
    assert float(counts.effective_weights(images, beta).sum()) == pytest.approx(len(images))


def test_effective_number_keeps_its_digits_where_beta_is_almost_one():
    made = counts.effective_number([1, 3, 500], 1 - 1e-12).tolist()
    assert made == pytest.approx([n - n * (n - 1) / 2 * 1e-12 for n in (1, 3, 500)], rel=1e-12)


def test_effective_number_goes_from_one_to_the_count():
    assert counts.effective_number([1, 10, 0], 0.0).tolist() == [1, 1, 0]
    assert counts.effective_number([1, 10, 0], 1.0).tolist() == [1, 10, 0]
    with pytest.raises(ValueError, match="beta"):
        counts.effective_number([1, 10], 1.5)


def test_the_log_prior_is_the_logarithm_of_the_share():
    made = counts.log_prior([500, 50, 5])
    assert made.dtype == torch.float64
    assert made.tolist() == pytest.approx([math.log(n / 555) for n in (500, 50, 5)], rel=1e-15)
    assert counts.log_prior([3, 0], zero_count="clamp").tolist() == pytest.approx(
        [math.log(3 / 4), math.log(1 / 4)]
    )


# ------------------------------------------------------------------------------------------------ shots


def test_the_three_rules_differ_at_twenty_and_a_hundred_only():
    images = [101, 100, 99, 21, 20, 19, 0]
    paper, decoupling, lfme = (counts.shots(images, rule) for rule in ("paper", "decoupling", "lfme"))
    assert paper.many.tolist() == [True] + [False] * 6
    assert paper.few.tolist() == [False] * 4 + [True] * 3
    assert decoupling.many.tolist() == paper.many.tolist()
    assert decoupling.few.tolist() == [False] * 5 + [True] * 2
    assert lfme.many.tolist() == [True, True] + [False] * 5
    assert lfme.few.tolist() == paper.few.tolist()


@pytest.mark.parametrize(
    ("classes", "ratio", "groups"),
    [
        *((10, ratio, [10, 0, 0]) for ratio in (10, 20)),
        *((10, ratio, [10 - medium, medium, 0]) for ratio, medium in ((50, 1), (100, 2), (200, 3))),
        *((100, ratio, groups) for ratio, groups in ((10, [69, 31, 0]), (20, [53, 47, 0]))),
        *((100, ratio, groups) for ratio, groups in ((50, [41, 40, 19]), (100, [35, 34, 31]))),
        (100, 200, [30, 30, 40]),
    ],
)
def test_shots_of_cifar_are_the_published_ones(classes, ratio, groups):
    shots = counts.shots(counts.exponential(classes, 50_000 // classes, ratio))
    assert [int(mask.sum()) for mask in shots] == groups


def test_one_class_of_cifar100_changes_its_group_with_the_rule():
    for ratio, few in ((50, 18), (100, 30)):  # a class of exactly 20 images
        assert int(counts.shots(counts.exponential(100, 500, ratio), "decoupling").few.sum()) == few


@given(st.lists(st.integers(0, 300), min_size=1, max_size=50))
def test_every_class_is_in_exactly_one_group(images):
    for rule in ("paper", "decoupling", "lfme"):
        assert torch.stack(list(counts.shots(images, rule))).sum(0).tolist() == [1] * len(images)


def test_the_mean_of_an_empty_group_is_nan_and_not_zero():
    many, medium, few = counts.shots([500, 200, 5]).means(torch.tensor([10.0, 20.0, 70.0]))
    assert (many, few) == (15.0, 70.0) and math.isnan(medium)


def test_a_list_in_place_of_a_tensor_is_named():
    with pytest.raises(TypeError, match=r"torch.as_tensor\(values\)"):
        counts.shots([500, 200, 5]).means([10.0, 20.0, 70.0])  # type: ignore[arg-type]


def test_an_unknown_rule_is_an_error():
    with pytest.raises(ValueError, match="shot rule"):
        counts.shots([1, 2], "mine")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ scale


@pytest.mark.parametrize("classes", [2, 3, 10, 100, 8142])
def test_the_suggested_scale_lets_a_perfect_sample_reach_the_confidence(classes):
    scale = counts.suggest_scale(classes, 0.99)
    own, other = math.exp(scale), math.exp(-scale / (classes - 1))
    assert own / (own + (classes - 1) * other) == pytest.approx(0.99)


def test_the_suggested_scale_grows_with_the_classes_and_stays_below_the_papers():
    scales = [counts.suggest_scale(classes) for classes in (2, 5, 10, 100, 1000, 8142)]
    assert scales == sorted(scales) and scales[-1] < 30
    for classes, confidence in ((1, 0.9), (2, 0.4), (2, 1.0)):
        with pytest.raises(ValueError):
            counts.suggest_scale(classes, confidence)

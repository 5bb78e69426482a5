from __future__ import annotations

import math

import numpy as np
import pytest

from longtail.report import measures

NAN = float("nan")


def test_classes_are_sorted_by_frequency_and_ties_keep_their_order() -> None:
    found = measures.by_frequency(np.array([5, 80, 5, 40]), [np.array([1.0, 2.0, 3.0, 4.0])])
    assert found["order"].tolist() == [1, 3, 0, 2]
    assert found["counts"].tolist() == [80, 40, 5, 5]
    assert found["accuracy"].tolist() == [[2.0, 4.0, 1.0, 3.0]]


def test_many_classes_are_averaged_in_neighbouring_bars() -> None:
    counts = np.array([8, 7, 6, 5, 4, 3])
    found = measures.by_frequency(counts, [np.array([10.0, 20.0, NAN, 40.0, NAN, NAN])], most=3)
    assert found["bar"].tolist() == [0, 0, 1, 1, 2, 2]
    assert found["counts"].tolist() == [7.5, 5.5, 3.5]
    assert found["accuracy"][0][:2].tolist() == [15.0, 40.0] and math.isnan(found["accuracy"][0][2])


def test_confusion_counts_pairs() -> None:
    matrix = measures.confusion(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_confusion_is_grouped_only_above_the_limit() -> None:
    matrix = np.arange(16).reshape(4, 4)
    counts = np.array([1, 4, 3, 2])  # by frequency: 1, 2, 3, 0
    same, members = measures.grouped(matrix, counts, most=4)
    assert [m.tolist() for m in members] == [[1], [2], [3], [0]]
    assert same[0].tolist() == [5, 6, 7, 4]
    summed, members = measures.grouped(matrix, counts, most=3, groups=2)
    assert [m.tolist() for m in members] == [[1, 2], [3, 0]]
    assert summed.tolist() == [[5 + 6 + 9 + 10, 7 + 4 + 11 + 8], [13 + 14 + 1 + 2, 15 + 12 + 3 + 0]]
    assert summed.sum() == matrix.sum()


def test_a_row_without_images_is_nan() -> None:
    shares = measures.row_shares(np.array([[1, 3], [0, 0]]))
    assert shares[0].tolist() == [25.0, 75.0] and np.isnan(shares[1]).all()


def test_reliability_by_hand() -> None:
    # Two classes with logit gap g: confidence sigmoid(g), here 0.5, 0.75, 0.75, 0.9.
    gaps = np.array([0.0, math.log(3), math.log(3), math.log(9)])
    logits = np.stack([gaps, np.zeros(4)], axis=1)
    labels = np.array([0, 0, 1, 0])  # right, right, wrong, right
    found = measures.reliability(logits, labels, bins=4)  # (0, .25], (.25, .5], (.5, .75], (.75, 1]
    assert found["share"].tolist() == [0.0, 0.25, 0.5, 0.25] and found["number"].tolist() == [0, 1, 2, 1]
    assert found["accuracy"][1:].tolist() == [1.0, 0.5, 1.0]
    assert found["confidence"][1:].tolist() == pytest.approx([0.5, 0.75, 0.9])
    assert float(found["ece"]) == pytest.approx(0.25 * 0.5 + 0.5 * 0.25 + 0.25 * 0.1)


def test_reliability_of_half_precision_is_finite_and_chunks_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    logits, labels = (20 * draw.normal(size=(50, 7))).astype(np.float16), draw.integers(0, 7, 50)
    whole = measures.reliability(logits, labels)
    gap = measures.logit_gap(logits, labels, 7)
    monkeypatch.setattr(measures, "CHUNK", 8)
    again = measures.reliability(logits, labels)
    assert float(whole["ece"]) == float(again["ece"]) and np.isfinite(float(whole["ece"]))
    assert np.array_equal(gap, measures.logit_gap(logits, labels, 7), equal_nan=True)
    assert measures.predicted(logits).tolist() == logits.argmax(axis=1).tolist()


def test_logit_gap_by_hand() -> None:
    logits = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0], [4.0, 1.0, 0.0]])
    gap = measures.logit_gap(logits, np.array([0, 1, 1]), 3)
    assert gap[0] == 1.0 and gap[1] == (4.0 - 3.0) / 2 and math.isnan(gap[2])


def test_the_worst_class_is_the_rarest_among_equals_and_untested_ones_are_left_out() -> None:
    accuracies = np.array([10.0, NAN, 10.0, 0.0, 90.0])
    assert measures.worst(accuracies, np.array([50, 1, 5, 100, 2]), 3).tolist() == [3, 2, 0]


def test_trend_and_thinning_keep_the_mean_of_their_parts() -> None:
    assert measures.trend(np.array([0.0, NAN, 2.0]), 3).tolist() == [0.0, 1.0, 2.0]
    x, y = measures.thin(np.arange(8.0), np.arange(8.0) * 2, most=4)
    assert x.tolist() == [0.5, 2.5, 4.5, 6.5] and y.tolist() == [1.0, 5.0, 9.0, 13.0]


def test_a_noisy_curve_becomes_its_trend_and_a_short_one_stays() -> None:
    noisy = np.tile([1.0, 3.0], 30)
    found = measures.smooth(noisy)
    assert len(found) == 60 and np.abs(found - 2).max() <= 0.2 + 1e-12  # of nine neighbours, five are alike
    assert measures.smooth(noisy[:14]).tolist() == noisy[:14].tolist()


@pytest.mark.parametrize(
    ("rule", "groups"), [("paper", [0, 1, 1, 2]), ("decoupling", [0, 1, 1, 1]), ("lfme", [0, 0, 1, 2])]
)
def test_shots_follow_the_rule_of_the_run(rule: str, groups: list[int]) -> None:
    masks = measures.shots(np.array([101, 100, 21, 20]), rule)
    assert [[bool(masks[g][i]) for g in measures.GROUPS].index(True) for i in range(4)] == groups

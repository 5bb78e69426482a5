"""H3 to H5: margins and logits against values worked out by hand."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from longtail.report.figures import geometry

COUNTS = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]


def test_quantiles_of_the_clamped_draw() -> None:
    # |N(0, 1/3)| stays below x with probability 2 Phi(3x) - 1; a clamped draw is exactly 1 beyond x = 1.
    for level in (0.05, 0.5, 0.95):
        x = geometry.quantile(level)
        assert 2 * NormalDist().cdf(3 * x) - 1 == pytest.approx(level, abs=1e-12)
    assert geometry.quantile(1 - 0.0026997961) == pytest.approx(1.0, abs=1e-6)
    assert geometry.quantile(0.9999) == 1.0
    mean = np.mean([geometry.quantile((i + 0.5) / 4000) for i in range(4000)])
    assert mean == pytest.approx(0.2657067508, abs=1e-4)


def test_density_and_the_mass_at_one_make_a_whole() -> None:
    x = np.linspace(0, 1, 20001)
    assert np.trapezoid(geometry.density(x), x) + 0.0026997961 == pytest.approx(1.0, abs=1e-7)


def test_the_boundary_of_ce_is_the_diagonal() -> None:
    found = geometry.class_margins(COUNTS, 0, 9)
    assert np.array_equal(found["ce"][0], found["theta"])


def test_ldam_margins_and_both_of_its_boundaries() -> None:
    found = geometry.class_margins(COUNTS, 0, 9)
    assert found["margins"] == pytest.approx([0.5 * (50 / 5000) ** 0.25, 0.5])  # 0.1581 and 0.5
    theta, (head, tail) = found["theta"], found["ldam"]
    known = ~np.isnan(head)
    assert np.cos(head[known]) == pytest.approx(np.cos(theta[known]) - found["margins"][0])
    known = ~np.isnan(tail)
    assert np.cos(tail[known]) == pytest.approx(np.cos(theta[known]) + 0.5)
    assert np.isnan(tail[theta < math.acos(0.5) - 1e-9]).all()  # cos + 0.5 > 1: no such angle


def test_gcl_bands_are_quantiles_of_the_tail_cloud() -> None:
    found = geometry.class_margins(COUNTS, 0, 9, strength=0.5)
    assert found["sizes"].tolist() == [0.0, 1.0]
    offsets = [0.5 * geometry.quantile(q) for q in geometry.BAND]
    assert found["offsets"].tolist() == offsets
    right_angle = 180  # theta = pi / 2
    assert np.cos(found["gcl_e"][:, right_angle]) == pytest.approx(offsets)
    assert found["gcl_a"][:, right_angle] == pytest.approx([math.pi / 2 * (1 - o) for o in offsets])


def test_the_corrected_conditions_of_the_paper() -> None:
    # d = 0.5, |e| = 1: GCL-E has no boundary where t_head < pi/3, GCL-A none where t_head < pi/4.
    theta = np.array([math.pi / 3 - 0.01, math.pi / 3 + 0.01])
    assert (np.cos(theta) + 0.5 <= 1).tolist() == [False, True]
    assert (np.array([math.pi / 4 - 0.01, math.pi / 4 + 0.01]) - math.pi / 2 * 0.5 > 0).tolist() == [
        False,
        True,
    ]


def test_two_clouds_make_a_band_around_their_difference() -> None:
    low, middle, high = geometry.offsets(1.0, 1.0, 0.5)
    assert middle == pytest.approx(0.0, abs=1e-9) and low == pytest.approx(-high)
    negative = geometry.offsets(1.0, 0.0, 0.5)
    assert negative.tolist() == sorted(negative) and (negative <= 0).all()


def test_gcl_a_loses_second_order_at_the_anchor_and_gcl_e_first() -> None:
    found = geometry.logit_curves((0.1, 0.5))
    median = geometry.quantile(0.5)
    for i, delta in enumerate((0.1, 0.5)):
        assert found["drop_gcl_e"][i] == pytest.approx(delta * median)
        assert found["drop_gcl_a"][i] == pytest.approx(1 - math.cos(math.pi / 2 * delta * median))
        assert found["drop_gcl_a"][i] == pytest.approx((math.pi / 2 * delta * median) ** 2 / 2, rel=0.01)
    drop = found["clean"] - found["gcl_a"][1, 1]
    assert abs(found["theta"][drop.argmax()] - math.pi / 2) < 0.1


def test_noisy_draws_lie_under_the_clean_curve_and_follow_the_seed() -> None:
    found = geometry.logit_curves(draws=500, seed=1)
    assert (found["draw_gcl_e"] <= np.cos(found["draw_theta"][:, 0]) + 1e-12).all()
    inside = (
        found["draw_gcl_e"] >= np.cos(found["draw_theta"][:, 0]) - found["deltas"][:, None] * 0.6534
    ).mean()
    assert inside == pytest.approx(0.95, abs=0.03)  # 0.6534 is the 95 % quantile of |e|
    again, other = geometry.logit_curves(draws=500, seed=1), geometry.logit_curves(draws=500, seed=2)
    assert np.array_equal(found["draw_gcl_a"], again["draw_gcl_a"])
    assert not np.array_equal(found["draw_gcl_a"], other["draw_gcl_a"])

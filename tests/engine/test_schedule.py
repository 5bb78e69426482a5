"""The learning rate at the steps that the sources state (spec J27)."""

from __future__ import annotations

import math

import pytest

from longtail.engine.schedule import factor
from longtail.recipe import Cosine, MultiStep, OneCycle


def at_epoch(schedule, epoch: int, epochs: int, steps: int = 7) -> float:
    """The factor at the first step of a 1-based epoch; the last step of the epoch must agree."""
    first = factor(schedule, (epoch - 1) * steps, steps=steps, epochs=epochs)
    assert first == factor(schedule, epoch * steps - 1, steps=steps, epochs=epochs)
    return first


@pytest.mark.parametrize(
    ("epoch", "lr"),
    [(1, 0.02), (2, 0.04), (5, 0.1), (6, 0.1), (160, 0.1), (161, 0.01), (180, 0.01), (181, 0.001)],
)
def test_cifar_stage_one_rates_are_the_released_ones(epoch: int, lr: float):
    schedule = MultiStep(warmup=5, drops=((160, 0.1), (180, 0.01)))
    assert 0.1 * at_epoch(schedule, epoch, 200) == pytest.approx(lr, rel=1e-12)


@pytest.mark.parametrize(("epoch", "lr"), [(1, 0.04), (61, 0.02), (81, 0.002)])
def test_places_stage_one_rates_are_the_released_ones(epoch: int, lr: float):
    schedule = MultiStep(warmup=5, drops=((60, 0.1), (80, 0.01)))
    assert 0.2 * at_epoch(schedule, epoch, 90) == pytest.approx(lr, rel=1e-12)


@pytest.mark.parametrize(("epoch", "lr"), [(1, 0.002), (2, 0.001995), (16, 0.001), (30, 5.48e-6)])
def test_stage_two_rates_are_the_effective_released_ones(epoch: int, lr: float):
    # lr(epoch) = 0.1 * [0.1 * 0.1 * (1 + cos(pi * epoch / 30))], 0-based
    written = 0.1 * (0.1 * 0.1 * (1 + math.cos(math.pi * (epoch - 1) / 30)))
    ours = 0.002 * at_epoch(Cosine(), epoch, 30)
    assert ours == pytest.approx(written, rel=1e-12)
    assert ours == pytest.approx(lr, rel=2e-3)


def test_a_continued_schedule_goes_on_where_the_first_stage_stopped():
    whole = MultiStep(warmup=5, drops=((160, 0.01), (180, 0.0001)))
    rest = MultiStep(warmup=5, drops=((160, 0.01), (180, 0.0001)), start=160)
    for epoch in range(1, 41):
        assert at_epoch(rest, epoch, 40) == at_epoch(whole, 160 + epoch, 200)


def test_one_cycle_rises_to_one_and_ends_at_its_final_factor():
    schedule = OneCycle(rise=0.25, final=0.1)
    rates = [factor(schedule, step, steps=10, epochs=10) for step in range(100)]
    assert max(rates) == pytest.approx(1.0) and rates.index(max(rates)) == 24
    assert rates[-1] == pytest.approx(0.1)
    assert all(a < b for a, b in zip(rates[:24], rates[1:25]))
    assert all(a > b for a, b in zip(rates[24:], rates[25:]))


def test_a_cosine_by_step_is_finer_than_one_by_epoch():
    by_step = [factor(Cosine(by_step=True), step, steps=4, epochs=3) for step in range(12)]
    assert len(set(by_step)) == 12
    assert by_step[4] == factor(Cosine(), 4, steps=4, epochs=3)

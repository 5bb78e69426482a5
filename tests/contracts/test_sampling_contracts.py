"""What every sampling rule promises. A rule added to `sampling.Rule` is covered without a change here."""

from __future__ import annotations

import typing

import numpy as np
import pytest
import torch

from longtail.data import sampling

RULES = typing.get_args(sampling.Rule)
SIZES = [80, 30, 0, 9, 1]  # class 2 has no image
TARGETS = np.random.default_rng(1).permutation(np.repeat(np.arange(5), SIZES))


def order(rule, *, seed=0, epoch=0, **kwargs):
    return sampling.indices(TARGETS, rule, seed=seed, epoch=epoch, classes=5, epochs=10, **kwargs)


def test_the_list_is_not_empty():
    assert len(RULES) >= 9


@pytest.mark.parametrize("rule", RULES)
class TestEveryRule:
    def test_gives_probabilities_that_sum_to_one(self, rule):
        chances = sampling.probabilities(SIZES, rule, epoch=3, epochs=10)
        assert chances.dtype == torch.float64 and chances.shape == (5,)
        assert (chances >= 0).all() and chances.sum().item() == pytest.approx(1, abs=1e-12)

    def test_gives_an_empty_class_nothing(self, rule):
        assert sampling.probabilities(SIZES, rule, epoch=3, epochs=10)[2] == 0
        assert sampling.probabilities(SIZES, rule, epoch=3, epochs=10)[[0, 1, 3, 4]].min() > 0

    def test_has_no_preference_among_equal_counts(self, rule):
        chances = sampling.probabilities([7, 7, 7], rule, epoch=3, epochs=10)
        torch.testing.assert_close(chances, torch.full((3,), 1 / 3, dtype=torch.float64))

    def test_is_equivariant_under_renaming_classes(self, rule):
        names = torch.tensor([4, 0, 3, 1, 2])
        chances = sampling.probabilities(torch.tensor(SIZES), rule, epoch=3, epochs=10)
        renamed = sampling.probabilities(torch.tensor(SIZES)[names], rule, epoch=3, epochs=10)
        torch.testing.assert_close(renamed, chances[names])

    def test_serves_a_single_class_and_extreme_ratios(self, rule):
        assert sampling.probabilities([5], rule).tolist() == [1.0]
        assert sampling.probabilities([10**7, 1], rule).isfinite().all()

    def test_draws_as_many_as_there_are_targets(self, rule):
        assert len(order(rule)) == len(TARGETS)
        assert len(order(rule, draws=17)) == 17

    def test_repeats_itself_exactly(self, rule):
        assert torch.equal(order(rule), order(rule))

    def test_differs_between_seeds_and_epochs(self, rule):
        assert not torch.equal(order(rule), order(rule, seed=1))
        assert not torch.equal(order(rule), order(rule, epoch=1))

    def test_differs_from_the_other_rules(self, rule):
        assert not any(torch.equal(order(rule), order(other)) for other in RULES if other != rule)

    def test_touches_no_global_stream(self, rule):
        torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
        order(rule)
        assert torch.equal(torch.get_rng_state(), torch_state)
        assert np.array_equal(np.random.get_state()[1], numpy_state[1])  # noqa: NPY002

    def test_leaves_the_targets_alone(self, rule):
        before = TARGETS.copy()
        order(rule)
        assert np.array_equal(TARGETS, before)

    def test_splits_over_processes_without_loss(self, rule):
        whole = order(rule)
        parts = [sampling.part(whole, 2, 12, rank=rank, world_size=3) for rank in range(3)]
        assert sorted(torch.cat(parts).tolist()) == sorted(whole[24:36].tolist())
        shares = [sampling.share(whole, rank=rank, world_size=2) for rank in range(2)]
        assert sorted(torch.cat(shares).tolist()) == sorted(whole.tolist())

    def test_works_in_a_sampler(self, rule):
        sampler = sampling.Sampler(TARGETS, rule, classes=5, epochs=10)
        sampler.set_epoch(4)
        assert list(sampler) == order(rule, epoch=4).tolist()

"""Sampling against golden values, slow references and frequencies."""

from __future__ import annotations

import json
import math
import time
import typing

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import counts, recipe
from longtail.data import sampling

CIFAR10 = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
GOLDEN = {
    "instance": [0.40303, 0.24158, 0.14477, 0.08681, 0.05199, 0.03119, 0.01870, 0.01120, 0.00669, 0.00403],
    "square_root": [0.24474, 0.18948, 0.14668, 0.11359, 0.08790, 0.06809, 0.05272, 0.04081, 0.03153, 0.02447],
    "effective_number": [
        0.11929,
        0.10864,
        0.10255,
        0.09902,
        0.09693,
        0.09570,
        0.09497,
        0.09453,
        0.09426,
        0.09411,
    ],
    "cben": [0.11940, 0.10857, 0.10246, 0.09894, 0.09689, 0.09569, 0.09498, 0.09457, 0.09432, 0.09418],
    "class_balanced": [0.1] * 10,
    "class_aware": [0.1] * 10,
}
DRAWN_FREELY = [
    "class_balanced",
    "square_root",
    "power",
    "effective_number",
    "cben",
    "progressive",
    "reverse",
]
profiles = st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any)


def targets_of(sizes):
    """Targets with these class counts, classes scattered over the positions."""
    ordered = np.repeat(np.arange(len(sizes)), sizes)
    return torch.from_numpy(np.random.default_rng(0).permutation(ordered))


# ------------------------------------------------------------------------------------------------ chances


def test_the_rules_are_those_a_recipe_can_name():
    assert typing.get_args(sampling.Rule) == typing.get_args(recipe.Rule)


@pytest.mark.parametrize("rule", GOLDEN)
def test_probabilities_are_the_golden_values(rule):
    assert [round(p, 5) for p in sampling.probabilities(CIFAR10, rule).tolist()] == GOLDEN[rule]


@settings(deadline=None)
@given(profiles)
def test_probabilities_are_the_formulas(sizes):
    n = [size for size in sizes if size]

    def log_cloud(size):
        return math.log(max(n) / size) / math.log(max(n) / min(n)) if max(n) > min(n) else 0.0

    def effective(size, beta):
        return (1 - beta**size) / (1 - beta)

    weights = {
        "instance": lambda size: size,
        "class_balanced": lambda size: 1,
        "class_aware": lambda size: 1,
        "square_root": lambda size: size**0.5,
        "power": lambda size: size**0.3,
        "effective_number": lambda size: size / effective(size, 0.99),
        "cben": lambda size: size / effective(size, 0.99 + 1e-5 * log_cloud(size)),
        "progressive": lambda size: (1 - 2 / 7) * size / sum(n) + 2 / 7 / len(n),
        "reverse": lambda size: max(n) / size**2 * size,
    }
    assert set(weights) == set(typing.get_args(sampling.Rule))
    for rule, weight in weights.items():
        raw = [weight(size) if size else 0.0 for size in sizes]
        found = sampling.probabilities(sizes, rule, power=0.3, beta=0.99, epoch=2, epochs=8)
        assert found.tolist() == pytest.approx([w / sum(raw) for w in raw], rel=1e-8)


def test_progressive_goes_from_instance_to_class_balanced():
    def at(epoch):
        return sampling.probabilities(CIFAR10, "progressive", epoch=epoch, epochs=11)

    torch.testing.assert_close(at(0), sampling.probabilities(CIFAR10, "instance"))
    torch.testing.assert_close(at(10), sampling.probabilities(CIFAR10, "class_balanced"))
    torch.testing.assert_close(at(5), (at(0) + at(10)) / 2)


def test_progressive_refuses_an_epoch_beyond_its_end():
    with pytest.raises(ValueError, match="epochs 0 to 4, not 5"):
        sampling.probabilities(CIFAR10, "progressive", epoch=5, epochs=5)


def test_effective_number_runs_from_instance_to_class_balanced():
    at = lambda beta: sampling.probabilities(CIFAR10, "effective_number", beta=beta)  # noqa: E731
    torch.testing.assert_close(at(0.0), sampling.probabilities(CIFAR10, "instance"))
    torch.testing.assert_close(at(1e-9), sampling.probabilities(CIFAR10, "instance"))
    torch.testing.assert_close(
        at(1 - 1e-12), sampling.probabilities(CIFAR10, "class_balanced"), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(at(1.0), sampling.probabilities(CIFAR10, "class_balanced"))


def test_power_spans_the_family():
    for q, rule in [(1.0, "instance"), (0.5, "square_root"), (0.0, "class_balanced"), (-1.0, "reverse")]:
        found = sampling.probabilities(CIFAR10, "power", power=q)
        torch.testing.assert_close(found, sampling.probabilities(CIFAR10, rule))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"counts": [0, 0], "rule": "instance"}, "no class has an image"),
        ({"counts": [3, -1], "rule": "instance"}, "negative"),
        (
            {"counts": [3, 1], "rule": "random"},
            "unknown sampling rule 'random'; there are instance, class_balanced, .*reverse",
        ),
        ({"counts": [3, 1], "rule": "effective_number", "beta": 1.5}, "beta"),
        ({"counts": [3, 1], "rule": "cben", "beta": 1.0}, "beta"),
        ({"counts": [3, 1], "rule": "power", "power": math.nan}, "power"),
        ({"counts": [3, 1], "rule": "power", "power": 1e6}, "power"),
        ({"counts": [3, 2], "rule": "power", "power": -1e6}, "power"),
    ],
)
def test_wrong_arguments_are_named(kwargs, message):
    with pytest.raises(ValueError, match=message):
        sampling.probabilities(**kwargs)


# ------------------------------------------------------------------------------------------------- orders


def test_instance_sampling_shows_every_image_once():
    targets = targets_of(CIFAR10)
    order = sampling.indices(targets, "instance", seed=0, epoch=0)
    assert order.sort().values.tolist() == list(range(len(targets)))
    again = sampling.indices(targets, "instance", seed=0, epoch=0, draws=2 * len(targets) + 5)
    assert torch.equal(again[: len(targets)], order)
    assert again[len(targets) : 2 * len(targets)].sort().values.tolist() == list(range(len(targets)))
    assert not torch.equal(again[len(targets) : 2 * len(targets)], order)


def test_a_permutation_has_no_preferred_places():
    firsts = [sampling.indices([0] * 20, "instance", seed=s, epoch=0)[0].item() for s in range(4000)]
    assert chi_square_is_plausible(np.bincount(firsts, minlength=20), np.full(20, 200.0))


def chi_square_is_plausible(found, expected):
    """Below the 1 - 1e-4 quantile of chi-square (Wilson and Hilferty's approximation of it)."""
    statistic = float(((found - expected) ** 2 / expected).sum())
    freedom = len(found) - 1
    quantile = freedom * (1 - 2 / (9 * freedom) + 3.719 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic < quantile


@pytest.mark.parametrize("rule", DRAWN_FREELY)
def test_classes_come_as_often_as_their_probability_says(rule):
    targets = targets_of(CIFAR10)
    order = sampling.indices(targets, rule, seed=3, epoch=1, epochs=3, draws=100_000)
    chances = sampling.probabilities(CIFAR10, rule, epoch=1, epochs=3)
    found = np.bincount(targets[order].numpy(), minlength=10)
    assert chi_square_is_plausible(found, chances.numpy() * 100_000)


def test_the_chi_square_test_notices_a_wrong_rule():
    targets = targets_of(CIFAR10)
    order = sampling.indices(targets, "square_root", seed=3, epoch=1, draws=100_000)
    wrong = sampling.probabilities(CIFAR10, "power", power=0.48).numpy() * 100_000
    assert not chi_square_is_plausible(np.bincount(targets[order].numpy(), minlength=10), wrong)


@pytest.mark.parametrize("rule", ["class_balanced", "square_root", "effective_number", "reverse"])
def test_images_of_a_class_come_equally_often(rule):
    targets = targets_of([40, 10])
    order = sampling.indices(targets, rule, seed=4, epoch=0, draws=50_000)
    for label in (0, 1):
        mine = (targets == label).nonzero().flatten()
        drawn = order[targets[order] == label]
        found = torch.bincount(drawn, minlength=50)[mine].numpy()
        assert chi_square_is_plausible(found, np.full(len(mine), len(drawn) / len(mine)))


def test_class_aware_cycles_hold_every_class_exactly_four_times():
    targets = targets_of(CIFAR10)
    order = sampling.indices(targets, "class_aware", seed=0, epoch=0)
    assert len(order) == len(targets)
    drawn = targets[order]
    cycles = drawn[: len(drawn) // 40 * 40].reshape(-1, 10, 4)
    assert (cycles == cycles[:, :, :1]).all()  # four at a time
    classes = cycles[:, :, 0]
    assert (classes.sort(1).values == torch.arange(10)).all()
    assert len({tuple(row) for row in classes.tolist()}) > 0.9 * len(classes)  # in a new order each cycle


@pytest.mark.parametrize("rule", ["class_aware", "progressive"])
def test_a_class_cycle_shows_all_its_images_before_it_repeats_one(rule):
    sizes = [30, 7, 3, 1]
    targets = targets_of(sizes)
    order = sampling.indices(targets, rule, seed=0, epoch=1, epochs=3, draws=400)
    for label, size in enumerate(sizes):
        mine = order[targets[order] == label].tolist()
        rounds = [mine[i : i + size] for i in range(0, len(mine), size)]
        assert len(rounds) > 2
        assert all(sorted(r) == sorted(rounds[0]) for r in rounds[:-1])
        assert len(set(rounds[-1])) == len(rounds[-1])
        if size > 3:
            assert len({tuple(r) for r in rounds[:-1]}) > 1  # shuffled anew


@settings(deadline=None, max_examples=60)
@given(
    sizes=profiles,
    rule=st.sampled_from(typing.get_args(sampling.Rule)),
    seed=st.integers(0, 2**40),
    draws=st.integers(0, 300) | st.none(),
)
def test_every_order_has_the_asked_length_and_only_real_positions(sizes, rule, seed, draws):
    targets = targets_of(sizes)
    order = sampling.indices(targets, rule, seed=seed, epoch=0, classes=len(sizes), draws=draws)
    assert order.dtype == torch.int64
    assert len(order) == (len(targets) if draws is None else draws)
    assert not len(order) or (0 <= order.min() and order.max() < len(targets))


@settings(deadline=None, max_examples=40)
@given(sizes=profiles, seed=st.integers(0, 2**40))
def test_every_window_of_a_class_aware_order_is_balanced(sizes, seed):
    targets, present = targets_of(sizes), sum(size > 0 for size in sizes)
    order = sampling.indices(targets, "class_aware", seed=seed, epoch=0, draws=12 * present)
    for window in targets[order].reshape(3, 4 * present):
        assert sorted(torch.bincount(window, minlength=len(sizes)).tolist()) == sorted(
            4 if size else 0 for size in sizes
        )


def test_targets_may_be_a_list_an_array_or_a_tensor():
    targets = [0, 0, 1, 0, 2, 1]
    first = sampling.indices(targets, "class_balanced", seed=0, epoch=0)
    for other in (
        np.array(targets, dtype=np.int32),
        torch.tensor(targets),
        torch.tensor(targets, dtype=torch.uint8),
    ):
        assert torch.equal(sampling.indices(other, "class_balanced", seed=0, epoch=0), first)


@pytest.mark.parametrize(
    ("targets", "kwargs", "message"),
    [
        ([], {}, "class indices"),
        ([0.5, 1.0], {}, "class indices"),
        ([[0], [1]], {}, "class indices"),
        ([0, -1], {}, "negative"),
        ([0, 10**12], {}, "1000000000000 occurs"),
        (np.array([0, 2**63], dtype=np.uint64), {}, "9223372036854775808 occurs"),
        ([0, 3], {"classes": 3}, "0..2, but 3 occurs"),
        ([0, 1], {"draws": -1}, "draws"),
    ],
)
def test_wrong_targets_are_named(targets, kwargs, message):
    with pytest.raises(ValueError, match=message):
        sampling.indices(targets, "class_balanced", seed=0, epoch=0, **kwargs)


def test_seed_and_epoch_may_be_any_whole_number_and_nothing_else():
    wanted = sampling.indices([0, 0, 1, 1], "class_balanced", seed=1, epoch=1, draws=20)
    for one in (np.int64(1), torch.tensor(1), True):
        found = sampling.indices([0, 0, 1, 1], "class_balanced", seed=one, epoch=one, draws=20)
        assert torch.equal(found, wanted)
    for name in ("seed", "epoch", "draws"):
        for value in (1.0, "1", [1]):
            with pytest.raises(TypeError, match=f"{name} must be a whole number"):
                sampling.indices([0, 1], "instance", **{"seed": 0, "epoch": 0, name: value})
    sampler = sampling.Sampler([0, 0, 1, 1], "class_balanced", seed=np.int64(1), draws=np.int64(20))
    sampler.set_epoch(np.int64(1))
    assert list(sampler) == wanted.tolist()
    assert json.loads(json.dumps(sampler.state_dict())) == sampler.state_dict()


def test_an_order_is_the_same_on_every_machine():
    """Stored once from this code: a change moves the images every past run has seen (CHANGELOG, Numbers)."""
    targets = [0, 0, 0, 0, 0, 0, 1, 1, 1, 2]
    found = {rule: sampling.indices(targets, rule, seed=1, epoch=2, epochs=4).tolist() for rule in STORED}
    assert found == STORED


STORED = {
    "instance": [5, 9, 1, 7, 8, 6, 3, 0, 2, 4],
    "class_balanced": [6, 6, 9, 9, 0, 8, 9, 3, 8, 6],
    "square_root": [1, 0, 4, 0, 4, 1, 1, 4, 9, 4],
    "power": [8, 9, 8, 0, 6, 2, 0, 5, 6, 6],
    "effective_number": [3, 1, 0, 5, 2, 7, 9, 9, 2, 9],
    "cben": [5, 9, 7, 0, 7, 9, 4, 8, 6, 9],
    "progressive": [2, 7, 6, 8, 8, 0, 6, 9, 7, 3],
    "class_aware": [9, 9, 9, 9, 7, 8, 6, 8, 1, 5],
    "reverse": [7, 9, 8, 9, 9, 9, 1, 9, 9, 7],
}


def test_a_hundred_thousand_samples_take_milliseconds():
    """The aim is 20 ms; processor time, since a busy machine makes a clock run fast."""
    targets = targets_of(counts.exponential(1000, 560, 100).tolist())
    assert len(targets) > 100_000
    for rule in typing.get_args(sampling.Rule):
        best = math.inf
        for epoch in range(5):
            begin = time.process_time()
            sampling.indices(targets, rule, seed=0, epoch=epoch, epochs=5)
            best = min(best, time.process_time() - begin)
        assert best < 0.1, (rule, best)


# -------------------------------------------------------------------------------------------------- ranks


@settings(deadline=None)
@given(total=st.integers(1, 200), batch_size=st.integers(1, 40), world_size=st.integers(1, 6))
def test_the_parts_of_a_batch_never_overlap_and_are_the_batch(total, batch_size, world_size):
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    for step in range(-(-total // batch_size)):
        parts = [
            sampling.part(order, step, batch_size, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        batch = order[step * batch_size : (step + 1) * batch_size]
        assert torch.cat(parts).sort().values.tolist() == batch.sort().values.tolist()
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(deadline=None)
@given(total=st.integers(1, 200), world_size=st.integers(1, 6))
def test_shares_do_not_overlap_and_say_what_happens_to_the_rest(total, world_size):
    order = torch.arange(total)

    def shares(remainder):
        return [
            sampling.share(order, rank=rank, world_size=world_size, remainder=remainder).tolist()
            for rank in range(world_size)
        ]

    dropped, kept, repeated = shares("drop"), shares("keep"), shares("repeat")
    assert {len(mine) for mine in dropped} == {total // world_size}
    assert sorted(sum(dropped, [])) == list(range(total - total % world_size))
    assert sorted(sum(kept, [])) == list(range(total))
    assert {len(mine) for mine in repeated} == {-(-total // world_size)}
    assert set(sum(repeated, [])) == set(range(total))


def test_local_batches_of_a_share_are_the_parts_of_the_global_batch():
    order = sampling.indices([0] * 100, "instance", seed=0, epoch=0)
    for rank in range(4):
        mine = sampling.share(order, rank=rank, world_size=4)
        for step, local in enumerate(mine.split(5)):
            assert torch.equal(local, sampling.part(order, step, 20, rank=rank, world_size=4))


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match="0..1, not 2"):
        sampling.part(torch.arange(4), 0, 2, rank=2, world_size=2)
    with pytest.raises(ValueError, match="0..1, not -1"):
        sampling.Sampler([0, 1], rank=-1, world_size=2)
    with pytest.raises(ValueError, match="world_size must be at least 1"):
        sampling.share(torch.arange(4), world_size=0)


def test_a_part_or_remainder_that_does_not_exist_is_refused():
    for step, batch_size in ((-1, 2), (0, 0), (0, -2)):
        with pytest.raises(ValueError, match="part needs"):
            sampling.part(torch.arange(4), step, batch_size)
    for made in (sampling.Sampler, sampling.share):
        with pytest.raises(ValueError, match="remainder is .* got 'rest'"):
            made(torch.arange(4), remainder="rest")


# ------------------------------------------------------------------------------------------------ Sampler

SIZES = [60, 25, 12, 4]


def loader_of(sampler, batch_size=8, **kwargs):
    return torch.utils.data.DataLoader(
        torch.arange(sum(SIZES)), batch_size=batch_size, sampler=sampler, **kwargs
    )


def test_the_sampler_gives_the_order_of_indices():
    targets = targets_of(SIZES)
    sampler = sampling.Sampler(targets, "progressive", seed=5, epochs=4)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        expected = sampling.indices(targets, "progressive", seed=5, epoch=epoch, epochs=4)
        assert len(sampler) == len(expected)
        assert list(sampler) == expected.tolist()
        assert torch.cat(list(loader_of(sampler))).tolist() == expected.tolist()


@pytest.mark.parametrize("remainder", ["drop", "keep", "repeat"])
def test_the_sampler_gives_each_rank_its_share(remainder):
    targets = targets_of(SIZES)
    samplers = [
        sampling.Sampler(targets, "class_aware", rank=rank, world_size=3, remainder=remainder)
        for rank in range(3)
    ]
    order = samplers[0].order()
    for rank, sampler in enumerate(samplers):
        expected = sampling.share(order, rank=rank, world_size=3, remainder=remainder).tolist()
        assert list(sampler) == expected
        assert len(sampler) == len(expected)


@pytest.mark.parametrize("rule", typing.get_args(sampling.Rule))
@pytest.mark.parametrize("after", [0, 1, 5, 12, 13])
def test_a_restored_sampler_gives_the_rest_of_the_epoch(rule, after):
    make = lambda: sampling.Sampler(targets_of(SIZES), rule, seed=2, epochs=5)  # noqa: E731
    straight = make()
    straight.set_epoch(3)
    expected = [batch.tolist() for batch in loader_of(straight)]

    stopped = make()
    stopped.set_epoch(3)
    batches = iter(loader_of(stopped))
    before = [next(batches).tolist() for _ in range(after)]
    state = stopped.state_dict()

    restored = make()
    restored.load_state_dict(state)
    restored.set_epoch(3)  # what a loop does at the start of an epoch
    assert len(restored) == sum(map(len, expected)) - sum(map(len, before))
    assert before + [batch.tolist() for batch in loader_of(restored)] == expected

    restored.set_epoch(4)
    straight.set_epoch(4)
    assert list(restored) == list(straight)


def test_a_loop_with_workers_says_how_much_it_used():
    sampler = sampling.Sampler(targets_of(SIZES), "square_root", seed=2)
    expected = [batch.tolist() for batch in loader_of(sampler)]
    batches = iter(loader_of(sampler, num_workers=1, prefetch_factor=4))
    used = [next(batches).tolist() for _ in range(3)]
    state = sampler.state_dict(given=3 * 8)
    assert sampler.state_dict()["position"] > state["position"]  # the worker has read ahead
    list(batches)
    restored = sampling.Sampler(targets_of(SIZES), "square_root", seed=2)
    restored.load_state_dict(state)
    assert used + [batch.tolist() for batch in loader_of(restored)] == expected


def test_an_epoch_can_be_continued_by_another_number_of_processes():
    targets = targets_of(SIZES)
    two = [sampling.Sampler(targets, "class_balanced", rank=rank, world_size=2) for rank in range(2)]
    first = [next(iter(loader_of(sampler))).tolist() for sampler in two]
    assert two[0].state_dict() == two[1].state_dict()
    four = [
        sampling.Sampler(targets, "class_balanced", rank=rank, world_size=4, remainder="keep")
        for rank in range(4)
    ]
    for sampler in four:
        sampler.load_state_dict(two[0].state_dict())
    everything = sum(first, []) + sum(map(list, four), [])
    assert sorted(everything) == sorted(two[0].order().tolist())


def test_a_finished_pass_begins_anew():
    sampler = sampling.Sampler(targets_of(SIZES), "instance")
    assert list(sampler) == list(sampler)
    assert len(sampler) == sum(SIZES)
    resumed = sampling.Sampler(targets_of(SIZES), "instance")
    resumed.load_state_dict({**sampler.state_dict(), "position": 90})
    assert len(list(resumed)) == sum(SIZES) - 90
    assert list(resumed) == list(sampler)


def test_a_state_of_another_sampler_is_refused():
    state = sampling.Sampler(targets_of(SIZES), "instance", seed=1).state_dict()
    with pytest.raises(ValueError, match="another sampler"):
        sampling.Sampler(targets_of(SIZES), "instance", seed=2).load_state_dict(state)
    with pytest.raises(ValueError, match="another sampler"):
        sampling.Sampler(targets_of(SIZES), seed=2, draws=5).load_state_dict(state)
    state = sampling.Sampler(targets_of(SIZES), "power", seed=1, power=0.9).state_dict()
    for other in (
        sampling.Sampler(targets_of(SIZES), "power", seed=1, power=0.1),
        sampling.Sampler(targets_of(SIZES).flip(0), "power", seed=1, power=0.9),
    ):
        other.set_epoch(7)
        with pytest.raises(ValueError, match="another sampler or other targets"):
            other.load_state_dict(state)
        assert other.epoch == 7  # a refusal changes nothing
    state = sampling.Sampler(targets_of(SIZES), "instance", seed=1).state_dict()
    for position in (-1, sum(SIZES) + 1):
        with pytest.raises(ValueError, match=f"0..{sum(SIZES)}, not {position}"):
            sampling.Sampler(targets_of(SIZES), seed=1).load_state_dict({**state, "position": position})
    with pytest.raises(TypeError, match="position must be a whole number"):
        sampling.Sampler(targets_of(SIZES), seed=1).load_state_dict({**state, "position": 3.0})
    with pytest.raises(ValueError, match="has no checksum, draws, epoch, position, rule, seed"):
        sampling.Sampler(targets_of(SIZES), "instance", seed=1).load_state_dict({})


def test_the_sampler_refuses_wrong_targets_at_once():
    with pytest.raises(ValueError, match="class indices"):
        sampling.Sampler([], "instance")

"""Targets on the sphere, how they are given to classes, and the two heads that contrastive losses need."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from longtail import heads
from longtail.heads.assignment import assigned
from longtail.heads.targeted import crowding, spread


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------------------------------------- assignment


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("seed", range(4))
def test_the_assignment_is_the_best_of_all_permutations(size, seed):
    cost = np.random.default_rng(seed).normal(size=(size, size))
    if seed == 3:
        cost = cost.round()  # many of equal cost
    best = min(math.fsum(cost[i, p[i]] for i in range(size)) for p in itertools.permutations(range(size)))
    made = assigned(cost)
    assert sorted(made.tolist()) == list(range(size))
    assert math.fsum(cost[range(size), made]) == pytest.approx(best, abs=1e-12)


def test_a_hidden_permutation_of_a_hundred_is_found():
    order = np.random.default_rng(0).permutation(100)
    cost = np.random.default_rng(1).uniform(1, 2, size=(100, 100))
    cost[np.arange(100), order] = 0.5
    assert assigned(cost).tolist() == order.tolist()
    assert assigned(np.zeros((0, 0))).tolist() == []


@pytest.mark.parametrize("cost", [np.zeros((2, 3)), np.full((2, 2), np.nan), np.full((2, 2), np.inf)])
def test_costs_that_cannot_be_compared_are_refused(cost):
    with pytest.raises(ValueError, match="square matrix of finite numbers"):
        assigned(cost)


# ------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize(("classes", "width"), [(2, 2), (3, 2), (10, 128), (100, 128), (129, 128)])
def test_up_to_width_plus_one_targets_are_a_simplex(classes, width):
    points = spread(classes, width, seeded(0)).double()
    products = points @ points.T
    expected = torch.full_like(products, -1 / (classes - 1)).fill_diagonal_(1.0)
    torch.testing.assert_close(products, expected, atol=1e-5, rtol=0)


def test_no_other_points_are_less_crowded_than_the_simplex():
    """By Jensen over each row's products, whose sum is at least -1 from i's point of view."""
    simplex = normalize(spread(5, 8, seeded(0)).double())
    best = crowding(simplex)
    assert float(best) == pytest.approx(math.log(math.exp(1 / 0.07) + 4 * math.exp(-1 / 4 / 0.07)), rel=1e-6)
    for seed in range(20):
        moved = simplex + 0.1 * torch.randn(5, 8, generator=seeded(seed), dtype=torch.float64)
        assert crowding(normalize(moved)) > best + 1e-9


def test_more_targets_than_a_simplex_has_are_pushed_apart():
    """Twenty in eight dimensions: further apart, and less crowded, than any of a hundred draws."""
    points = spread(20, 8, seeded(1), steps=800).double()
    torch.testing.assert_close(points.norm(dim=1), torch.ones(20, dtype=torch.float64))

    def nearest(points):
        return float((points @ points.T).fill_diagonal_(-1.0).max())

    draws = [
        normalize(torch.randn(20, 8, generator=seeded(seed), dtype=torch.float64)) for seed in range(100)
    ]
    assert nearest(points) < min(map(nearest, draws)) - 0.1
    assert crowding(points) < min(map(crowding, draws)) - 1e-5


def test_targets_are_a_function_of_the_seed_alone():
    state = torch.get_rng_state()
    one, same, other = (spread(10, 16, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.allclose(one, other, atol=0.1)
    assert torch.equal(torch.get_rng_state(), state)


# ------------------------------------------------------------------------------------------ following classes


def test_targets_go_to_the_classes_whose_embeddings_lie_nearest():
    """Embeddings at the targets of a hidden permutation: it is found, at the first time of giving."""
    head = heads.Targeted(4, 6, width=8, every=3, generator=seeded(0))
    order, index = torch.tensor([4, 2, 0, 5, 1, 3]), torch.arange(6).repeat(5)
    rows = head.targets[order[index]] + 0.05 * torch.randn(30, 8, generator=seeded(1))
    for step in range(1, 4):
        head.follow(*head.sums(rows, index))
        assert int(head.seen) == step
        assert head.given.tolist() == (order.tolist() if step == 3 else list(range(6)))
    assert torch.equal(head.targets, heads.Targeted(4, 6, width=8, generator=seeded(0)).targets)


def test_running_means_are_their_equation_and_skip_classes_that_are_absent():
    head = heads.Targeted(4, 3, width=2, momentum=0.9, every=100, generator=seeded(0))
    batches = [
        ([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], [0, 0, 1]),
        ([[0.0, 1.0], [0.0, -1.0]], [0, 1]),
    ]
    expected = [[0.0, 0.0] for _ in range(3)]
    for rows, labels in batches:
        head.follow(*head.sums(torch.tensor(rows), torch.tensor(labels)))
        for c in set(labels):
            mine = [row for row, label in zip(rows, labels, strict=True) if label == c]
            mean = [math.fsum(column) / len(mine) for column in zip(*mine, strict=True)]
            length = math.hypot(*mean)
            moved = [0.9 * old + 0.1 * new / length for old, new in zip(expected[c], mean, strict=True)]
            expected[c] = [value / math.hypot(*moved) for value in moved]
    torch.testing.assert_close(head.centres, torch.tensor(expected))
    assert not head.centres[2].any()


def test_parts_of_a_batch_tell_the_head_what_the_whole_does():
    whole, parts = (heads.Targeted(4, 5, width=6, every=1, generator=seeded(0)) for _ in range(2))
    rows, index = torch.randn(12, 6, generator=seeded(1)), torch.arange(12) % 5
    whole.follow(*whole.sums(rows, index))
    one, other = parts.sums(rows[::2], index[::2]), parts.sums(rows[1::2], index[1::2])
    nothing = parts.sums(rows[:0], index[:0])
    parts.follow(one[0] + other[0] + nothing[0], one[1] + other[1] + nothing[1])
    torch.testing.assert_close(whole.centres, parts.centres)
    assert torch.equal(whole.given, parts.given)


def test_a_head_of_targets_scores_by_the_cosine_to_the_target_of_each_class():
    head = heads.Targeted(4, 3, width=5, generator=seeded(0))
    head.given.copy_(torch.tensor([2, 0, 1]))
    features = torch.randn(7, 4, generator=seeded(1))
    embedding = head.embed(features)
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(7))
    for column, target in enumerate((2, 0, 1)):
        torch.testing.assert_close(head(features)[:, column], embedding @ head.targets[target])


# ------------------------------------------------------------------------------------------- two branches


def test_the_classifier_beside_a_projection_is_the_plain_linear_one():
    features = torch.randn(3, 4, generator=seeded(1))
    for prototypes in (False, True):
        head = heads.Projected(4, 5, width=6, prototypes=prototypes, generator=seeded(0))
        assert torch.equal(head(features), heads.Linear(4, 5, generator=seeded(0))(features))


def test_prototypes_are_compared_with_by_the_cosine():
    head = heads.Projected(4, 5, width=6, prototypes=True, generator=seeded(0))
    features = torch.randn(3, 4, generator=seeded(1))
    head.prototypes.data *= torch.arange(1.0, 6.0)[:, None]  # lengths do not matter
    cosine = torch.nn.functional.cosine_similarity(
        head.projection(features)[:, None], head.prototypes[None], dim=2
    )
    torch.testing.assert_close(head.embed(features), cosine)


@pytest.mark.parametrize(
    "wrong",
    [lambda: heads.Projected(4, 5, width=0), lambda: heads.Targeted(4, 1), lambda: heads.Projected(0, 5)],
)
def test_heads_without_room_are_refused(wrong):
    with pytest.raises(ValueError, match="a head"):
        wrong()

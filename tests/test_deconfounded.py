"""The head of De-confound-TDE against its formulas, in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from longtail import recipe
from longtail.build.models import model as build
from longtail.heads import Deconfounded
from longtail.keys import Key

D, C = 6, 3


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def head(**changes):
    return Deconfounded(D, C, generator=seeded(), **changes).double()


def features(rows=4, seed=1):
    return torch.randn(rows, D, generator=seeded(seed), dtype=torch.float64)


def length(values):
    return math.sqrt(sum(v * v for v in values))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def by_hand(made, batch, direction=None, alpha=0.0):
    """mean over parts of <x/|x| - alpha cos(x, d) d, w / (|w| + damping)>, d the direction's unit part."""
    size, rows = D // made.parts, []
    for x in batch.tolist():
        row = []
        for w in made.weight.tolist():
            total = 0.0
            for k in range(made.parts):
                part = slice(k * size, (k + 1) * size)
                unit = [v / length(x[part]) for v in x[part]]
                if direction is not None:
                    d = [v / length(direction[part]) for v in direction[part]]
                    cosine = dot(x[part], d) / length(x[part])
                    unit = [u - alpha * cosine * v for u, v in zip(unit, d)]
                total += dot(unit, [v / (length(w[part]) + made.damping) for v in w[part]])
            row.append(total / made.parts)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_training_scores_are_the_damped_cosines(parts):
    made = head(parts=parts)
    torch.testing.assert_close(made.train()(features()), by_hand(made, features()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("parts, alpha", [(1, 1.0), (2, 1.5), (3, 3.0)])
def test_test_scores_lose_the_direction(parts, alpha):
    made = head(parts=parts, alpha=alpha)
    made.direction.copy_(features(1, seed=5)[0])
    expected = by_hand(made, features(), made.direction.tolist(), alpha)
    torch.testing.assert_close(made.eval()(features()), expected, rtol=1e-12, atol=1e-12)


def test_alpha_zero_is_the_plain_head():
    made = head(alpha=0.0)
    plain = made.train()(features())
    assert made.direction.any()
    assert torch.equal(made.eval()(features()), plain)


def test_the_direction_is_a_decaying_sum_of_batch_means():
    made = head(momentum=0.9)
    expected = [0.0] * D
    for seed in range(4):
        made.train()(features(seed=seed))
        mean = features(seed=seed).mean(0).tolist()
        expected = [0.9 * old + new for old, new in zip(expected, mean)]
    torch.testing.assert_close(made.direction, torch.tensor(expected, dtype=torch.float64))


def test_testing_does_not_move_the_direction_and_no_gradient_flows_into_it():
    made, batch = head(), features().requires_grad_()
    made.train()(batch).sum().backward()
    before = made.direction.clone()
    assert not made.direction.requires_grad
    made.eval()(features(seed=7))
    assert torch.equal(made.direction, before)


def test_features_along_the_direction_say_nothing_at_alpha_one():
    made = head(alpha=1.0)
    made.direction.copy_(features(1)[0])
    assert made.eval()(3 * features(1)).abs().max() < 1e-12


def test_the_direction_travels_with_the_model_and_alpha_does_not():
    assert set(head().state_dict()) == {"weight", "direction"}


def test_what_does_not_divide_is_refused():
    for wrong in (dict(parts=4), dict(parts=0)):
        with pytest.raises(ValueError, match="parts"):
            head(**wrong)


def test_its_network_is_a_classifier_with_it():
    spec = recipe.Deconfounded(backbone=recipe.Backbone(name="resnet8"), alpha=1.5)
    made = build(spec, 5, Key(0))
    assert isinstance(made.head, Deconfounded) and made.head.alpha == 1.5 and made.head.damping == 1 / 32
    assert made(torch.rand(2, 3, 8, 8)).scores.shape == (2, 5)

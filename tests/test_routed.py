"""Routers over experts: what they see, who is asked, and what is said where nobody else is."""

from __future__ import annotations

import math

import pytest
import torch

from longtail import heads, models
from longtail.models import Routed, experts_asked, of_those_asked

FEATURES, EXPERTS = 6, 3


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def routed(classes: int = 5, experts: int = EXPERTS, **fields: float) -> Routed:
    each = [heads.Linear(FEATURES, classes, generator=seeded(number)) for number in range(experts)]
    return Routed(models.Heads(each), FEATURES, generator=seeded(9), **fields).double()


@pytest.fixture
def features() -> torch.Tensor:
    return torch.randn(7, EXPERTS, FEATURES, generator=seeded(1), dtype=torch.float64)


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(7, EXPERTS, 5, generator=seeded(2), dtype=torch.float64)


@pytest.mark.parametrize(("classes", "top"), [(10, 10), (100, 30)])
def test_parameters_are_those_counted_by_hand(classes: int, top: int) -> None:
    each = [heads.Cosine(64, classes, generator=seeded()) for _ in range(3)]
    made = Routed(models.Heads(each), 64, generator=seeded())
    routers = 2 * ((64 * 16 + 16) + (16 + top + 1))
    assert sum(p.numel() for p in made.parameters()) == 3 * 64 * classes + routers


def test_a_router_sees_directions_and_the_highest_logits_so_far(features: torch.Tensor) -> None:
    head = routed(scale=30.0, top=3, hidden=4)
    scores = head(features)
    expected = []
    for image, said in zip(features.tolist(), scores.tolist(), strict=True):
        row = []
        for i in range(EXPERTS - 1):
            length = math.sqrt(math.fsum(x * x for x in image[i]))
            unit = [x / length for x in image[i]]
            hidden = [
                math.fsum(w * x for w, x in zip(weights, unit, strict=True)) + bias
                for weights, bias in zip(
                    head.hidden[i].weight.tolist(), head.hidden[i].bias.tolist(), strict=True
                )
            ]
            means = [30 * math.fsum(column) / (i + 1) for column in zip(*said[: i + 1], strict=True)]
            seen = hidden + sorted(means, reverse=True)[:3]
            (weights,), (bias,) = head.decide[i].weight.tolist(), head.decide[i].bias.tolist()
            row.append(math.fsum(w * x for w, x in zip(weights, seen, strict=True)) + bias)
        expected.append(row)
    torch.testing.assert_close(head.routes(features, scores), torch.tensor(expected, dtype=torch.float64))


def test_a_router_that_always_says_stop_leaves_the_first_expert(scores: torch.Tensor) -> None:
    for stop in (-1.0, 0.0):  # a probability of exactly one half is no reason to go on
        routes = torch.full((7, EXPERTS - 1), stop)
        assert experts_asked(routes).tolist() == [1] * 7
        torch.testing.assert_close(of_those_asked(scores, routes).mean(1), scores[:, 0])


def test_routers_that_never_say_stop_leave_the_plain_mean(scores: torch.Tensor) -> None:
    routes = torch.full((7, EXPERTS - 1), 1e-6)
    assert experts_asked(routes).tolist() == [EXPERTS] * 7
    assert torch.equal(of_those_asked(scores, routes), scores)


def test_each_image_has_the_mean_of_the_experts_it_got(scores: torch.Tensor) -> None:
    routes = torch.tensor([[1.0, -1], [-1, 1], [1, 1], [-1, -1], [2, 0], [0, 3], [5, 5]])
    asked = [2, 1, 3, 1, 2, 1, 3]  # who was told to stop is not asked by a later router
    assert experts_asked(routes).tolist() == asked
    expected = torch.stack([said[:number].mean(0) for said, number in zip(scores, asked, strict=True)])
    torch.testing.assert_close(of_those_asked(scores, routes).mean(1), expected)


def test_one_expert_has_no_router() -> None:
    head, features = routed(experts=1), torch.ones(2, 1, FEATURES, dtype=torch.float64)
    routes = head.routes(features, head(features))
    assert routes.shape == (2, 0) and experts_asked(routes).tolist() == [1, 1]


def test_half_precision_around_it_changes_nothing(features: torch.Tensor) -> None:
    head, given = routed().float(), features.float()
    scores = head(given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = head.routes(given, scores)
    assert torch.equal(inside, head.routes(given, scores))

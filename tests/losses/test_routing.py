"""The routers' loss against its definition, in slow plain Python; the labels by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from longtail.losses import CrossEntropy, Routing
from longtail.losses.routing import undecided

EXPERTS = 3


@pytest.fixture
def scores(batch):
    cosine, _ = batch
    return torch.stack([cosine, 2.0 * cosine.roll(1, 0), 3.0 * cosine.roll(3, 1)], 1)


@pytest.fixture
def routes():
    return torch.randn(16, EXPERTS - 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def predicted(sample, experts):
    """The class that the first `experts` of them name together."""
    mean = [math.fsum(column) / experts for column in zip(*sample[:experts], strict=True)]
    return mean.index(max(mean))


def answers(sample, y):
    right = [predicted(sample, experts) == y for experts in range(1, len(sample) + 1)]
    return [float(not right[i] and any(right[i + 1 :])) for i in range(len(sample) - 1)]


def binary(route, answer, weight):
    p = 1 / (1 + math.exp(-route))
    return -weight * answer * math.log(p) - (1 - answer) * math.log(1 - p)


@pytest.mark.parametrize("positives", [100.0, 1.0, 7.5])
def test_it_is_its_definition(scores, routes, batch, entropy, positives):
    target, expected = batch[1], 0.0
    for sample, y, row in zip(scores.tolist(), target.tolist(), routes.tolist(), strict=True):
        expected += math.fsum(entropy(expert, y) for expert in sample)
        each = [binary(r, a, positives) for r, a in zip(row, answers(sample, y), strict=True)]
        expected += math.fsum(each) / len(each)
    made = Routing(CrossEntropy(), positives=positives)(scores, target, routes=routes)
    assert float(made) == pytest.approx(expected / 16, rel=1e-10)


@pytest.mark.parametrize(
    "experts, expected",
    [  # two classes, the target is 0: the logits of class 0 against 0 of class 1
        ([3.0, -1.0, -1.0], [False, False]),  # right, right, right: nothing to gain
        ([-1.0, 3.0, 1.0], [True, False]),  # wrong, then right for good
        ([-1.0, -1.0, 5.0], [True, True]),  # only all three are right
        ([-1.0, 3.0, -9.0], [True, False]),  # wrong, right, wrong: the second must not go on
        ([1.0, -3.0, 9.0], [False, True]),  # right, wrong, right
        ([-1.0, -1.0, -1.0], [False, False]),  # never right: not worth another expert
    ],
)
def test_labels_by_hand(experts, expected):
    logits = torch.tensor([[[z, 0.0] for z in experts]])
    assert undecided(logits, torch.tensor([0])).tolist() == [expected]


def test_an_image_that_should_go_on_counts_a_hundred_times():
    logits = torch.tensor([[[-1.0, 0.0], [3.0, 0.0]], [[1.0, 0.0], [3.0, 0.0]]], dtype=torch.float64)
    routes, target = torch.zeros(2, 1, dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    loss = Routing(CrossEntropy())
    made = loss(logits, target, routes=routes) - loss.experts(logits, target)
    assert float(made) == pytest.approx((100 + 1) * math.log(2) / 2, rel=1e-12)


def test_the_experts_learn_nothing_of_the_routers(scores, routes, batch):
    mine, alone = (scores.clone().requires_grad_() for _ in range(2))
    loss, answers_of = Routing(CrossEntropy(30.0)), routes.requires_grad_()
    loss(mine, batch[1], routes=answers_of).backward()
    loss.experts(alone, batch[1]).backward()
    torch.testing.assert_close(mine.grad, alone.grad)
    assert answers_of.grad.abs().min() > 0


def test_one_expert_has_no_router_and_is_plain_cross_entropy(batch):
    cosine, target = batch
    made = Routing(CrossEntropy(30.0))(cosine[:, None], target)
    torch.testing.assert_close(made, cross_entropy(30 * cosine, target))


def test_routes_of_another_shape_are_refused(scores, batch):
    for routes in (None, torch.zeros(16, 3), torch.zeros(15, 2)):
        with pytest.raises(ValueError, match=r"routes must be .* \(16, 2\)"):
            Routing(CrossEntropy())(scores, batch[1], routes=routes)

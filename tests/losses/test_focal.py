"""Focal and class-balanced losses against their equations."""

from __future__ import annotations

import math

import pytest
import torch

from longtail import losses
from longtail.losses import functional


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_is_its_equation(batch, entropy, gamma):
    scores, target = batch
    each = [entropy(row, y) for row, y in zip(scores.tolist(), target.tolist(), strict=True)]
    expected = math.fsum((1 - math.exp(-value)) ** gamma * value for value in each) / 16
    assert float(losses.Focal(gamma)(scores, target)) == pytest.approx(expected, rel=1e-12)


def test_gamma_zero_is_cross_entropy(batch):
    torch.testing.assert_close(losses.Focal(0.0)(*batch), torch.nn.functional.cross_entropy(*batch))


def test_the_gradient_goes_through_both_factors_of_focal_and_one_of_gcl(batch):
    scores, target = batch
    each = torch.nn.functional.cross_entropy(scores, target, reduction="none")
    p = torch.exp(-each)[:, None]
    onehot = torch.nn.functional.one_hot(target, 10)
    entropy_gradient = (torch.softmax(scores, 1) - onehot) / 16
    # d/dx (1 - e^-x)^g x = (1 - e^-x)^g + g x e^-x (1 - e^-x)^(g-1)
    through = (1 - p) ** 2 + 2 * each[:, None] * p * (1 - p)
    for loss, factor in (
        (losses.Focal(2.0), through),
        (losses.GCL([5] * 10, focal=2.0, scale=1.0), (1 - p) ** 2),
    ):
        mine = scores.clone().requires_grad_()
        loss(mine, target).backward()
        torch.testing.assert_close(mine.grad, factor * entropy_gradient)


@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.0, 2.0])
def test_a_sample_known_for_certain_has_a_finite_gradient(gamma):
    scores = torch.tensor([[1e4, 0.0], [40.0, 0.0]], requires_grad=True)
    losses.Focal(gamma)(scores, torch.tensor([0, 0])).backward()
    assert bool(torch.isfinite(scores.grad).all())
    assert float(functional.focal_factor(torch.tensor([0.0]), gamma)) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_focal_factor_keeps_its_digits_near_certainty(dtype):
    each = torch.tensor([1e-12, 1e-7, 1e-3], dtype=dtype)
    expected = torch.tensor([1e-12, 1e-7, -math.expm1(-1e-3)], dtype=dtype)
    torch.testing.assert_close(functional.focal_factor(each, 1.0), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_class_balanced_is_its_equation(batch, images, entropy, gamma):
    scores, target = batch
    beta = 0.9999
    raw = [(1 - beta) / (1 - beta**n) for n in images]
    weights = [len(raw) * value / sum(raw) for value in raw]
    total = divisor = 0.0
    for row, y in zip(scores.tolist(), target.tolist(), strict=True):
        each = entropy(row, y)
        total += weights[y] * (1 - math.exp(-each)) ** gamma * each
        divisor += weights[y]
    made = losses.ClassBalanced(images, beta=beta, gamma=gamma)(scores, target)
    assert float(made) == pytest.approx(total / divisor, rel=1e-9)


def test_class_balanced_without_beta_is_cross_entropy(batch, images):
    made = losses.ClassBalanced(images, beta=0.0)(*batch)
    torch.testing.assert_close(made, torch.nn.functional.cross_entropy(*batch))


def test_class_balanced_in_the_limit_weighs_by_inverse_counts(batch, images):
    made = losses.ClassBalanced(images, beta=1.0)(*batch)
    inverse = 1 / torch.tensor(images, dtype=torch.float64)
    torch.testing.assert_close(made, torch.nn.functional.cross_entropy(*batch, weight=inverse))


@pytest.mark.parametrize("loss", [losses.Focal(), losses.ClassBalanced([9] * 10)])
def test_a_matrix_of_probabilities_is_refused(batch, loss):
    scores, _ = batch
    with pytest.raises(TypeError, match="Mixed"):
        loss(scores, torch.softmax(scores, 1))

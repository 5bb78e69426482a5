"""Logit adjustment, balanced softmax and the feature-balanced loss against their equations."""

from __future__ import annotations

import math

import pytest
import torch

from longtail import losses


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 2.0])
def test_logit_adjustment_is_its_equation(batch, images, entropy, tau):
    scores, target = batch
    total = math.fsum(
        entropy([z + tau * math.log(n / sum(images)) for z, n in zip(row, images, strict=True)], y)
        for row, y in zip(scores.tolist(), target.tolist(), strict=True)
    )
    assert float(losses.LogitAdjusted(images, tau)(scores, target)) == pytest.approx(total / 16, rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 16.0])
def test_balanced_softmax_is_its_equation(batch, images, entropy, scale):
    scores, target = batch
    total = math.fsum(
        entropy([scale * z + math.log(n) for z, n in zip(row, images, strict=True)], y)
        for row, y in zip(scores.tolist(), target.tolist(), strict=True)
    )
    made = losses.BalancedSoftmax(images, scale)(scores, target)
    assert float(made) == pytest.approx(total / 16, rel=1e-12)


def test_balanced_softmax_is_logit_adjustment_with_tau_one_at_any_number_of_images(batch, images):
    made = losses.BalancedSoftmax(images)(*batch)
    torch.testing.assert_close(losses.LogitAdjusted(images, 1.0)(*batch), made)
    # Ten times the images add a constant to log n.
    torch.testing.assert_close(losses.BalancedSoftmax([10 * n for n in images])(*batch), made)


@pytest.mark.parametrize("progress", [0.0, 0.4, 1.0])
def test_the_feature_balanced_loss_is_its_equation(batch, images, entropy, progress):
    scores, target = batch
    norms = torch.linspace(0.5, 30, 16, dtype=torch.float64)
    total, span = 0.0, math.log(max(images) / min(images))
    for row, y, norm in zip(scores.tolist(), target.tolist(), norms.tolist(), strict=True):
        sizes = [math.log(max(images) / n) / span for n in images]
        shifted = [z - progress**2 * 60 * d / (norm + 1e-12) for z, d in zip(row, sizes, strict=True)]
        total += entropy(shifted, y)
    made = losses.FeatureBalanced(images)(scores, target, progress=progress, norms=norms)
    assert float(made) == pytest.approx(total / 16, rel=1e-12)


def test_the_feature_balanced_loss_lengthens_the_features_of_the_tail(images):
    norms = torch.full((2,), 5.0, requires_grad=True)
    loss = losses.FeatureBalanced(images)
    loss(torch.zeros(2, 10), torch.tensor([9, 0]), progress=1.0, norms=norms).backward()
    tail, head = norms.grad.tolist()
    assert tail < 0 < head


def test_the_feature_balanced_loss_says_what_it_needs(batch, images):
    loss = losses.FeatureBalanced(images)
    assert loss.needs == ("progress", "norms")
    with pytest.raises(TypeError, match="progress"):
        loss(*batch)
    with pytest.raises(TypeError, match="norms= of the features"):
        loss(*batch, progress=0.5, norms=[1.0] * 16)
    with pytest.raises(ValueError, match="norms"):
        loss(*batch, progress=0.5, norms=torch.ones(3))
    assert bool(torch.isfinite(loss.eval()(*batch)))  # nothing is needed once training is over


@pytest.mark.parametrize("progress", [-0.1, 1.1, math.nan, torch.tensor(-0.1), torch.tensor(math.nan)])
def test_progress_is_a_part_of_the_training(batch, images, progress):
    with pytest.raises(ValueError, match="progress"):
        losses.FeatureBalanced(images)(*batch, progress=progress, norms=torch.ones(16))


@pytest.mark.parametrize("name", ["LogitAdjusted", "BalancedSoftmax"])
def test_a_matrix_of_probabilities_is_the_mixed_target_it_stands_for(batch, images, name):
    scores, target = batch
    loss = {"LogitAdjusted": losses.LogitAdjusted, "BalancedSoftmax": losses.BalancedSoftmax}[name](images)
    onehot = torch.nn.functional.one_hot
    matrix = 0.2 * onehot(target, 10).double() + 0.8 * onehot(target.flip(0), 10).double()
    torch.testing.assert_close(loss(scores, matrix), loss(scores, losses.Mixed(target, target.flip(0), 0.2)))


def test_adjustment_needs_images_in_every_class_unless_clamped():
    for loss in (losses.LogitAdjusted, losses.BalancedSoftmax, losses.FeatureBalanced):
        with pytest.raises(ValueError, match="without images"):
            loss([5, 0])
        loss([5, 0], zero_count="clamp")

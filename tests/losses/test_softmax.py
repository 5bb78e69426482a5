"""CrossEntropy against PyTorch's own, for every kind of target."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from longtail.losses import CrossEntropy, Mixed


def test_it_is_pytorchs_cross_entropy_of_scaled_scores(batch):
    scores, target = batch
    assert float(CrossEntropy()(scores, target)) == pytest.approx(float(cross_entropy(scores, target)))
    assert float(CrossEntropy(16.0)(scores, target)) == pytest.approx(
        float(cross_entropy(16 * scores, target))
    )
    assert torch.equal(CrossEntropy(16.0).logits(scores), 16 * scores)


def test_ignored_samples_count_for_nothing(batch):
    scores, target = batch
    target[3], target[7] = -100, -100
    torch.testing.assert_close(CrossEntropy()(scores, target), cross_entropy(scores, target))
    target[3], target[7] = 255, 255
    expected = cross_entropy(scores, target, ignore_index=255)
    torch.testing.assert_close(CrossEntropy(ignore_index=255)(scores, target), expected)


def test_a_class_may_be_the_ignored_one(batch):
    expected = cross_entropy(*batch, ignore_index=7)
    torch.testing.assert_close(CrossEntropy(ignore_index=7)(*batch), expected)


def test_a_batch_of_ignored_samples_alone_costs_nothing(batch):
    scores, target = batch
    scores = scores.requires_grad_()
    made = CrossEntropy()(scores, torch.full_like(target, -100))
    made.backward()
    assert float(made.detach()) == 0 and bool((scores.grad == 0).all())


def test_a_matrix_of_probabilities_is_pytorchs_soft_target(batch):
    scores, _ = batch
    matrix = torch.softmax(scores.flip(0), 1)
    torch.testing.assert_close(CrossEntropy()(scores, matrix), cross_entropy(scores, matrix))
    torch.testing.assert_close(
        CrossEntropy()(scores, matrix.float()), cross_entropy(scores, matrix), rtol=1e-6, atol=0
    )


def test_a_mixed_target_weighs_per_batch_or_per_image(batch):
    scores, target = batch
    other, share = target.flip(0), torch.linspace(0, 1, 16)
    first, second = (cross_entropy(scores, index, reduction="none") for index in (target, other))
    expected = (share * first + (1 - share) * second).mean()
    torch.testing.assert_close(CrossEntropy()(scores, Mixed(target, other, share)), expected)
    for weight in (0.3, torch.tensor(0.3, dtype=torch.float64)):
        expected = 0.3 * first.mean() + 0.7 * second.mean()
        torch.testing.assert_close(CrossEntropy()(scores, Mixed(target, other, weight)), expected)

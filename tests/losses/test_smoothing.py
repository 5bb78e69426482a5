"""Label-aware smoothing against its equation."""

from __future__ import annotations

import math

import pytest
import torch

from longtail import losses


def smoothing(n, images, head, tail, shape):
    place = (n - min(images)) / (max(images) - min(images))
    if shape == "concave":
        return tail + (head - tail) * math.sin(math.pi / 2 * place)
    if shape == "convex":
        return head + (head - tail) * math.sin(1.5 * math.pi + math.pi / 2 * place)
    return tail + (head - tail) * place


@pytest.mark.parametrize("shape", ["concave", "linear", "convex"])
@pytest.mark.parametrize(("head", "tail"), [(0.3, 0.0), (0.4, 0.1)])
def test_the_loss_is_its_equation(batch, images, entropy, shape, head, tail):
    scores, target = batch
    total = 0.0
    for row, y in zip(scores.tolist(), target.tolist(), strict=True):
        share = smoothing(images[y], images, head, tail, shape)
        total += (1 - share) * entropy(row, y) + share * sum(entropy(row, j) for j in range(10)) / 10
    made = losses.LabelAwareSmoothing(images, head, tail, shape)(scores, target)
    assert float(made) == pytest.approx(total / 16, rel=1e-12)


@pytest.mark.parametrize("shape", ["concave", "linear", "convex"])
def test_the_head_gets_the_head_share_and_the_tail_the_tail_share(images, shape):
    share = losses.LabelAwareSmoothing(images, 0.3, 0.1, shape).smoothing.values
    assert float(share[0]) == pytest.approx(0.3) and float(share[-1]) == pytest.approx(0.1)
    assert bool((share.diff() <= 1e-12).all())


def test_equal_counts_are_smoothed_as_the_tail(batch):
    made = losses.LabelAwareSmoothing([9] * 10, 0.3, 0.1)(*batch)
    torch.testing.assert_close(made, torch.nn.functional.cross_entropy(*batch, label_smoothing=0.1))


def test_a_matrix_of_probabilities_is_refused(batch, images):
    scores, _ = batch
    with pytest.raises(TypeError, match="Mixed"):
        losses.LabelAwareSmoothing(images)(scores, torch.softmax(scores, 1))


@pytest.mark.parametrize("wrong", [{"head": 1.2}, {"tail": -0.1}, {"shape": "round"}])
def test_a_wrong_argument_is_an_error(images, wrong):
    with pytest.raises(ValueError):
        losses.LabelAwareSmoothing(images, **wrong)

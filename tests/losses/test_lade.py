"""LADE against its equation, term by term, in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from longtail.losses import LADE, BalancedSoftmax, Mixed

COUNTS = [60, 30, 9, 1]
PRIOR = [n / sum(COUNTS) for n in COUNTS]


def batch(rows: int = 6, seed: int = 0):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(rows, len(COUNTS), generator=source, dtype=torch.float64)


def by_hand(scores, target, strength=0.1, k=0.1):
    """CE(z + log pi) + strength * -sum_c pi_c (m_c - S_c - k S_c^2), as the equations are written."""
    size, classes = len(scores), len(scores[0])
    entropy = 0.0
    for row, y in zip(scores, target):
        shifted = [z + math.log(p) for z, p in zip(row, PRIOR)]
        entropy += (math.log(sum(map(math.exp, shifted))) - shifted[y]) / size
    bound = 0.0
    for c in range(classes):
        own = [row[c] for row, y in zip(scores, target) if y == c]
        mean = sum(own) / len(own) if own else 0.0
        spread = sum(math.exp(row[c] - math.log(PRIOR[c]) + math.log(1 / classes)) for row in scores)
        normalizer = math.log(spread) - math.log(size)
        bound -= PRIOR[c] * (mean - normalizer - k * normalizer**2)
    return entropy + strength * bound


@pytest.mark.parametrize("target", [[0, 0, 1, 2, 3, 1], [0, 0, 0, 1, 0, 0], [3] * 6])
@pytest.mark.parametrize("strength, k", [(0.1, 0.1), (1.0, 0.0), (2.0, 0.7)])
def test_it_is_its_equation_also_where_classes_are_absent(target, strength, k):
    scores = batch()
    made = LADE(COUNTS, strength, k)(scores, torch.tensor(target))
    assert float(made) == pytest.approx(by_hand(scores.tolist(), target, strength, k), rel=1e-12)


def test_one_sample_of_two_classes_on_paper():
    """Equal counts, logits (a, b), class 0: S = (a, b), so the bound is k (a^2 + b^2) / 2 + b / 2."""
    a, b, k = 0.7, -0.4, 0.3
    scores = torch.tensor([[a, b]], dtype=torch.float64)
    bound = LADE([5, 5], 1.0, k)(scores, torch.tensor([0])) - LADE([5, 5], 0.0)(scores, torch.tensor([0]))
    assert float(bound) == pytest.approx(k * (a**2 + b**2) / 2 + b / 2, rel=1e-12)


def test_without_the_bound_it_is_balanced_softmax():
    scores, target = batch(), torch.tensor([0, 0, 1, 2, 3, 1])
    torch.testing.assert_close(LADE(COUNTS, 0.0)(scores, target), BalancedSoftmax(COUNTS)(scores, target))


def test_an_absent_class_is_still_held_by_its_normaliser():
    """Only the first term of a class without samples is 0: its logits go on being pulled down."""
    scores = batch().requires_grad_()
    loss, target = LADE(COUNTS, 1.0), torch.tensor([0, 0, 1, 2, 2, 1])
    bound = loss(scores, target) - LADE(COUNTS, 0.0)(scores, target)
    (gradient,) = torch.autograd.grad(bound, scores)
    assert bool((gradient[:, 3] != 0).all())


def test_ignored_samples_are_in_no_statistic():
    scores, target = batch(), torch.tensor([0, -100, 1, 2, -100, 1])
    kept = target >= 0
    expected = by_hand(scores[kept].tolist(), target[kept].tolist())
    assert float(LADE(COUNTS)(scores, target)) == pytest.approx(expected, rel=1e-12)


def test_weights_per_image_of_a_mixed_target_weigh_its_class_means():
    scores = batch(2)
    first, second, weight = torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([1.0, 0.0])
    made = LADE(COUNTS)(scores, Mixed(first, second, weight.double()))
    assert bool(torch.isfinite(made))
    # the first image is of class 0 alone and the second of class 0 alone; S has weight 1 in all
    entropy = BalancedSoftmax(COUNTS)(scores, torch.tensor([0, 0]))
    whole = 0.0
    for c in range(4):
        normalizer = math.log(sum(math.exp(v) / (4 * PRIOR[c]) for v in scores[:, c].tolist()) / 2)
        whole += PRIOR[c] * (normalizer + 0.1 * normalizer**2)
    own = PRIOR[0] * float(
        scores[0, 0] + scores[1, 0]
    )  # each half has one image of class 0: its mean is itself
    assert float(made) == pytest.approx(float(entropy) + 0.1 * (whole - own), rel=1e-12)

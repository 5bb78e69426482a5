"""Contrastive losses against plain double loops, at the ends of their weights, and what they refuse."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from longtail.losses import CrossEntropy, HybridContrastive, Mixed, TargetedContrastive

ROWS, WIDTH, CLASSES = 12, 6, 4
LABELS = [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def points():
    return normalize(torch.randn(ROWS, WIDTH, generator=seeded(0), dtype=torch.float64))


@pytest.fixture
def labels():
    return torch.tensor(LABELS)[torch.randperm(ROWS, generator=seeded(1))]


@pytest.fixture
def scores():
    return torch.randn(ROWS, CLASSES, generator=seeded(2), dtype=torch.float64)


def dot(one, other):
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def by_hand(points, labels, temperature, cosines=None, copies=0.0):
    """The mean over i of the mean over its positives, term by term."""
    total = 0.0
    for i, mine in enumerate(points):
        others = [a for a in range(len(points)) if a != i]
        terms = [math.exp(dot(mine, points[a]) / temperature) for a in others]
        if cosines is not None:
            terms += [copies * math.exp(c / temperature) for c in cosines[i]]
        below = math.log(math.fsum(terms))
        mates = [a for a in others if labels[a] == labels[i]]
        logs = [dot(mine, points[a]) / temperature - below for a in mates]
        if cosines is not None:
            logs.append(copies * (cosines[i][labels[i]] / temperature - below))
        if mates or copies:
            total -= math.fsum(logs) / (len(mates) + copies) / len(points)
    return total


def contrast_of(points, labels, scores, **settings):
    """The contrastive term alone: a pair of which the first batch has all the weight."""
    loss = HybridContrastive(**settings)
    return float(loss(scores, Mixed(labels, torch.zeros(len(scores)).long(), 1.0), contrasted=points))


@pytest.mark.parametrize("temperature", [0.07, 0.1, 1.0])
def test_supervised_contrast_is_its_double_sum(points, labels, scores, temperature):
    expected = by_hand(points.tolist(), labels.tolist(), temperature)
    made = contrast_of(points, labels, scores, temperature=temperature)
    assert made == pytest.approx(expected, rel=1e-12) and made > 0


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_prototypical_contrast_leaves_the_own_class_out_of_the_sum(labels, scores, temperature):
    cosines = torch.rand(ROWS, CLASSES, generator=seeded(3), dtype=torch.float64) * 2 - 1
    expected = 0.0
    for row, y in zip(cosines.tolist(), labels.tolist(), strict=True):
        below = math.log(math.fsum(math.exp(c / temperature) for j, c in enumerate(row) if j != y))
        expected += (below - row[y] / temperature) / ROWS
    made = contrast_of(cosines, labels, scores, among="prototypes", temperature=temperature)
    assert made == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("copies", [1.0, 50.0])
def test_targets_are_positives_and_in_the_sum(points, labels, copies):
    centres = normalize(torch.randn(CLASSES, WIDTH, generator=seeded(4), dtype=torch.float64))
    cosines = points @ centres.T
    loss = TargetedContrastive(temperature=0.2, copies=copies)
    expected = by_hand(points.tolist(), labels.tolist(), 0.2, cosines.tolist(), copies)
    assert float(loss(cosines, labels, contrasted=points)) == pytest.approx(expected, rel=1e-12)


def test_with_a_whole_number_of_copies_targets_are_rows_of_the_batch(points, labels):
    """As TSC's code does it: every target so many times among the rows, images alone as anchors."""
    centres = normalize(torch.randn(CLASSES, WIDTH, generator=seeded(4), dtype=torch.float64))
    rows = torch.cat([points, centres.repeat(3, 1)]).tolist()
    classes = labels.tolist() + list(range(CLASSES)) * 3
    expected = 0.0
    for i in range(ROWS):
        others = [a for a in range(len(rows)) if a != i]
        below = math.log(math.fsum(math.exp(dot(rows[i], rows[a]) / 0.2) for a in others))
        mates = [a for a in others if classes[a] == classes[i]]
        expected += math.fsum(below - dot(rows[i], rows[a]) / 0.2 for a in mates) / len(mates) / ROWS
    loss = TargetedContrastive(temperature=0.2, copies=3.0)
    made = loss(points @ centres.T, labels, contrasted=points)
    assert float(made) == pytest.approx(expected, rel=1e-12)


def test_among_countless_targets_only_the_nearest_target_counts(points, labels):
    cosines = points @ normalize(torch.randn(CLASSES, WIDTH, generator=seeded(4), dtype=torch.float64)).T
    loss = TargetedContrastive(temperature=0.2, copies=1e9)
    expected = cross_entropy(cosines / 0.2, labels) + math.log(1e9)
    torch.testing.assert_close(loss(cosines, labels, contrasted=points), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("weight", [1.0, 0.75, 0.0])
@pytest.mark.parametrize("among", ["samples", "prototypes"])
def test_a_pair_compares_its_first_batch_and_classifies_its_second(points, labels, scores, weight, among):
    """Twelve views in the first batch, six images in the second; at either end only one of them counts."""
    compared = points if among == "samples" else points[:, :CLASSES]
    scores, second = scores[:6], labels[:6].flip(0)
    loss = HybridContrastive(among)
    contrast = contrast_of(compared, labels, scores, among=among)
    expected = weight * contrast + (1 - weight) * float(CrossEntropy()(scores, second))
    compared, scores = compared.clone().requires_grad_(), scores.clone().requires_grad_()
    made = loss(scores, Mixed(labels, second, torch.tensor(weight)), contrasted=compared)
    made.backward()
    assert made.item() == pytest.approx(expected, rel=1e-12)
    assert bool(compared.grad.any()) == (weight > 0) and bool(scores.grad.any()) == (weight < 1)


def test_one_batch_is_compared_and_classified(points, labels, scores):
    made = float(HybridContrastive(strength=0.3)(scores, labels, contrasted=points))
    expected = 0.3 * by_hand(points.tolist(), labels.tolist(), 0.1) + float(cross_entropy(scores, labels))
    assert made == pytest.approx(expected, rel=1e-12)


def test_an_image_without_company_costs_nothing_and_has_finite_gradients(scores):
    for rows in (1, 3):
        alone = torch.eye(3, WIDTH, dtype=torch.float64)[:rows].requires_grad_()
        loss = HybridContrastive()
        target = Mixed(torch.arange(rows), torch.zeros(ROWS).long(), 1.0)
        made = loss(scores, target, contrasted=alone)
        made.backward()
        assert made.item() == 0 and bool(alone.grad.isfinite().all())


@pytest.mark.parametrize("kind", [HybridContrastive, TargetedContrastive])
def test_gradients_of_what_is_compared_are_those_of_finite_differences(kind, points, labels):
    loss, cosines = kind(temperature=0.5), torch.rand(ROWS, CLASSES, generator=seeded(5)).double()
    assert torch.autograd.gradcheck(
        lambda rows: loss(cosines, labels, contrasted=rows), points.clone().requires_grad_(), atol=1e-6
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s, t, p: HybridContrastive("neighbours"), "among"),
        (lambda s, t, p: HybridContrastive(temperature=0.0), "temperature"),
        (lambda s, t, p: TargetedContrastive(copies=0.0), "copies"),
        (lambda s, t, p: HybridContrastive()(s, t), "contrasted must be"),
        (lambda s, t, p: HybridContrastive()(s, t, contrasted=p[:-1]), "class indices must have shape"),
        (lambda s, t, p: HybridContrastive("prototypes")(s, t, contrasted=p), "cosines"),
        (lambda s, t, p: TargetedContrastive()(s, t, contrasted=p[:-1]), "12 rows"),
        (
            lambda s, t, p: HybridContrastive()(s, Mixed(t + 1, t, 0.5), contrasted=p),
            "not one of the classes",
        ),
    ],
)
def test_what_cannot_be_is_an_error(scores, labels, points, wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong(scores, labels, points)

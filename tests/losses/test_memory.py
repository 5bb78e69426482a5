"""OLTR's centroid loss and the loss with a memory, against their equations in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from longtail.losses import Centroids, CrossEntropy, Mixed, Remembered

TARGET = torch.tensor([0, 2, 1, 2, 0])


def drawn(*shape, seed=1, scale=1.0):
    return scale * torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def entropy(rows, labels):
    """The mean of -log softmax over the rows whose label is not -100."""
    kept = [(row, y) for row, y in zip(rows, labels) if y != -100]
    each = [math.log(sum(math.exp(z) for z in row)) - row[y] for row, y in kept]
    return sum(each) / len(each)


def centroids_by_hand(scores, distances, labels, scale=16.0, weight=0.01, repulsion=0.01, margin=10.0):
    rows = [[scale * z for z in row] for row in scores]
    attract = sum(d[y] / 2 for d, y in zip(distances, labels)) / len(labels)
    others = [d for row, y in zip(distances, labels) for j, d in enumerate(row) if j != y]
    repel = max(0.0, margin - sum(others) / (len(labels) * len(scores[0])))
    return entropy(rows, labels) + weight * (attract + repulsion * repel)


@pytest.mark.parametrize("far", [1.0, 80.0])
@pytest.mark.parametrize("options", [{}, {"weight": 2.0, "repulsion": 0.5, "margin": 3.0, "scale": 1.0}])
def test_the_centroid_loss_is_its_equation(far, options):
    scores, distances = drawn(5, 3), drawn(5, 3, seed=2, scale=far)
    expected = centroids_by_hand(scores.tolist(), distances.tolist(), TARGET.tolist(), **options)
    made = Centroids(**options)(scores, TARGET, distances=distances)
    assert float(made) == pytest.approx(expected, rel=1e-12)


def test_centroids_that_are_far_enough_repel_no_more():
    scores, distances = drawn(5, 3), drawn(5, 3, seed=2, scale=200).requires_grad_()
    Centroids()(scores, TARGET, distances=distances).backward()
    own = torch.nn.functional.one_hot(TARGET, 3).bool()
    assert not distances.grad[~own].any()
    torch.testing.assert_close(distances.grad[own], torch.full((5,), 0.01 / 2 / 5, dtype=torch.float64))


def test_without_its_weight_it_is_cross_entropy():
    scores, distances = drawn(5, 3), drawn(5, 3, seed=2)
    made = Centroids(weight=0.0)(scores, TARGET, distances=distances)
    torch.testing.assert_close(made, CrossEntropy(16.0)(scores, TARGET))


def test_each_half_of_a_mixture_has_its_own_margin():
    scores, distances, other = drawn(5, 3), drawn(5, 3, seed=2, scale=20), TARGET.roll(1)
    weights = torch.tensor([0.1, 0.9, 0.4, 1.0, 0.6], dtype=torch.float64)
    loss = Centroids(weight=1.0, repulsion=1.0)
    made = loss(scores, Mixed(TARGET, other, weights), distances=distances)
    expected = 0.0
    for labels, share in ((TARGET, weights), (other, 1 - weights)):
        total, mean = 0.0, 0.0
        for i, y in enumerate(labels.tolist()):
            row = [16 * z for z in scores[i].tolist()]
            each = math.log(sum(math.exp(z) for z in row)) - row[y]
            total += float(share[i]) * (each + float(distances[i, y]) / 2) / 5
            mean += float(share[i]) * float(distances[i].sum() - distances[i, y]) / 3
        expected += total + float(share.mean()) * max(0.0, 10 - mean / float(share.sum()))
    assert float(made) == pytest.approx(expected, rel=1e-12)


def test_distances_that_are_missing_are_asked_for():
    with pytest.raises(TypeError, match="distances"):
        Centroids()(drawn(5, 3), TARGET)


# ------------------------------------------------------------------------------------------ with a memory


@pytest.mark.parametrize("scale, weight", [(1.0, 1.0), (30.0, 0.4)])
def test_the_memory_adds_the_mean_over_what_it_holds(scale, weight):
    scores, held = drawn(5, 3), drawn(4, 3, seed=3)
    labels = torch.tensor([2, -100, 0, -100])
    made = Remembered(scale, weight)(scores, TARGET, recalled=(held, labels))
    own = entropy([[scale * z for z in row] for row in scores.tolist()], TARGET.tolist())
    past = entropy([[scale * z for z in row] for row in held.tolist()], labels.tolist())
    assert float(made) == pytest.approx(own + weight * past, rel=1e-12)


def test_an_empty_memory_adds_nothing():
    scores, held = drawn(5, 3).requires_grad_(), drawn(4, 3, seed=3).requires_grad_()
    made = Remembered()(scores, TARGET, recalled=(held, torch.full((4,), -100)))
    assert torch.equal(made, CrossEntropy()(scores, TARGET))
    made.backward()
    assert not held.grad.any()


def test_a_memory_that_is_missing_or_of_other_classes_is_asked_for():
    for wrong in (None, (drawn(4, 2), torch.zeros(4, dtype=torch.int64))):
        with pytest.raises(TypeError, match="recalled"):
            Remembered()(drawn(5, 3), TARGET, recalled=wrong)

"""NCL against its equations, in slow plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from longtail.losses import BalancedSoftmax, Mixed, NestedCollaborative, functional

NETWORKS = 3


@pytest.fixture
def scores(batch):
    cosine, _ = batch
    return 5 * torch.stack([cosine, 0.7 * cosine.roll(1, 0), 0.9 * cosine.roll(3, 1)], 1)


def log_softmax(logits):
    top = max(logits)
    total = top + math.log(math.fsum(math.exp(z - top) for z in logits))
    return [z - total for z in logits]


def collaborating(networks, y, mutual):
    """Labels, and KL(p_f || p_e) over all pairs of different networks, over K - 1."""
    logs = [log_softmax(z) for z in networks]
    loss = -math.fsum(log[y] for log in logs)
    for e, mine in enumerate(logs):
        for f, other in enumerate(logs):
            if e != f:
                apart = math.fsum(math.exp(q) * (q - p) for p, q in zip(mine, other, strict=True))
                loss += mutual * apart / (len(logs) - 1)
    return loss


@pytest.mark.parametrize(
    "mutual, nested, hard, chosen", [(0.6, 1.0, 0.3, 3), (0.2, 0.5, 0.55, 6), (1.0, 2.0, 1.0, 10)]
)
def test_it_is_its_equation(scores, batch, images, mutual, nested, hard, chosen):
    target, expected = batch[1], 0.0
    for sample, y in zip(scores.tolist(), target.tolist(), strict=True):
        balanced = [[z + math.log(n) for z, n in zip(network, images, strict=True)] for network in sample]
        rivals = sorted((j for j in range(10) if j != y), key=lambda j: -sample[0][j])[: chosen - 1]
        few = [[network[j] for j in (y, *rivals)] for network in balanced]
        expected += collaborating(balanced, y, mutual) + nested * collaborating(few, 0, mutual)
    loss = NestedCollaborative(images, mutual=mutual, nested=nested, hard=hard)
    assert float(loss(scores, target)) == pytest.approx(expected / 16, rel=1e-10)


def test_one_network_without_hard_classes_is_balanced_softmax(batch, images):
    cosine, target = batch
    made = NestedCollaborative(images, nested=0.0)(cosine[:, None], target)
    torch.testing.assert_close(made, BalancedSoftmax(images)(cosine, target))


def test_networks_that_agree_have_nothing_to_teach(batch, images):
    cosine, target = batch
    alike = cosine[:, None].expand(-1, NETWORKS, -1)
    made, alone = (NestedCollaborative(images, mutual=m)(alike, target) for m in (5.0, 0.0))
    torch.testing.assert_close(made, alone)
    assert functional.mutual(alike.log_softmax(-1)).abs().max() < 1e-12


def test_all_classes_are_as_good_as_no_choice(scores, batch, images):
    loss, other = (NestedCollaborative(images, hard=1.0, nested=n) for n in (1.0, 0.0))
    torch.testing.assert_close(loss(scores, batch[1]), 2 * other(scores, batch[1]))


def test_the_hard_classes_are_those_of_each_half_of_a_mixed_target(scores, batch, images):
    target = batch[1]
    loss, weight = NestedCollaborative(images), torch.linspace(0, 1, 16, dtype=torch.float64)
    made = loss(scores, Mixed(target, target.flip(0), weight))
    each = [
        loss(scores[[i]], Mixed(target[[i]], target.flip(0)[[i]], float(weight[i])))
        for i in range(len(target))
    ]
    torch.testing.assert_close(made, torch.stack(each).mean())


def test_the_prediction_is_the_mean_of_the_plain_logits(scores, batch, images):
    loss = NestedCollaborative(images).eval()
    torch.testing.assert_close(loss.logits(scores), scores.mean(1))
    torch.testing.assert_close(loss(scores, batch[1]), cross_entropy(scores.mean(1), batch[1]))

"""SHIKE against its equations, in slow plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from longtail.losses import SHIKE, CrossEntropy, Mixed
from longtail.losses.shike import hardest_negative

EXPERTS = 3


@pytest.fixture
def scores(batch):
    cosine, _ = batch
    return torch.stack([cosine, 0.7 * cosine.roll(1, 0), 0.9 * cosine.roll(3, 1)], 1)


def log_softmax(logits):
    top = max(logits)
    total = top + math.log(math.fsum(math.exp(z - top) for z in logits))
    return [z - total for z in logits]


def divergence(from_logs, to_logs):
    return math.fsum(math.exp(q) * (q - p) for q, p in zip(from_logs, to_logs, strict=True))


def against_the_teacher(experts, y):
    """KL of every expert to the teacher, over the classes other than y."""
    rivals = [[z for j, z in enumerate(expert) if j != y] for expert in experts]
    means = [math.fsum(each) / len(experts) for each in zip(*rivals, strict=True)]
    hardest = means.index(max(means))
    teacher = [max(each) for each in zip(*rivals, strict=True)]
    teacher[hardest] = means[hardest]
    return math.fsum(divergence(log_softmax(teacher), log_softmax(expert)) for expert in rivals)


def slow(experts, y, negative, mutual):
    logs = [log_softmax(z) for z in experts]
    loss = -math.fsum(log[y] for log in logs) + negative * against_the_teacher(experts, y)
    for e in range(len(logs)):
        for f in range(len(logs)):
            loss += mutual * divergence(logs[f], logs[e]) if e != f else 0.0
    return loss


@pytest.mark.parametrize("negative, mutual, scale", [(10.0, 1.0, 30.0), (0.1, 0.01, 30.0), (2.0, 0.5, 1.0)])
def test_it_is_its_equation(scores, batch, negative, mutual, scale):
    target, logits = batch[1], (scale * scores).tolist()
    expected = [slow(sample, y, negative, mutual) for sample, y in zip(logits, target.tolist(), strict=True)]
    loss = SHIKE(CrossEntropy(scale), negative=negative, mutual=mutual)
    assert float(loss(scores, target)) == pytest.approx(math.fsum(expected) / len(expected), rel=1e-10)


def test_by_hand():
    """Target 0. Rivals (2, 0) and (0, 1): the means 1 and 1/2, so class 1 is the hardest; teacher (1, 1)."""
    logits = torch.tensor([[[5.0, 2.0, 0.0], [-3.0, 0.0, 1.0]]], dtype=torch.float64)
    one = sum(0.5 * (math.log(0.5) - p) for p in log_softmax([2.0, 0.0]))
    two = sum(0.5 * (math.log(0.5) - p) for p in log_softmax([0.0, 1.0]))
    assert float(hardest_negative(logits, torch.tensor([0]))) == pytest.approx(one + two, rel=1e-12)


def test_the_teacher_knows_nothing_of_the_target(scores, batch):
    target = batch[1]
    moved = scores.clone()
    moved[torch.arange(16), :, target] += torch.tensor([3.0, -40.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(hardest_negative(moved, target), hardest_negative(scores, target))


def test_one_expert_is_plain_cross_entropy(batch):
    cosine, target = batch
    made = SHIKE(CrossEntropy(30.0))(cosine[:, None], target)
    torch.testing.assert_close(made, cross_entropy(30 * cosine, target))


def test_experts_that_agree_have_nothing_to_teach(batch):
    cosine, target = batch
    alike = cosine[:, None].expand(-1, EXPERTS, -1)
    made = SHIKE(CrossEntropy(30.0), negative=7.0, mutual=3.0)(alike, target)
    torch.testing.assert_close(made, EXPERTS * cross_entropy(30 * cosine, target))
    assert hardest_negative(30 * alike, target).abs().max() < 1e-12


def test_of_two_classes_no_rival_is_the_harder_one(batch):
    scores = torch.stack([batch[0][:, :2], batch[0][:, 2:4]], 1)
    assert hardest_negative(scores, batch[1] % 2).abs().max() < 1e-12


def test_of_one_class_the_loss_is_nothing():
    scores = torch.tensor([[[0.3], [0.7]]], requires_grad=True)
    loss = SHIKE(CrossEntropy())(scores, torch.tensor([0]))
    loss.backward()
    assert float(loss.detach()) == 0 and not scores.grad.any()


def test_the_divergences_are_those_of_each_half_of_a_mixed_target(scores, batch):
    target, loss = batch[1], SHIKE(CrossEntropy(30.0))
    weight = torch.linspace(0, 1, 16, dtype=torch.float64)
    made = loss(scores, Mixed(target, target.flip(0), weight))
    each = [
        loss(scores[[i]], Mixed(target[[i]], target.flip(0)[[i]], float(weight[i])))
        for i in range(len(target))
    ]
    torch.testing.assert_close(made, torch.stack(each).mean())


def test_the_prediction_is_the_mean_of_the_clean_logits(scores, batch):
    loss = SHIKE(CrossEntropy(30.0)).eval()
    torch.testing.assert_close(loss.logits(scores), 30 * scores.mean(1))
    torch.testing.assert_close(loss(scores, batch[1]), cross_entropy(30 * scores.mean(1), batch[1]))

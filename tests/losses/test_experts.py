"""Losses of several experts against their equations, in slow plain Python."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch.nn.functional import cross_entropy

from longtail import build, counts, losses, recipe
from longtail.losses import (
    GCL,
    LDAM,
    RIDE,
    BalancedSoftmax,
    CrossEntropy,
    Distilled,
    FeatureBalanced,
    Mixed,
    PerExpert,
)

EXPERTS = 3
RHO = 0.05


@pytest.fixture
def scores(batch):
    """[16, 3, 10]: three experts that see different things."""
    cosine, _ = batch
    return torch.stack([cosine, 0.7 * cosine.roll(1, 0), 0.9 * cosine.roll(3, 1)], 1)


@pytest.fixture
def target(batch):
    return batch[1]


def softmax(logits):
    top = max(logits)
    powers = [math.exp(z - top) for z in logits]
    return [p / math.fsum(powers) for p in powers]


def by_hand(scores, target, images, entropy, *, diversity, deferred):
    """Spec B4: sum over experts of CE_w and of lambda Tbar^2 KL(softmax(mean / T) || softmax(z_e / T))."""
    classes, total = len(images), sum(images)
    value = [classes * n / total * RHO + 1 - RHO if deferred else 1.0 for n in images]
    heat = [v / max(value) for v in value]
    mean_heat = math.fsum(heat) / classes
    weights = [float(w) for w in counts.effective_weights(images, 0.9999)] if deferred else [1.0] * classes
    margins = [0.5 * (min(images) / n) ** 0.25 for n in images]
    rows = [[[30 * c for c in expert] for expert in sample] for sample in scores.tolist()]
    loss = 0.0
    for e in range(EXPERTS):
        entropies = divisor = apart = 0.0
        for sample, y in zip(rows, target.tolist(), strict=True):
            shifted = [z - 30 * margins[y] * (j == y) for j, z in enumerate(sample[e])]
            entropies += weights[y] * entropy(shifted, y)
            divisor += weights[y]
            middle = [math.fsum(z[j] for z in sample) / EXPERTS for j in range(classes)]
            teacher = softmax([z / t for z, t in zip(middle, heat, strict=True)])
            student = softmax([z / t for z, t in zip(sample[e], heat, strict=True)])
            apart += math.fsum(p * (math.log(p) - math.log(q)) for p, q in zip(teacher, student, strict=True))
        loss += entropies / divisor + diversity * mean_heat**2 * apart / len(rows)
    return loss


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("diversity", [-0.2, -0.45, 0.3])
def test_ride_is_its_equation(scores, target, images, entropy, deferred, diversity):
    weights = counts.effective_weights(images, 0.9999) if deferred else None
    loss = RIDE(
        LDAM(images, weights=weights),
        images,
        diversity=diversity,
        temperature="by_count" if deferred else "one",
        rho=RHO,
    )
    expected = by_hand(scores, target, images, entropy, diversity=diversity, deferred=deferred)
    assert float(loss(scores, target)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("deferred", [False, True])
def test_with_one_expert_ride_is_ldam_drw(batch, images, deferred):
    cosine, target = batch
    weights = counts.effective_weights(images, 0.9999) if deferred else None
    temperature = "by_count" if deferred else "one"
    base = LDAM(images, weights=weights)
    made = RIDE(base, images, temperature=temperature)(cosine[:, None], target)
    torch.testing.assert_close(made, base(cosine, target), rtol=1e-12, atol=0)


def test_experts_that_agree_are_not_driven_apart(batch, images):
    cosine, target = batch
    base = LDAM(images)
    made = RIDE(base, images, diversity=-5.0)(cosine[:, None].expand(-1, EXPERTS, -1), target)
    torch.testing.assert_close(made, EXPERTS * base(cosine, target), rtol=1e-12, atol=0)


def test_a_negative_diversity_rewards_disagreement(scores, target, images):
    losses_by_strength = [
        float(RIDE(LDAM(images), images, diversity=d)(scores, target)) for d in (-0.2, 0, 0.2)
    ]
    assert losses_by_strength == sorted(losses_by_strength) and len(set(losses_by_strength)) == 3


def test_the_mean_of_the_experts_gets_no_gradient(scores, images):
    """With p held still, KL(p || softmax(z_e)) has the slope softmax(z_e) - p, times the scale."""
    mine = scores.clone().requires_grad_()
    apart = losses.functional.apart(30 * mine, torch.ones(10, dtype=torch.float64)).sum()
    (gradient,) = torch.autograd.grad(apart, mine)
    teacher = (30 * scores).mean(1, keepdim=True).softmax(-1)
    torch.testing.assert_close(gradient, 30 * ((30 * scores).softmax(-1) - teacher))


@pytest.mark.parametrize("form", ["euclidean", "angular", "unified"])
def test_gcl_of_no_strength_inside_ride_is_cross_entropy_of_scaled_cosines(scores, target, images, form):
    base = GCL(images, form=form, strength=0.0, margin=0.0, scale=30.0)
    made = RIDE(base, images, diversity=0.0)(scores, target)
    expected = sum(cross_entropy(30 * scores[:, e], target) for e in range(EXPERTS))
    torch.testing.assert_close(made, expected)
    with_term = RIDE(base, images)(scores, target)
    torch.testing.assert_close(with_term, RIDE(CrossEntropy(30.0), images)(scores, target))


def test_the_order_of_the_experts_does_not_matter(scores, target, images):
    order = [2, 0, 1]
    noise = torch.randn(16, EXPERTS, 10, generator=torch.Generator().manual_seed(2), dtype=torch.float64) / 3
    for base in (LDAM(images), CrossEntropy(30.0), BalancedSoftmax(images)):
        loss = RIDE(base, images)
        torch.testing.assert_close(loss(scores[:, order], target), loss(scores, target))
    loss = RIDE(GCL(images, form="angular"), images)
    made = loss(scores[:, order], target, noise=noise[:, order])
    torch.testing.assert_close(made, loss(scores, target, noise=noise))
    assert float(made) != pytest.approx(float(loss(scores, target, noise=noise[:, order])), rel=1e-6)


# ------------------------------------------------------------------------------------------------ per expert


SINGLES = [spec() for spec in get_args(recipe.Single) if spec is not recipe.GCL]  # whose noise differs


@pytest.mark.parametrize("spec", SINGLES, ids=lambda spec: spec.kind)
def test_per_expert_is_the_sum_or_the_mean_over_the_experts(scores, target, images, spec):
    """Of every loss of one network, those with statistics over the batch and with class weights included."""
    supplied, each = {}, [{}] * EXPERTS
    if spec.kind == "feature_balanced":
        norms = 1 + torch.arange(16.0)[:, None] + torch.arange(EXPERTS)
        supplied = {"norms": norms, "progress": 0.5}
        each = [{"norms": norms[:, e], "progress": 0.5} for e in range(EXPERTS)]
    elif spec.kind == "ldam":
        spec = replace(spec, reweight=True)
    base = build.loss(spec, images)
    expected = sum(base(scores[:, e], target, **each[e]) for e in range(EXPERTS))
    torch.testing.assert_close(PerExpert(base)(scores, target, **supplied), expected)
    mean = PerExpert(base, together="mean")(scores, target, **supplied)
    torch.testing.assert_close(mean, expected / EXPERTS)


def test_each_expert_gets_its_own_noise(scores, target, images):
    base = GCL(images, form="angular", boundary="easy")
    noise = torch.randn(16, EXPERTS, 10, generator=torch.Generator().manual_seed(2), dtype=torch.float64) / 3
    expected = sum(base(scores[:, e], target, noise=noise[:, e]) for e in range(EXPERTS))
    torch.testing.assert_close(PerExpert(base)(scores, target, noise=noise), expected)


@pytest.mark.parametrize("halves", ["shared", "independent"])
@pytest.mark.parametrize("law", ["independent", "shared"])
def test_experts_that_agree_differ_by_their_noise_alone(batch, images, halves, law):
    cosine, target = batch
    base = GCL(images, halves=halves, noise=law)
    alike = cosine[:, None].expand(-1, EXPERTS, -1)

    def slope(noise, asked):
        mine = alike.clone().requires_grad_()
        generator = torch.Generator().manual_seed(5)
        made = PerExpert(base, noise=noise)(mine, asked, generator=generator)
        return made.detach(), torch.autograd.grad(made, mine)[0]

    for asked in (target, Mixed(target, target.flip(0), 0.3)):
        total, shared = slope("shared", asked)
        torch.testing.assert_close(shared[:, 0], shared[:, 1])
        torch.testing.assert_close(shared[:, 0], shared[:, 2])
        one = base(cosine, asked, generator=torch.Generator().manual_seed(5))
        torch.testing.assert_close(total, EXPERTS * one)
        own = slope("per_expert", asked)[1]
        assert (own[:, 0] - own[:, 1]).abs().max() > 1e-3


def test_a_mixed_target_of_one_weight_per_image_reaches_every_expert(scores, target, images):
    other, weight = target.flip(0), torch.linspace(0, 1, 16, dtype=torch.float64)
    base = LDAM(images)
    expected = sum(base(scores[:, e], Mixed(target, other, weight)) for e in range(EXPERTS))
    torch.testing.assert_close(PerExpert(base)(scores, Mixed(target, other, weight)), expected)


def test_probabilities_reach_every_expert(scores):
    matrix = scores[:, 0].softmax(1)
    expected = sum(cross_entropy(scores[:, e], matrix) for e in range(EXPERTS))
    torch.testing.assert_close(PerExpert(CrossEntropy())(scores, matrix), expected)
    ride = RIDE(CrossEntropy(), [5] * 10, diversity=-0.2)
    apart = losses.functional.apart(scores, torch.ones(10, dtype=torch.float64)).mean()
    torch.testing.assert_close(ride(scores, matrix), expected - 0.2 * apart)


def test_what_the_loop_supplies_per_expert_reaches_each(scores, target, images):
    base = FeatureBalanced(images)
    norms = 1 + torch.rand(16, EXPERTS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    loss = RIDE(base, images, diversity=0.0)
    assert loss.needs == base.needs
    expected = sum(base(scores[:, e], target, progress=0.5, norms=norms[:, e]) for e in range(EXPERTS))
    torch.testing.assert_close(loss(scores, target, progress=0.5, norms=norms), expected)


def test_the_prediction_is_the_mean_of_the_clean_logits(scores, target, images):
    for loss in (RIDE(GCL(images, form="angular"), images), PerExpert(GCL(images))):
        torch.testing.assert_close(loss.logits(scores), 30 * scores.mean(1))
        torch.testing.assert_close(loss.eval()(scores, target), cross_entropy(30 * scores.mean(1), target))


def test_the_temperatures_are_those_of_the_published_formula(images):
    """CIFAR-10-LT at 100 to 1, rho 0.05: v_j = 10 * n_j / 12406 * 0.05 + 0.95 over the largest, 1.15151."""
    heat = losses.functional.ride_temperatures(torch.tensor(images), RHO).tolist()
    largest = 10 * 5000 / 12406 * RHO + 0.95
    assert heat == pytest.approx([(10 * n / 12406 * RHO + 0.95) / largest for n in images], rel=1e-12)
    assert heat[0] == 1.0 and heat[-1] == pytest.approx(0.82675, abs=2e-5)


def test_class_weights_of_gcl_are_pytorchs_weighted_mean(batch, noise, images):
    cosine, target = batch
    weights = counts.effective_weights(images, 0.9999)
    made = GCL(images, weights=weights)(cosine, target, noise=noise)
    each = [GCL(images)(cosine[[i]], target[[i]], noise=noise[[i]]) for i in range(16)]
    mine = weights[target]
    torch.testing.assert_close(made, (torch.stack(each) * mine).sum() / mine.sum())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda images: PerExpert(CrossEntropy(), together="product"), "together"),
        (lambda images: PerExpert(CrossEntropy(), noise="none"), "noise"),
        (lambda images: RIDE(LDAM(images), images, rho=1.5), "rho"),
        (lambda images: RIDE(LDAM(images), images, temperature="two"), "temperature"),
        (lambda images: RIDE(LDAM(images), images[:-1])(torch.zeros(2, 3, 10), torch.zeros(2).long()), "9"),
        (lambda images: PerExpert(CrossEntropy())(torch.zeros(2, 10), torch.zeros(2).long()), "experts"),
        (lambda images: PerExpert(CrossEntropy())(torch.zeros(2, 3, 10), torch.zeros(6).long()), "2 rows"),
    ],
)
def test_what_cannot_be_is_an_error(images, wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong(images)


def test_distillation_is_its_equation(scores, target, images):
    teacher = torch.randn(16, 10, generator=torch.Generator().manual_seed(6), dtype=torch.float64) * 5
    heat, base, expected = 1.5, RIDE(LDAM(images), images), 0.0
    for sample, known in zip(scores.tolist(), teacher.tolist(), strict=True):
        for expert in sample:
            wanted, made = softmax([z / heat for z in known]), softmax([30 * c / heat for c in expert])
            expected += (
                heat**2 * math.fsum(p * math.log(p / q) for p, q in zip(wanted, made, strict=True)) / 16
            )
    loss = Distilled(base, temperature=heat, weight=0.7)
    assert loss.needs == ("teacher",)
    made = float(loss(scores, target, teacher=teacher) - base(scores, target))
    assert made == pytest.approx(0.7 * expected, rel=1e-10)
    same = loss(scores, target, teacher=30 * scores[:, 1])
    assert float(same) < float(loss(scores, target, teacher=-30 * scores[:, 1]))


def test_a_student_that_agrees_with_its_teacher_pays_nothing(batch, images):
    cosine, target = batch
    base = GCL(images, strength=0.0)
    loss = Distilled(base)
    torch.testing.assert_close(loss(cosine, target, teacher=30 * cosine), base(cosine, target))
    for missing in ({}, {"teacher": cosine[:, :-1]}):
        with pytest.raises(ValueError, match="teacher must be logits"):
            loss(cosine, target, **missing)

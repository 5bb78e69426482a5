"""CosFace, ArcFace and LDAM against their equations, sample by sample."""

from __future__ import annotations

import math

import pytest
import torch

from longtail import counts, losses, recipe
from longtail.losses.targets import Mixed


def test_cosface_is_its_equation(batch, entropy):
    cosine, target = batch
    total = 0.0
    for c, y in zip(cosine.tolist(), target.tolist(), strict=True):
        total += entropy([30 * (value - 0.35 * (j == y)) for j, value in enumerate(c)], y)
    assert float(losses.CosFace()(cosine, target)) == pytest.approx(total / 16, rel=1e-12)


@pytest.mark.parametrize("easy", [False, True])
def test_arcface_is_its_equation(batch, entropy, easy):
    cosine, target = batch
    cosine[0, target[0]], cosine[1, target[1]] = -0.97, -0.2  # past pi - 0.5, and past pi / 2
    total, margin = 0.0, 0.5
    for c, y in zip(cosine.tolist(), target.tolist(), strict=True):
        turned = math.cos(math.acos(c[y]) + margin)
        if easy:
            own = turned if c[y] > 0 else c[y]
        else:
            own = turned if c[y] > math.cos(math.pi - margin) else c[y] - margin * math.sin(margin)
        total += entropy([20 * (own if j == y else value) for j, value in enumerate(c)], y)
    loss = losses.ArcFace(scale=20.0, margin=margin, easy=easy)
    assert float(loss(cosine, target)) == pytest.approx(total / 16, rel=1e-12)


def test_the_margins_of_ldam_are_the_published_ones(images):
    # Spec B1, CIFAR-10-LT at ratio 100.
    golden = [0.1581, 0.1797, 0.2042, 0.2321, 0.2638, 0.2998, 0.3407, 0.3872, 0.4405, 0.5]
    assert losses.LDAM(images).margins.values.tolist() == pytest.approx(golden, abs=5e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_ldam_is_its_equation(batch, images, entropy, weighted):
    cosine, target = batch
    weights = counts.effective_weights(images, 0.9999) if weighted else None
    total = divisor = 0.0
    for c, y in zip(cosine.tolist(), target.tolist(), strict=True):
        margin = 0.5 * (min(images) / images[y]) ** 0.25
        weight = float(weights[y]) if weights is not None else 1.0
        total += weight * entropy([30 * (value - margin * (j == y)) for j, value in enumerate(c)], y)
        divisor += weight
    made = losses.LDAM(images, weights=weights)(cosine, target)
    assert float(made) == pytest.approx(total / divisor, rel=1e-12)


def test_equal_counts_turn_ldam_into_cosface(batch):
    torch.testing.assert_close(losses.LDAM([9] * 10)(*batch), losses.CosFace(margin=0.5)(*batch))


@pytest.mark.parametrize("made", [losses.CosFace(), losses.ArcFace(), losses.LDAM([9] * 10)])
def test_a_margin_and_a_matrix_of_probabilities_do_not_go_together(batch, made):
    cosine, _ = batch
    with pytest.raises(TypeError, match="Mixed"):
        made(cosine, torch.softmax(cosine, 1))


def test_a_mixed_target_with_weights_divides_each_half_by_its_own(batch, images):
    cosine, target = batch
    loss = losses.LDAM(images, weights=counts.effective_weights(images, 0.999))
    made = loss(cosine, Mixed(target, target.flip(0), 0.7))
    torch.testing.assert_close(made, 0.7 * loss(cosine, target) + 0.3 * loss(cosine, target.flip(0)))


@pytest.mark.parametrize("weights", [[1.0] * 9, [-1.0] * 10, [math.inf] * 10])
def test_weights_that_cannot_be_are_an_error(images, weights):
    with pytest.raises(ValueError, match="weights"):
        losses.LDAM(images, weights=weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("easy", [False, True])
def test_the_gradient_of_arcface_is_zero_at_the_poles(dtype, easy):
    cosine = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0000005, 0.0]]).to(dtype).requires_grad_()
    losses.ArcFace(easy=easy)(cosine, torch.zeros(3, dtype=torch.long)).backward()
    assert bool(torch.isfinite(cosine.grad).all())
    assert cosine.grad[0, 0] == 0


@pytest.mark.parametrize(
    "loss", [losses.ArcFace, lambda margin: losses.GCL([9, 5], form="angular", margin=margin)]
)
def test_a_margin_that_is_an_angle_ends_at_pi(loss):
    loss(margin=math.pi)
    for degrees in (30.0, 3.15):
        with pytest.raises(ValueError, match="at most pi"):
            loss(margin=degrees)
    losses.GCL([9, 5], margin=3.2)  # an offset of the cosine


@pytest.mark.parametrize("spec", [recipe.ArcFace, lambda margin: recipe.GCL(form="angular", margin=margin)])
def test_a_recipe_refuses_such_a_margin_too(spec):
    spec(margin=math.pi)
    recipe.GCL(margin=3.2)
    with pytest.raises(ValueError, match="margin"):
        spec(margin=3.2)

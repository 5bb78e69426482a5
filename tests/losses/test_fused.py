"""The hand-written gradient against autograd on the plain equations, at every combination of terms."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

from longtail import losses
from longtail.losses import functional, fused
from longtail.losses.targets import Mixed

FORMS = ("euclidean", "angular", "unified")
BOUNDARIES = ("clip", "none", "easy", "released", "arcface")
CASES = list(itertools.product(FORMS, BOUNDARIES, (0.0, 0.2), (0.0, 0.5, 2.0)))


def plain(loss, cosine, target, noise):
    """The mean of one loss by autograd through `functional.gcl`."""
    terms = loss.terms
    cloud = terms.strength * loss.cloud(cosine) * noise.clamp(-1, 1).abs()
    logits = terms.scale * functional.gcl(cosine, cloud, terms.form, terms.boundary, terms.margin, target)
    each = functional.each(torch.log_softmax(logits, 1), target)
    return (functional.focal_factor(each, terms.focal).detach() * each).mean()


@pytest.mark.parametrize(("form", "boundary", "margin", "focal"), CASES)
@pytest.mark.parametrize("strength", [0.5, 2.5])
@pytest.mark.parametrize("extent", ["poles", "boundary", "inside", -0.75, -0.65, -0.3])
def test_loss_and_gradient_are_those_of_the_plain_equations(
    batch, noise, images, form, boundary, margin, focal, strength, extent
):
    cosine, target = batch
    if extent == "poles":
        cosine[0, 0], cosine[1, 1], cosine[2, 2] = 1.0, -1.0, 1.0000005
    elif extent == "inside":  # no angle crosses the boundary, not even that of the easy rule
        cosine = 0.5 + 0.4 * cosine
        cosine[5, 9], target[5] = 0.85, 9  # strength 2.5 has an angle beyond pi there
    elif extent != "boundary":  # the lowest cosine is a target's, with the widest angle: does that one cross?
        cosine = cosine.clamp(min=extent)
        cosine[5, 9], target[5] = extent, 9
    loss = losses.GCL(images, form=form, boundary=boundary, margin=margin, focal=focal, strength=strength)
    ours, theirs = (cosine.clone().requires_grad_() for _ in range(2))
    made, expected = loss(ours, target, noise=noise), plain(loss, theirs, target, noise)
    torch.testing.assert_close(made, expected)
    (3 * made).backward()
    (3 * expected).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pole", [1.0, -1.0, 1.0000005, -1.0000005])
@pytest.mark.parametrize("form", FORMS)
def test_one_pole_alone_is_noticed(batch, noise, images, form, pole):
    cosine, target = 0.9 * batch[0], batch[1]
    cosine[2, 3] = pole
    loss, cosine = losses.GCL(images, form=form, boundary="easy"), cosine.requires_grad_()
    made = loss(cosine, target, noise=noise)
    (gradient,) = torch.autograd.grad(made, cosine)
    (expected,) = torch.autograd.grad(plain(loss, cosine, target, noise), cosine)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_rows_change_nothing(batch, noise, images, form, monkeypatch):
    cosine, target = batch
    loss, gradients = losses.GCL(images, form=form, focal=1.0), []
    weight = torch.linspace(0, 1, 16, dtype=torch.float64)
    for size in (1, 35, 1 << 18):  # one row, three rows with a rest, the whole batch
        monkeypatch.setattr(fused, "_BLOCK", size)
        cosine = cosine.detach().clone().requires_grad_()
        loss(cosine, Mixed(target, target.flip(0), weight), noise=noise).backward()
        gradients.append(cosine.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[0], gradients[2])


def test_a_gradient_survives_what_is_done_to_an_earlier_one(batch, images):
    cosine, target = batch
    cosine = cosine.requires_grad_()
    made = losses.GCL(images)(cosine, target, generator=torch.Generator().manual_seed(0))
    made.backward(retain_graph=True)
    first = cosine.grad.clone()
    cosine.grad.zero_()  # in place: were its memory the stored gradient's, the next line would find zeros
    made.backward()
    assert torch.equal(cosine.grad, first)


def test_without_gradient_the_loss_is_the_same(batch, images):
    cosine, target = batch
    loss = losses.GCL(images, form="angular")
    learned = loss(cosine.clone().requires_grad_(), target, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        watched = loss(cosine, target, generator=torch.Generator().manual_seed(0))
    assert not watched.requires_grad
    torch.testing.assert_close(watched, learned.detach())


def test_a_second_derivative_is_refused_and_not_wrong(batch, images):
    cosine, target = batch
    cosine = cosine.requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(losses.GCL(images)(cosine, target), cosine, create_graph=True)


def test_extreme_logits_keep_their_loss(images):
    cosine = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], requires_grad=True)
    loss = losses.GCL([5, 5], scale=1e4)
    made = loss(cosine, torch.tensor([0, 0]))
    assert float(made.detach()) == pytest.approx(1e4)  # 0 for the first, 2e4 for the second
    made.backward()
    assert cosine.grad.tolist() == [[0, 0], [-5e3, 5e3]]


@pytest.mark.parametrize("focal", [0.0, 2.0])
@pytest.mark.parametrize("form", FORMS)
def test_compiled_it_is_the_plain_equations_with_the_same_draw(batch, images, form, focal):
    cosine, target = batch
    loss = losses.GCL(images, form=form, margin=0.1, focal=focal, halves="independent")
    compiled = torch.compile(copy.deepcopy(loss), backend="aot_eager", fullgraph=True)
    noise = torch.randn(2, 16, 10, generator=torch.Generator().manual_seed(2), dtype=torch.float64) / 3
    mixed = Mixed(target, target.flip(0), 0.25)
    gradients = []
    for module in (loss, compiled):
        mine = cosine.clone().requires_grad_()
        made = module(mine, mixed, noise=noise)
        made.backward()
        gradients.append((made.detach(), mine.grad))
    torch.testing.assert_close(gradients[0], gradients[1])


def test_compiled_it_draws_what_its_generator_gives(batch, images):
    # A generator cannot be traced: the draw interrupts the graph and is the same.
    cosine, target = batch
    loss = losses.GCL(images)
    compiled = torch.compile(copy.deepcopy(loss), backend="aot_eager")
    made = [module(cosine, target, generator=torch.Generator().manual_seed(3)) for module in (loss, compiled)]
    torch.testing.assert_close(made[0], made[1])

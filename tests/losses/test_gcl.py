"""GCL against the double loop of its equation, its identities, and what must hold for any noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from longtail import clouds, heads, losses
from longtail.losses import functional
from longtail.losses.targets import Mixed

FORMS = ("euclidean", "angular", "unified")
BOUNDARIES = ("clip", "none", "easy", "released", "arcface")


def clouded(c, mu, boundary):
    """cos(theta + mu) for one cosine, with the rule past pi (spec A4)."""
    theta = math.acos(c)
    if boundary == "easy":
        return math.cos(theta + mu) if c > 0 else c
    if boundary == "none" or theta + mu <= math.pi:
        return math.cos(theta + mu)
    return {"clip": -1.0, "released": c - math.sin(mu), "arcface": c - mu * math.sin(mu)}[boundary]


def reference_logits(c, y, e, images, form, boundary, a, s, m):
    """One row, class by class (spec A3)."""
    top, low, out = max(images), min(images), []
    for j, n in enumerate(images):
        cloud = a * math.log(top / n) / math.log(top / low) * min(abs(e[j]), 1.0)
        margin = m if j == y else 0.0
        if form == "euclidean":
            out.append(s * (c[j] - cloud - margin))
        elif form == "angular":
            out.append(s * clouded(c[j], math.pi / 2 * cloud + margin, boundary))
        else:
            out.append(s * (clouded(c[j], math.pi / 2 * cloud, boundary) - cloud - margin))
    return out


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("margin", "focal"), [(0.0, 0.0), (0.1, 0.0), (0.0, 1.0), (0.3, 2.0)])
def test_the_loss_is_the_double_loop_of_the_equation(
    batch, noise, images, entropy, form, boundary, margin, focal
):
    cosine, target = batch
    loss = losses.GCL(
        images, form=form, boundary=boundary, margin=margin, focal=focal, strength=0.9, scale=20.0
    )
    total = 0.0
    for i, y in enumerate(target.tolist()):
        logits = reference_logits(
            cosine[i].tolist(), y, noise[i].tolist(), images, form, boundary, 0.9, 20.0, margin
        )
        each = entropy(logits, y)
        total += (1 - math.exp(-each)) ** focal * each / len(target)
    assert float(loss(cosine, target, noise=noise)) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("margin", "focal"), [(0.0, 0.0), (0.2, 0.0)])
def test_gradients_are_those_of_finite_differences(images, form, boundary, margin, focal):
    source = torch.Generator().manual_seed(3)
    features = torch.randn(5, 4, generator=source, dtype=torch.float64, requires_grad=True)
    anchors = torch.randn(10, 4, generator=source, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(5, 10, generator=source, dtype=torch.float64) / 3
    target = torch.tensor([0, 9, 4, 2, 9])
    loss = losses.GCL(images, form=form, boundary=boundary, margin=margin, focal=focal, scale=5.0)

    def chain(features, anchors):
        cosine = torch.nn.functional.normalize(features) @ torch.nn.functional.normalize(anchors).T
        return loss(cosine, target, noise=noise)

    assert gradcheck(chain, (features, anchors), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("classes", [1, 2, 10, 1000])
@pytest.mark.parametrize("form", ["euclidean", "angular"])
def test_a_numpy_implementation_agrees_at_any_number_of_classes(form, classes):
    source = np.random.default_rng(classes)
    images = source.integers(1, 5000, classes)
    c, e = source.uniform(-0.99, 0.99, (6, classes)), source.normal(0, 1 / 3, (6, classes))
    y = source.integers(0, classes, 6)
    raw = np.log(images.max() / images)
    cloud = 0.5 * (raw / raw.max() if raw.max() > 0 else raw) * np.minimum(np.abs(e), 1)
    angle = np.minimum(np.arccos(c) + np.pi / 2 * cloud, np.pi)
    z = 30 * (c - cloud if form == "euclidean" else np.cos(angle))
    top = z.max(1)
    expected = np.mean(top + np.log(np.exp(z - top[:, None]).sum(1)) - z[np.arange(6), y])
    made = losses.GCL(images, form=form)(torch.tensor(c), torch.tensor(y), noise=torch.tensor(e))
    assert float(made) == pytest.approx(expected, rel=1e-11, abs=1e-12)


def test_nothing_added_is_the_normalised_softmax(batch, images):
    cosine, target = batch
    expected = torch.nn.functional.cross_entropy(30 * cosine, target)
    for form in FORMS:
        for made in (
            losses.GCL(images, form=form, strength=0.0),
            losses.GCL(images, form=form, cloud="none"),
        ):
            torch.testing.assert_close(made(cosine, target), expected, rtol=1e-14, atol=0)


def test_a_margin_alone_is_cosface_or_arcface(batch, images):
    cosine, target = batch
    cosine[0, target[0]], cosine[1, target[1]] = -0.97, -0.89  # past pi with a margin of 0.5
    euclidean = losses.GCL(images, strength=0.0, margin=0.35)
    torch.testing.assert_close(euclidean(cosine, target), losses.CosFace()(cosine, target))
    angular = losses.GCL(images, form="angular", strength=0.0, margin=0.5, boundary="arcface")
    torch.testing.assert_close(angular(cosine, target), losses.ArcFace()(cosine, target))
    released = losses.GCL(images, form="angular", strength=0.0, margin=0.5, boundary="released")
    own = cosine.gather(1, target[:, None])[:, 0]
    within = own.acos() + 0.5 <= math.pi
    assert 0 < int(within.sum()) < len(own)
    for i in range(len(own)):
        one = cosine[i : i + 1], target[i : i + 1]
        same = torch.isclose(released(*one), losses.ArcFace()(*one), rtol=1e-9)
        assert bool(same) == bool(within[i])


@pytest.mark.parametrize(("strength", "size"), [(0.5, 0.3), (1.0, 0.2657), (0.1, 1.0)])
def test_fixed_noise_and_log_clouds_are_logit_adjustment(batch, images, strength, size):
    cosine, target = batch
    tau = 30 * strength * size / math.log(100)  # spec A10
    made = losses.GCL(images, strength=strength)(cosine, target, noise=torch.full_like(cosine, -size))
    expected = losses.LogitAdjusted(images, tau)(30 * cosine, target)
    assert abs(float(made - expected)) < 1e-10


def test_a_cloud_on_the_target_alone_is_arcface(batch):
    cosine, _ = batch
    cloud, target, size = [0.0] * 9 + [2.0], torch.full((16,), 9), 0.4
    loss = losses.GCL([5] * 10, form="angular", cloud=cloud, strength=0.8, boundary="arcface")
    made = loss(cosine, target, noise=torch.full_like(cosine, size))
    expected = losses.ArcFace(margin=math.pi / 2 * 0.8 * size)(cosine, target)
    torch.testing.assert_close(made, expected)


def test_the_euclidean_gradient_is_the_softmax_minus_the_target(batch, noise, images):
    cosine, target = batch
    cosine = cosine.requires_grad_()
    losses.GCL(images)(cosine, target, noise=noise).backward()
    cloud = 0.5 * clouds.sizes(images) * noise.clamp(-1, 1).abs()
    p = torch.softmax(30 * (cosine.detach() - cloud), 1)
    onehot = torch.nn.functional.one_hot(target, 10)
    torch.testing.assert_close(cosine.grad, 30 * (p - onehot) / 16)
    assert float(cosine.grad.sum(1).abs().max()) < 1e-12


# -------------------------------------------------------------------------------------------- the noise


def test_the_noise_has_the_moments_of_the_clipped_normal():
    drawn = losses.GCL([5] * 1000)._draws(
        torch.zeros(1000, 1000, dtype=torch.float64), None, torch.Generator().manual_seed(0), 1
    )[0]
    size, many = drawn.clamp(-1, 1).abs(), drawn.numel()
    # Spec A5. Standard errors from the exact moments, three of them.
    mean, second, clipped = 0.2657067508, 0.1105563643, 0.0026997961
    assert abs(float(size.mean()) - mean) < 3 * 0.1998906872 / math.sqrt(many)
    fourth = 3 * (1 / 3) ** 4  # of the unclipped normal, an upper bound
    assert abs(float((size**2).mean()) - second) < 3 * math.sqrt(fourth / many)
    share = math.sqrt(clipped * (1 - clipped) / many)
    assert abs(float((size == 1).double().mean()) - clipped) < 3 * share
    assert float(drawn.std()) == pytest.approx(1 / 3, rel=3e-3)  # a standard deviation, not a variance
    assert float(size.min()) >= 0 and float(size.max()) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("noise", ["independent", "shared"])
def test_sigma_is_the_deviation_of_the_draw(batch, images, form, noise):
    cosine, target = batch
    drawn, made = [], []
    for sigma in (1 / 3, 0.05):
        loss = losses.GCL(images, form=form, noise=noise, sigma=sigma)
        source = torch.Generator().manual_seed(1)
        drawn.append(loss.draw(cosine, target, generator=source))
        made.append(loss(cosine, target, generator=source.manual_seed(1)))
    torch.testing.assert_close(drawn[1], 0.15 * drawn[0])
    torch.testing.assert_close(made[1], loss(cosine, target, noise=drawn[1]))
    assert made[0] != made[1]


def test_independent_noise_differs_between_classes_and_shared_noise_does_not(images):
    cosine = torch.zeros(20_000, 10)
    generator = torch.Generator().manual_seed(1)
    (own,) = losses.GCL(images)._draws(cosine, None, generator, 1)
    correlation = torch.corrcoef(own.T) - torch.eye(10)
    assert float(correlation.abs().max()) < 5 / math.sqrt(20_000)
    (common,) = losses.GCL(images, noise="shared")._draws(cosine, None, generator, 1)
    assert common.shape == (20_000, 1) and common.unique().numel() > 19_000


def test_shared_noise_is_one_column_for_all_classes(batch, images):
    cosine, target = batch
    column = torch.linspace(-1.2, 1.2, 16, dtype=torch.float64)[:, None]
    for form in FORMS:
        loss = losses.GCL(images, form=form)
        wide = loss(cosine, target, noise=column.expand(16, 10))
        torch.testing.assert_close(loss(cosine, target, noise=column), wide)


def test_the_same_generator_state_gives_the_same_loss_and_the_next_call_another(batch, images):
    cosine, target = batch
    loss = losses.GCL(images)
    generator = torch.Generator().manual_seed(5)
    first, second = (float(loss(cosine, target, generator=generator)) for _ in range(2))
    assert first != second
    assert float(loss(cosine, target, generator=generator.manual_seed(5))) == first


def test_evaluation_is_clean_even_with_noise_given(batch, noise, images):
    cosine, target = batch
    loss = losses.GCL(images, form="angular", margin=0.1, focal=1.0).eval()
    expected = torch.nn.functional.cross_entropy(30 * cosine, target)
    torch.testing.assert_close(loss(cosine, target), expected)
    torch.testing.assert_close(loss(cosine, target, noise=noise), expected)


def test_noise_given_is_not_written_to(batch, noise, images):
    cosine, target = batch
    before = noise.clone()
    for halves in ("shared", "independent"):
        given_ = noise if halves == "shared" else torch.stack([noise, noise])
        loss = losses.GCL(images, halves=halves, margin=0.1)
        loss(cosine.requires_grad_(), Mixed(target, target.flip(0), 0.3), noise=given_).backward()
    assert torch.equal(noise, before)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("halves", ["shared", "independent"])
@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_the_loss_draws_what_draw_draws(batch, images, form, halves, margin):
    # With a margin a shared draw is read once for each half: the gradient must not be written over it.
    cosine, target = batch
    loss, results = losses.GCL(images, form=form, halves=halves, margin=margin), []
    mixed = Mixed(target, target.flip(0), 0.3)
    noise = loss.draw(cosine, mixed, generator=torch.Generator().manual_seed(3))
    assert noise.shape == ((2, 16, 10) if halves == "independent" else (16, 10))
    for given_ in ({"noise": noise}, {"generator": torch.Generator().manual_seed(3)}):
        mine = cosine.clone().requires_grad_()
        made = loss(mine, mixed, **given_)
        made.backward()
        results.append((made.detach(), mine.grad))
    torch.testing.assert_close(results[0], results[1])


def test_noise_given_gets_no_gradient(batch, noise, images):
    cosine, target = batch
    drawn = noise.clone().requires_grad_()
    matrix = torch.nn.functional.one_hot(target, 10).double()
    for asked in (target, matrix):
        losses.GCL(images)(cosine.requires_grad_(), asked, noise=drawn).backward()
        assert drawn.grad is None


@pytest.mark.parametrize("shape", [(10,), (16, 9), (1, 10), (2, 16, 10)])
def test_noise_of_another_shape_is_an_error(batch, images, shape):
    with pytest.raises(ValueError, match="noise must have shape"):
        losses.GCL(images)(*batch, noise=torch.zeros(shape))


@pytest.mark.parametrize("value", [0.3, np.zeros((16, 10)), [[0.0] * 10] * 16])
def test_noise_that_is_no_tensor_is_named(batch, images, value):
    with pytest.raises(TypeError, match="noise must be a tensor"):
        losses.GCL(images)(*batch, noise=value)


# ------------------------------------------------------------------------------------------ order and sign


@pytest.mark.parametrize("form", FORMS)
def test_a_cloud_never_raises_a_logit(batch, noise, form):
    cosine = batch[0]
    cloud = 0.9 * clouds.sizes([100, 50, 20, 10, 9, 8, 7, 5, 2, 1]) * noise.clamp(-1, 1).abs()
    assert bool((functional.gcl(cosine, cloud, form, "clip") <= cosine + 1e-15).all())


@pytest.mark.parametrize("boundary", ["clip", "released", "arcface"])
@pytest.mark.parametrize("form", FORMS)
def test_more_noise_never_raises_a_logit(form, boundary):
    cosine = torch.linspace(-0.999, 0.999, 201, dtype=torch.float64)[None].expand(101, 201)
    cloud = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None].expand(101, 201)
    made = functional.gcl(cosine, cloud, form, boundary)
    assert float(made.diff(dim=0).max()) <= 1e-12


@pytest.mark.parametrize("form", ["angular", "unified"])
def test_more_noise_raises_a_logit_only_where_the_rule_says_so(form):
    cosine = torch.linspace(-0.999, 0.999, 201, dtype=torch.float64)[None].expand(101, 201)
    cloud = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None].expand(101, 201)
    easy = functional.gcl(cosine, cloud, form, "easy").diff(dim=0)
    assert float(easy[:, cosine[0] > 0].max()) <= 1e-12
    free = functional.gcl(cosine, cloud, form, "none").diff(dim=0)
    within = cosine.acos() + math.pi / 2 * cloud <= math.pi
    assert float(free[within[1:]].max()) <= 1e-12
    if form == "angular":
        assert float(free[~within[:-1]].min()) > 0  # past pi the cosine rises again


@pytest.mark.parametrize("angle", [0.0, 0.4, math.pi / 4, 1.0, math.pi / 2])
def test_the_logit_falls_with_the_angle_but_not_under_the_easy_rule(angle):
    cosine = torch.cos(torch.linspace(1e-3, math.pi - 1e-3, 4001, dtype=torch.float64))[None]
    turn = torch.full_like(cosine, angle)
    for boundary in ("clip", "released"):
        assert float(functional.gcl_angular(cosine, turn, boundary).diff().max()) <= 1e-12
    jump = float(functional.gcl_angular(cosine, turn, "easy").diff().max())
    assert jump == pytest.approx(math.sin(angle), abs=2e-3)  # from -sin(angle) to 0 at theta = pi/2


def test_the_released_rule_drops_by_at_most_root_two_minus_one_at_the_boundary():
    angle = math.pi / 4
    edge = math.cos(math.pi - angle)
    at = torch.tensor([[edge + 1e-9, edge - 1e-9]], dtype=torch.float64)
    made = functional.gcl_angular(at, torch.full_like(at, angle), "released")[0]
    assert float(made[0] - made[1]) == pytest.approx(math.sqrt(2) - 1, abs=1e-4)


def test_noise_raises_the_loss_of_the_tail_and_lowers_that_of_the_head(batch, noise, images):
    cosine, _ = batch
    column = noise[:, :1]
    for target, sign in ((9, 1), (0, -1)):
        index = torch.full((16,), target)
        change = losses.GCL(images)(cosine, index, noise=column) - losses.GCL(images, strength=0)(
            cosine, index
        )
        assert float(change) * sign > 0


# ------------------------------------------------------------------------------------------ mixed targets


def test_a_mixed_target_with_one_draw_is_the_soft_label_loss(batch, noise, images):
    cosine, target = batch
    other, share = target.flip(0), 0.3
    onehot = torch.nn.functional.one_hot
    matrix = share * onehot(target, 10).double() + (1 - share) * onehot(other, 10).double()
    for form in FORMS:
        loss = losses.GCL(images, form=form)
        mixed = loss(cosine, Mixed(target, other, share), noise=noise)
        torch.testing.assert_close(mixed, loss(cosine, matrix, noise=noise))
        torch.testing.assert_close(mixed, loss(cosine, Mixed(other, target, 1 - share), noise=noise))


@pytest.mark.parametrize("halves", ["shared", "independent"])
@pytest.mark.parametrize(("margin", "focal"), [(0.0, 0.0), (0.1, 1.0)])
def test_a_mixed_target_weighs_two_losses(batch, noise, images, halves, margin, focal):
    cosine, target = batch
    other, share = target.flip(0), 0.3
    kept = losses.GCL(images, margin=margin, focal=focal)
    mixing = losses.GCL(images, margin=margin, focal=focal, halves=halves)
    second = noise.flip(0) if halves == "independent" else noise
    given_ = torch.stack([noise, second]) if halves == "independent" else noise
    expected = share * kept(cosine, target, noise=noise) + (1 - share) * kept(cosine, other, noise=second)
    torch.testing.assert_close(mixing(cosine, Mixed(target, other, share), noise=given_), expected)


def test_one_and_two_draws_have_the_same_expectation(images):
    source = torch.Generator().manual_seed(0)
    cosine = torch.rand(1, 10, generator=source).expand(40_000, 10)
    target = Mixed(torch.full((40_000,), 2), torch.full((40_000,), 8), 0.4)
    shared, independent = (
        losses.GCL(images, halves=halves, scale=5.0)(cosine, target, generator=source)
        for halves in ("shared", "independent")
    )
    assert float(shared) == pytest.approx(float(independent), abs=0.01)


@pytest.mark.parametrize(("argument", "named"), [("margin", "a margin"), ("focal", "a focal term")])
def test_probabilities_are_refused_where_a_term_depends_on_the_class(batch, images, argument, named):
    cosine, _ = batch
    loss = losses.GCL(images, **{argument: 0.5})
    with pytest.raises(TypeError, match=f"{named}.*Mixed"):
        loss(cosine, torch.softmax(cosine, 1))


# ------------------------------------------------------------------------------------------- extreme input


# At scale 1e4 the true derivative near the poles exceeds the largest float16.
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        *((dtype, scale) for dtype in (torch.float32, torch.bfloat16) for scale in (1.0, 30.0, 1e3, 1e4)),
        *((torch.float16, scale) for scale in (1.0, 30.0, 1e3)),
    ],
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_loss_and_gradient_are_finite_at_the_poles(form, boundary, scale, dtype):
    edges = torch.tensor([-1.0, -1 + 1e-8, -0.9995, 0.0, 0.9995, 1 - 1e-8, 1.0, 1.0000005])
    cosine = edges.repeat(8, 1).to(dtype).requires_grad_()
    loss = losses.GCL(list(range(80, 0, -10)), form=form, boundary=boundary, scale=scale, margin=0.1)
    for raw in (0.0, 0.3, 5.0):
        made = loss(cosine, torch.arange(8), noise=torch.full((8, 8), raw))
        assert made.dtype == torch.float32 and bool(torch.isfinite(made))
        (gradient,) = torch.autograd.grad(made, cosine)
        assert gradient.dtype == dtype and bool(torch.isfinite(gradient).all())
        if form != "euclidean":
            poles = cosine.detach().float().abs() >= 1
            assert bool((gradient[poles] == 0).all())


@pytest.mark.parametrize("form", ["angular", "unified"])
def test_in_double_precision_a_cosine_may_be_a_billionth_off_the_pole(form):
    cosine = torch.tensor([[1 - 1e-9, 0.2], [1e-9 - 1, 0.1]], dtype=torch.float64, requires_grad=True)
    e, target = torch.full((2, 2), 0.3, dtype=torch.float64), torch.tensor([0, 1])
    losses.GCL([1, 10], form=form, scale=1.0)(cosine, target, noise=e).backward()
    mu = math.pi / 2 * 0.5 * 0.3
    for i, y in enumerate(target.tolist()):
        c = cosine[i].tolist()
        z = [clouded(c[0], mu, "clip") - (0.5 * 0.3 if form == "unified" else 0), c[1]]
        p = math.exp(z[0]) / (math.exp(z[0]) + math.exp(z[1]))
        turned = math.acos(c[0]) + mu
        slope = math.sin(turned) / math.sin(math.acos(c[0])) if turned < math.pi else 0.0
        expected = (p - (y == 0)) * slope / 2
        assert float(cosine.grad[i, 0]) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_one_class_costs_nothing():
    cosine = torch.rand(4, 1, requires_grad=True)
    for form in FORMS:
        made = losses.GCL([5], form=form)(cosine, torch.zeros(4, dtype=torch.long))
        (gradient,) = torch.autograd.grad(made, cosine)
        assert float(made.detach()) == pytest.approx(0, abs=1e-6)
        assert float(gradient.abs().max()) == pytest.approx(0, abs=1e-6)


def test_equal_counts_are_the_normalised_softmax(batch):
    cosine, target = batch
    expected = torch.nn.functional.cross_entropy(30 * cosine, target)
    for cloud in ("log", "cosine"):
        torch.testing.assert_close(losses.GCL([7] * 10, cloud=cloud)(cosine, target), expected)


def test_a_class_without_images_is_an_error_unless_clamped(batch):
    with pytest.raises(ValueError, match="without images"):
        losses.GCL([10, 0])
    made = losses.GCL([10, 0], zero_count="clamp")(torch.zeros(2, 2), torch.tensor([0, 0]))
    assert bool(torch.isfinite(made))


@pytest.mark.parametrize("form", FORMS)
def test_ten_times_the_counts_or_longer_features_and_anchors_change_nothing(noise, images, form):
    head = heads.Cosine(6, 10, generator=torch.Generator().manual_seed(0)).double()
    features = torch.randn(16, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = torch.arange(16) % 10
    made = losses.GCL(images, form=form)(head(features), target, noise=noise)
    tenfold = losses.GCL([10 * n for n in images], form=form)
    torch.testing.assert_close(tenfold(head(features), target, noise=noise), made)
    with torch.no_grad():
        head.weight *= torch.linspace(0.1, 9, 10)[:, None]
    longer = head(features * torch.linspace(0.2, 30, 16)[:, None])
    torch.testing.assert_close(losses.GCL(images, form=form)(longer, target, noise=noise), made)


@pytest.mark.parametrize(
    "wrong",
    [
        {"form": "spherical"},
        {"boundary": "soft"},
        {"noise": "projected"},
        {"halves": "both"},
        {"strength": -1.0},
        {"scale": 0.0},
        {"margin": -0.1},
        {"margin": 3.2, "form": "angular"},
        {"focal": math.nan},
        {"sigma": 0.0},
        {"cloud": "fog"},
        {"zero_count": "ignore"},
    ],
)
def test_a_wrong_argument_is_an_error(wrong):
    with pytest.raises(ValueError):
        losses.GCL([5, 1], **wrong)

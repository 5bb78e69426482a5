from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import mixing
from longtail.data.mixing import MixPlan, mix, plan
from longtail.keys import Key
from longtail.losses import Mixed

KINDS = ("mixup", "cutmix", "remix", "manifold")
COUNTS = torch.tensor([500, 200, 100, 20, 5])


def images_and_target(count: int = 12, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, 8, 8, generator=generator)
    return images, torch.randint(0, 5, (count,), generator=generator)


def given_plan(
    kind: mixing.Kind, weight: float, partner: list[int], centre: tuple[float, float] = (0.5, 0.5)
):
    return MixPlan(
        kind, torch.tensor([weight]), torch.tensor([partner]), torch.tensor([centre], dtype=torch.float32)
    )


def test_mixup_is_the_weighted_sum_image_by_image():
    images, target = images_and_target(4)
    partner = [2, 0, 3, 1]
    found = mix(images, target, given_plan("mixup", 0.3, partner), 0)
    for i, j in enumerate(partner):
        torch.testing.assert_close(found.images[i], 0.3 * images[i] + 0.7 * images[j])
        assert found.target.first[i] == target[i] and found.target.second[i] == target[j]
    assert found.target.weight.ndim == 0 and found.target.weight == torch.tensor(0.3) and found.hidden is None


@pytest.mark.parametrize("kind", KINDS)
def test_weight_one_is_the_plain_batch(kind):
    images, target = images_and_target()
    partner = torch.randperm(12, generator=torch.Generator().manual_seed(1)).tolist()
    found = mix(images, target, given_plan(kind, 1.0, partner), 0, counts=torch.tensor([5, 5, 5, 5, 5]))
    hidden = found.hidden(images) if found.hidden else found.images
    assert torch.equal(hidden, images)
    assert (torch.as_tensor(found.target.weight) == 1).all() and torch.equal(found.target.first, target)


def test_swapping_weight_and_order_gives_the_same_images():
    images, target = images_and_target()
    partner = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    one = mix(images, target, given_plan("mixup", 0.3, partner.tolist()), 0)
    two = mix(images[partner], target[partner], given_plan("mixup", 0.7, partner.argsort().tolist()), 0)
    torch.testing.assert_close(one.images, two.images)
    assert torch.equal(one.target.first, two.target.second) and torch.equal(
        one.target.second, two.target.first
    )


def test_halves_of_the_loss_add_up_to_the_soft_label():
    images, target = images_and_target()
    found = mix(images, target, plan("mixup", 1.0, key=Key(0), steps=3, batch_size=12), 2).target
    scores = torch.randn(12, 5, generator=torch.Generator().manual_seed(2))
    halves = found.weight * F.cross_entropy(scores, found.first)
    halves = halves + (1 - found.weight) * F.cross_entropy(scores, found.second)
    soft = found.weight * F.one_hot(found.first, 5) + (1 - found.weight) * F.one_hot(found.second, 5)
    torch.testing.assert_close(halves, F.cross_entropy(scores, soft.float()))


def test_cutmix_pastes_a_box_and_weighs_by_its_true_area():
    images, target = images_and_target()
    made = plan("cutmix", 1.0, key=Key(4), steps=40, batch_size=12)
    cut = []
    for step in range(40):
        found = mix(images, target, made, step)
        share = float(1 - made.weights[step]) ** 0.5
        half = int(share * 8) // 2
        middle = [int(c * 8) for c in made.centres[step].tolist()]
        wanted = images.clone()
        (top, bottom), (left, right) = ((max(m - half, 0), min(m + half, 8)) for m in middle)
        wanted[:, :, top:bottom, left:right] = images[made.partners[step]][:, :, top:bottom, left:right]
        assert torch.equal(found.images, wanted)
        area = (bottom - top) * (right - left) / 64
        assert float(found.target.weight) == pytest.approx(1 - area, abs=1e-6)
        cut.append(area < (2 * half / 8) ** 2)
    assert any(cut) and not all(cut)  # some boxes reach over the border


def test_remix_gives_unequal_pairs_the_rarer_label():
    images, target = torch.zeros(6, 3, 4, 4), torch.tensor([0, 4, 2, 1, 3, 4])
    partner = [1, 0, 3, 2, 5, 4]  # 500:5, 5:500, 100:200, 200:100, 20:5, 5:20
    low = mix(images, target, given_plan("remix", 0.4, partner), 0, counts=COUNTS).target
    torch.testing.assert_close(low.weight, torch.tensor([0.0, 0.4, 0.4, 0.4, 0.0, 0.4]))
    high = mix(images, target, given_plan("remix", 0.6, partner), 0, counts=COUNTS).target
    torch.testing.assert_close(high.weight, torch.tensor([0.6, 1.0, 0.6, 0.6, 0.6, 1.0]))
    wide = mix(images, target, given_plan("remix", 0.6, partner), 0, counts=COUNTS, kappa=5.0).target
    torch.testing.assert_close(wide.weight, torch.tensor([0.6, 1.0, 0.6, 0.6, 0.6, 0.6]))


def test_remix_mixes_images_as_mixup_and_asks_for_counts():
    images, target = images_and_target()
    made = plan("remix", 1.0, key=Key(0), steps=1, batch_size=12)
    same = plan("mixup", 1.0, key=Key(0), steps=1, batch_size=12)
    assert torch.equal(
        mix(images, target, made, 0, counts=COUNTS).images, mix(images, target, same, 0).images
    )
    with pytest.raises(ValueError, match="counts"):
        mix(images, target, made, 0)


def test_manifold_mixes_hidden_maps_with_a_gradient():
    images, target = images_and_target(3)
    found = mix(images, target, given_plan("manifold", 0.25, [1, 2, 0]), 0)
    assert found.images is images
    hidden = torch.randn(3, 4, 2, 2, requires_grad=True)
    mixed = found.hidden(hidden)
    torch.testing.assert_close(mixed[0], 0.25 * hidden[0] + 0.75 * hidden[1])
    mixed[0].sum().backward()
    assert hidden.grad[0].unique().tolist() == [0.25] and hidden.grad[1].unique().tolist() == [0.75]
    assert found.hidden(hidden.to(torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, -1.0])
def test_alpha_zero_mixes_nothing(kind, alpha):
    images, target = images_and_target()
    found = mix(images, target, plan(kind, alpha, key=Key(0), steps=2, batch_size=12), 1)
    assert found.images is images and found.target is target and found.hidden is None


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 5), st.data())
def test_partners_are_a_permutation_of_any_part_of_a_batch(size, step, data):
    made = plan("mixup", 1.0, key=Key(size), steps=6, batch_size=size)
    part = data.draw(st.integers(0, size))
    images = torch.arange(part).float().view(part, 1, 1, 1)
    second = mix(images, torch.arange(part), made, step).target.second
    assert sorted(second.tolist()) == list(range(part))
    if part:  # the planned order, less those that are not there
        assert second.tolist() == [p for p in made.partners[step].tolist() if p < part]


@pytest.mark.parametrize("kind", ("mixup", "cutmix", "remix"))
def test_layout_is_kept_and_changes_no_value(kind):
    images, target = images_and_target()
    made = plan(kind, 1.0, key=Key(0), steps=1, batch_size=12)
    plain = mix(images, target, made, 0, counts=COUNTS).images
    last = mix(images.contiguous(memory_format=torch.channels_last), target, made, 0, counts=COUNTS).images
    assert torch.equal(plain, last) and last.is_contiguous(memory_format=torch.channels_last)


def test_plan_follows_from_its_key():
    one, same = (plan("cutmix", 0.7, key=Key(5), steps=9, batch_size=4) for _ in range(2))
    other = plan("cutmix", 0.7, key=Key(6), steps=9, batch_size=4)
    for name in ("weights", "partners", "centres"):
        assert torch.equal(getattr(one, name), getattr(same, name))
        assert not torch.equal(getattr(one, name), getattr(other, name))


def test_processes_share_weights_but_not_partners():
    first, second = (plan("cutmix", 1.0, key=Key(5), steps=9, batch_size=16, rank=rank) for rank in (0, 1))
    assert torch.equal(first.weights, second.weights) and torch.equal(first.centres, second.centres)
    assert not torch.equal(first.partners, second.partners)


@pytest.mark.parametrize(("alpha", "variance"), [(1.0, 1 / 12), (0.2, 0.25 / 1.4), (4.0, 0.25 / 9)])
def test_weights_are_beta_distributed(alpha, variance):
    weights = plan("mixup", alpha, key=Key(0), steps=20_000, batch_size=1).weights.double()
    assert float(weights.mean()) == pytest.approx(0.5, abs=4 * (variance / 20_000) ** 0.5)
    assert float(weights.var()) == pytest.approx(variance, rel=0.05)


def global_state() -> tuple[object, ...]:
    legacy = np.random.get_state()[1]  # noqa: NPY002  (nothing may move it)
    return random.getstate(), legacy.tolist(), torch.get_rng_state().tolist()


def test_global_randomness_is_neither_read_nor_moved():
    images, target = images_and_target()
    results = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  (poison)
        torch.manual_seed(seed)
        before = global_state()
        made = plan("cutmix", 1.0, key=Key(0), steps=2, batch_size=12)
        results.append(mix(images, target, made, 1).images)
        assert before == global_state()
    assert torch.equal(*results)


def test_the_input_is_left_alone():
    images, target = images_and_target()
    before = images.clone()
    for kind in KINDS:
        found = mix(images, target, plan(kind, 1.0, key=Key(0), steps=1, batch_size=12), 0, counts=COUNTS)
        assert torch.equal(images, before) and isinstance(found.target, Mixed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [12, 7])
def test_no_number_is_needed_on_the_host(kind, size):
    """A tensor on the meta device has no values: whatever waits for one raises."""
    images, target = (part[:size].to("meta") for part in images_and_target())
    made = plan(kind, 1.0, key=Key(0), steps=2, batch_size=12, device="meta")
    found = mix(images, target, made, 1, counts=COUNTS.to("meta"))
    mixed = found.hidden(images) if found.hidden else found.images
    assert mixed.shape == images.shape and mixed.device.type == "meta"
    assert found.target.second.shape == (size,) and found.target.weight.device.type == "meta"

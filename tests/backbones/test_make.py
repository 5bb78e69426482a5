"""backbones.make: one door, no hidden randomness, precision and memory formats."""

from __future__ import annotations

import importlib.util
import random

import numpy as np
import pytest
import torch
from torch import nn

from longtail import backbones
from longtail.errors import UsageError

SMALL = ("resnet8", "resnet20", "resnet18")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same(first: nn.Module, second: nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return list(one) == list(two) and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("name", [*SMALL, "resnext50", "places_resnet152"])
def test_equal_generators_make_bit_equal_networks(name: str):
    assert same(backbones.make(name, generator=seeded(3)), backbones.make(name, generator=seeded(3)))


def test_another_seed_or_another_global_seed_is_told_apart():
    torch.manual_seed(1)
    first = backbones.make("resnet8", generator=seeded(3))
    torch.manual_seed(2)
    assert same(first, backbones.make("resnet8", generator=seeded(3)))
    assert not same(first, backbones.make("resnet8", generator=seeded(4)))


@pytest.mark.parametrize("name", [*SMALL, "resnext50", "places_resnet152"])
def test_no_global_stream_is_moved(name: str):
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    backbones.make(name, generator=seeded())
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])  # noqa: NPY002
    assert states[2] == random.getstate()


def test_branched_networks_move_no_global_stream_either():
    state = torch.get_rng_state()
    backbones.experts("resnet8", 2, generator=seeded())
    backbones.two_branch("resnet8", generator=seeded())
    assert torch.equal(state, torch.get_rng_state())


def test_every_listed_name_can_be_made():
    for name in backbones.NAMES:
        if not name.endswith("152") and name != "resnet101":  # made elsewhere; they take a second each
            assert backbones.make(name, generator=seeded()).num_features in (64, 128, 512, 2048)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UsageError, match="did you mean resnet32"):
        backbones.make("resnet-32", generator=seeded())
    with pytest.raises(UsageError, match="timm:NAME"):
        backbones.make("zebra", generator=seeded())


def test_timm_networks_cannot_be_cut():
    with pytest.raises(UsageError, match="cannot be cut"):
        backbones.experts("timm:resnet18", 3, generator=seeded())


@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed here")
def test_timm_without_the_extra_says_how_to_install_it():
    with pytest.raises(UsageError, match=r"pip install 'longtail\[timm\]'") as raised:
        backbones.make("timm:resnet18", generator=seeded())
    assert "\n" not in str(raised.value)


def test_train_mode_uses_the_batch_and_eval_mode_the_running_statistics():
    network = backbones.make("resnet8", generator=seeded())
    images = torch.rand(8, 3, 16, 16, generator=seeded(1))
    network.eval()
    with torch.no_grad():
        fresh, alone = network(images), network(images[:1])
        assert torch.allclose(fresh[:1], alone, atol=1e-5)  # an image does not depend on its neighbours
        assert not network.bn1.running_mean.any()
        network.train()
        trained = network(images)
    assert not torch.allclose(trained, fresh, atol=1e-3)
    expected = 0.1 * network.conv1(images).mean(dim=(0, 2, 3))
    assert torch.allclose(network.bn1.running_mean, expected, atol=1e-6)
    assert network.bn1.num_batches_tracked == 1


@pytest.mark.parametrize("name", SMALL)
def test_a_gradient_reaches_every_parameter(name: str):
    network = backbones.make(name, generator=seeded())
    network(torch.rand(4, 3, 32, 32, generator=seeded(1))).square().sum().backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


@pytest.mark.parametrize("name", SMALL)
def test_channels_last_changes_speed_and_not_values(name: str):
    network = backbones.make(name, generator=seeded()).eval()
    images = torch.rand(2, 3, 32, 32, generator=seeded(1))
    with torch.no_grad():
        plain = network(images)
        network.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
        last = network(images)
        assert network.early(images, 3).is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(plain, last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_bf16_autocast_trains_and_stays_near(name: str):
    network = backbones.make(name, generator=seeded())
    images = torch.rand(8, 3, 32, 32, generator=seeded(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        network(images).float().square().sum().backward()
        network.eval()
        rough = network(images)
    assert rough.dtype == torch.bfloat16
    assert (rough.float() - network(images)).norm() < 0.05 * rough.float().norm()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_compiling_finds_one_graph():
    network = backbones.make("resnet8", generator=seeded()).eval()
    images = torch.rand(2, 3, 16, 16, generator=seeded(1))
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(images), network(images))


def test_mix_is_applied_once_to_the_maps_after_layer1():
    network = backbones.make("resnet8", generator=seeded()).eval()
    images = torch.rand(2, 3, 16, 16, generator=seeded(1))
    seen = []

    def swap(maps: torch.Tensor) -> torch.Tensor:
        seen.append(maps.clone())
        return maps.flip(0)

    with torch.no_grad():
        mixed, plain = network(images, swap), network(images)
        assert len(seen) == 1
        assert torch.equal(seen[0], network.layer1(network.stem(images)))
    assert torch.allclose(mixed, plain.flip(0), atol=1e-6)

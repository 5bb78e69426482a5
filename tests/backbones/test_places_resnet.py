"""longtail.backbones.places_resnet: a trunk that nothing can train under one new block (spec F3)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from longtail import backbones


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def network() -> backbones.PlacesResNet:
    made = backbones.make("places_resnet152", generator=seeded())
    assert isinstance(made, backbones.PlacesResNet)
    return made


def test_trunk_is_resnet152_without_its_last_block(network: backbones.PlacesResNet):
    whole = set(backbones.make("resnet152", generator=seeded()).state_dict())
    dropped = {name for name in whole if name.startswith("layer4.2.")}
    assert dropped
    assert set(network.trunk.state_dict()) == whole - dropped


def test_only_the_block_has_parameters(network: backbones.PlacesResNet):
    bottleneck = 2048 * 512 + 512 * 512 * 9 + 512 * 2048 + 2 * (512 + 512 + 2048)
    assert sum(p.numel() for p in network.parameters()) == bottleneck
    assert all(name.startswith("block.") for name, _ in network.named_parameters())
    assert network.num_features == 2048


def test_the_block_follows_torchs_own_law(network: backbones.PlacesResNet):
    for convolution, fan_in in zip(
        (m for m in network.block.modules() if isinstance(m, nn.Conv2d)), (2048, 512 * 9, 512), strict=True
    ):
        weight = convolution.weight.detach()
        bound = fan_in**-0.5
        assert weight.abs().max() <= bound and weight.abs().max() > 0.999 * bound
        assert abs(weight.std().item() / (bound / 3**0.5) - 1) < 0.01  # of a uniform law


def test_training_moves_the_block_and_leaves_the_trunk_bit_identical(network: backbones.PlacesResNet):
    network.train()
    assert network.block.training and not network.trunk.training
    assert not any(module.training for module in network.trunk.modules())
    before = {name: tensor.clone() for name, tensor in network.trunk.state_dict().items()}
    block_mean = network.block[0].bn1.running_mean.clone()
    network.requires_grad_(True)  # what a stage that trains the backbone does
    features = network(torch.rand(2, 3, 32, 32, generator=seeded(1)))
    features.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.trunk.state_dict().items())
    assert not torch.equal(block_mean, network.block[0].bn1.running_mean)
    network.zero_grad()


def test_mix_acts_between_trunk_and_block(network: backbones.PlacesResNet):
    seen = []

    def mix(maps: torch.Tensor) -> torch.Tensor:
        seen.append(maps.shape)
        return torch.zeros_like(maps)

    network.eval()
    with torch.no_grad():
        features = network(torch.rand(1, 3, 64, 64, generator=seeded()), mix)
        assert torch.equal(features, network.late(torch.zeros(1, 2048, 2, 2), 0))
    assert seen == [(1, 2048, 2, 2)]

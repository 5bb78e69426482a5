"""longtail.backbones.cifar_resnet: sizes, option-A shortcuts, initialisation."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail import backbones
from longtail.backbones import cifar_resnet
from longtail.backbones.cifar_resnet import BasicBlock


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def size_by_hand(blocks: int) -> int:
    """Stem, then three layers of `blocks` blocks: two 3x3 convolutions, two norms each."""
    total = 3 * 16 * 9 + 2 * 16
    inputs = 16
    for width in (16, 32, 64):
        for _ in range(blocks):
            total += inputs * width * 9 + width * width * 9 + 4 * width
            inputs = width
    return total


@pytest.mark.parametrize("name, blocks", [("resnet8", 1), ("resnet20", 3), ("resnet32", 5), ("resnet44", 7)])
def test_parameters_are_those_of_the_architecture(name: str, blocks: int):
    assert size(backbones.make(name, generator=seeded())) == size_by_hand(blocks)


def test_resnet32_with_ten_cosine_anchors_has_the_published_size():
    assert size(backbones.make("resnet32", generator=seeded())) + 10 * 64 == 464_144


def test_double_width_has_128_features():
    network = backbones.make("resnet32x2", generator=seeded())
    assert network.num_features == 128
    assert network.conv1.weight.shape == (32, 3, 3, 3)


@pytest.mark.parametrize("side", [8, 28, 32])
def test_features_have_the_promised_shape_at_every_image_size(side: int):
    network = backbones.make("resnet8", generator=seeded())
    assert network(torch.zeros(2, 3, side, side)).shape == (2, network.num_features) == (2, 64)


def test_a_depth_outside_the_family_is_refused():
    with pytest.raises(ValueError, match="6n \\+ 2"):
        cifar_resnet.resnet(33, generator=seeded())


@pytest.mark.parametrize("inputs, outputs", [(16, 32), (16, 24), (24, 48), (5, 8)])
def test_option_a_keeps_every_second_pixel_and_centres_the_channels(inputs: int, outputs: int):
    maps = torch.randn(2, inputs, 6, 6, generator=seeded())
    made = BasicBlock(inputs, outputs, stride=2).shortcut(maps)
    before = (outputs - inputs) // 2
    expected = torch.zeros(2, outputs, 3, 3)
    for channel in range(inputs):
        for row in range(3):
            for column in range(3):
                expected[:, before + channel, row, column] = maps[:, channel, 2 * row, 2 * column]
    assert torch.equal(made, expected)


def test_option_a_leaves_equal_sizes_alone():
    maps = torch.randn(1, 4, 5, 5, generator=seeded())
    assert BasicBlock(4, 4, stride=1).shortcut(maps) is maps


def test_a_block_is_relu_of_residual_plus_shortcut():
    block = cifar_resnet.resnet(8, generator=seeded()).layer2[0].eval()
    maps = torch.rand(2, 16, 8, 8, generator=seeded(1))
    with torch.no_grad():
        hidden = torch.relu(block.bn1(F.conv2d(maps, block.conv1.weight, stride=2, padding=1)))
        residual = block.bn2(F.conv2d(hidden, block.conv2.weight, stride=1, padding=1))
        padded = torch.cat([torch.zeros(2, 8, 4, 4), maps[:, :, ::2, ::2], torch.zeros(2, 8, 4, 4)], dim=1)
        assert torch.equal(block(maps), torch.relu(residual + padded))


def test_convolutions_have_kaiming_spread_over_the_fan_in():
    network = backbones.make("resnet32", generator=seeded())
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            weight = module.weight.detach()
            fan_in = weight.shape[1] * weight.shape[2] * weight.shape[3]
            expected = math.sqrt(2 / fan_in)
            error = expected / math.sqrt(2 * weight.numel())  # of the standard deviation of so many normals
            assert abs(weight.std().item() - expected) < 5 * error, name
            assert abs(weight.mean().item()) < 5 * expected / math.sqrt(weight.numel()), name


def test_norms_start_as_the_identity_and_every_number_is_set():
    network = backbones.make("resnet20", generator=seeded())
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert torch.equal(module.weight, torch.ones_like(module.weight))
            assert not module.bias.any() and not module.running_mean.any()
            assert torch.equal(module.running_var, torch.ones_like(module.running_var))
    assert not any(tensor.is_meta for tensor in network.state_dict().values())

"""SHIKE's network: what is shared, what is multiplied with what, and how large it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from longtail import backbones
from longtail.backbones.depths import aligning
from longtail.errors import UsageError


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameters_are_those_counted_by_hand() -> None:
    """ResNet-32: 112,016 before its last layer, 351,488 in it; strided convolutions with BatchNorm beside."""
    first, second = 16 * 32 * 9 + 2 * 32, 32 * 64 * 9 + 2 * 64
    made = backbones.at_depths("resnet32", 3, generator=seeded())
    assert [size(each) for each in made.aligned] == [first + second, second, first + second]
    assert size(made) == 112_016 + 3 * 351_488 + 3 * second + 2 * first


@pytest.mark.parametrize(("name", "side"), [("resnet8", 16), ("resnet8", 9), ("resnet18", 64)])
@torch.no_grad()
def test_features_are_the_mean_of_deep_maps_times_shallow_ones(name: str, side: int) -> None:
    made = backbones.at_depths(name, 4, generator=seeded()).eval()
    images = torch.rand(3, 3, side, side, generator=seeded(1))
    maps, shallow = made.shared.stem(images), []
    for layer in made.shared.layers[:-1]:
        maps = layer(maps)
        shallow.append(maps)
    assert len(shallow) == {"resnet8": 2, "resnet18": 3}[name]
    for expert, features in enumerate(made(images).unbind(1)):
        deep = made.branches[expert](maps)
        beside = made.aligned[expert](shallow[expert % len(shallow)])
        assert deep.shape == beside.shape
        torch.testing.assert_close(features, (deep * beside).mean((2, 3)))


def test_a_single_step_gives_no_negative_factor_and_two_may() -> None:
    steps = [[type(step).__name__ for step in aligning(64, layers)] for layers in (1, 2)]
    assert steps == [
        ["Conv2d", "BatchNorm2d", "ReLU"],
        ["Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d"],
    ]


@torch.no_grad()
def test_mixing_acts_once_on_what_all_experts_share() -> None:
    made = backbones.at_depths("resnet8", 3, generator=seeded()).eval()
    images = torch.rand(3, 3, 8, 8, generator=seeded(1))
    torch.testing.assert_close(made(images, lambda maps: maps.flip(0)), made(images).flip(0))


def test_it_is_a_function_of_its_generator_alone() -> None:
    state = torch.get_rng_state()
    one, two = (backbones.at_depths("resnet8", 2, generator=seeded(3)).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(state, torch.get_rng_state())
    drawn = [one[f"branches.{expert}.0.conv1.weight"] for expert in range(2)]
    assert not torch.equal(*drawn)


def test_a_network_of_one_layer_is_refused() -> None:
    with pytest.raises(UsageError, match="shallow"):
        backbones.at_depths("places_resnet152", 2, generator=seeded())

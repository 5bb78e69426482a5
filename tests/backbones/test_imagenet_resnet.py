"""longtail.backbones.imagenet_resnet: torchvision's names, shapes and sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from longtail import backbones

# Published sizes with the 1,000-class linear classifier, less that classifier (weight and bias).
PUBLISHED = {
    "resnet18": 11_689_512 - 512 * 1000 - 1000,
    "resnet34": 21_797_672 - 512 * 1000 - 1000,
    "resnet50": 25_557_032 - 2048 * 1000 - 1000,
    "resnet101": 44_549_160 - 2048 * 1000 - 1000,
    "resnet152": 60_192_808 - 2048 * 1000 - 1000,
    "resnext50": 25_028_904 - 2048 * 1000 - 1000,
}
NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def expected_keys(blocks: tuple[int, ...], convolutions: int, *, project_first: bool) -> list[str]:
    """torchvision's naming scheme written out, without fc."""
    keys = ["conv1.weight", *(f"bn1.{field}" for field in NORM)]
    for layer, count in enumerate(blocks, start=1):
        for block in range(count):
            at = f"layer{layer}.{block}"
            for number in range(1, convolutions + 1):
                keys += [f"{at}.conv{number}.weight", *(f"{at}.bn{number}.{field}" for field in NORM)]
            if block == 0 and (layer > 1 or project_first):
                keys += [f"{at}.downsample.0.weight", *(f"{at}.downsample.1.{field}" for field in NORM)]
    return keys


@pytest.mark.parametrize("name", PUBLISHED)
def test_size_is_the_published_one(name: str):
    network = backbones.make(name, generator=seeded())
    assert sum(parameter.numel() for parameter in network.parameters()) == PUBLISHED[name]


@pytest.mark.parametrize(
    "name, blocks, convolutions, project_first",
    [
        ("resnet18", (2, 2, 2, 2), 2, False),
        ("resnet50", (3, 4, 6, 3), 3, True),
        ("resnext50", (3, 4, 6, 3), 3, True),
    ],
)
def test_names_and_their_order_are_torchvisions(
    name: str, blocks: tuple, convolutions: int, project_first: bool
):
    keys = list(backbones.make(name, generator=seeded()).state_dict())
    assert keys == expected_keys(blocks, convolutions, project_first=project_first)


def test_shapes_of_one_bottleneck_and_of_its_grouped_form():
    plain = backbones.make("resnet50", generator=seeded()).layer2[0]
    assert [tuple(c.weight.shape) for c in (plain.conv1, plain.conv2, plain.conv3)] == [
        (128, 256, 1, 1),
        (128, 128, 3, 3),
        (512, 128, 1, 1),
    ]
    assert plain.conv1.stride == (1, 1) and plain.conv2.stride == (2, 2)  # as in torchvision
    grouped = backbones.make("resnext50", generator=seeded()).layer2[0]
    assert tuple(grouped.conv2.weight.shape) == (256, 8, 3, 3)
    assert grouped.conv2.groups == 32


@pytest.mark.parametrize("name, features", [("resnet18", 512), ("resnet50", 2048), ("resnext50", 2048)])
def test_features_of_a_small_image(name: str, features: int):
    network = backbones.make(name, generator=seeded()).eval()
    assert network.num_features == features
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 64, 64)).shape == (1, features)


def test_maps_shrink_by_32():
    network = backbones.make("resnet18", generator=seeded()).eval()
    with torch.no_grad():
        assert network.stem(torch.zeros(1, 3, 64, 64)).shape == (1, 64, 16, 16)
        assert network.early(torch.zeros(1, 3, 64, 64), 4).shape == (1, 512, 2, 2)


def test_grouped_fan_in_counts_one_group():
    weight = backbones.make("resnext50", generator=seeded()).layer4[1].conv2.weight.detach()
    assert isinstance(weight, torch.Tensor) and weight.shape[1] == 32
    expected = (2 / (32 * 9)) ** 0.5
    assert abs(weight.std().item() / expected - 1) < 0.02


def test_every_module_of_the_backbone_is_a_backbone_part():
    assert not any(isinstance(m, nn.Linear) for m in backbones.make("resnet18", generator=seeded()).modules())

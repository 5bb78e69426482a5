"""ResNet-18 to 152 and ResNeXt-50 (32x4d) for large images, with torchvision's names and shapes.

The stride sits on the 3x3 convolution of a bottleneck, so that torchvision's public weights mean here what
they mean there (He et al. 2016; Xie et al. 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from longtail.backbones.initialization import conv, kaiming
from longtail.backbones.normalization import norm, norm_add_relu, norm_relu
from longtail.backbones.residual import ResNet

Name = Literal["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50"]
Planes = tuple[int, int, int, int]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions."""

    def __init__(self, inputs: int, planes: int, stride: int):
        super().__init__()
        self.conv1 = conv(inputs, planes, 3, stride=stride)
        self.bn1 = norm(planes)
        self.conv2 = conv(planes, planes, 3)
        self.bn2 = norm(planes)
        self.downsample = _projection(inputs, planes, stride)

    def forward(self, maps: Tensor) -> Tensor:
        shortcut = maps if self.downsample is None else self.downsample(maps)
        hidden = norm_relu(self.bn1, self.conv1(maps))
        return norm_add_relu(self.bn2, self.conv2(hidden), shortcut)


class Bottleneck(nn.Module):
    """1x1 down, 3x3 (in `groups`), 1x1 up to four times `planes`."""

    def __init__(self, inputs: int, planes: int, stride: int = 1, *, groups: int = 1, group_width: int = 64):
        super().__init__()
        inner = planes * group_width // 64 * groups
        self.conv1 = conv(inputs, inner, 1)
        self.bn1 = norm(inner)
        self.conv2 = conv(inner, inner, 3, stride=stride, groups=groups)
        self.bn2 = norm(inner)
        self.conv3 = conv(inner, 4 * planes, 1)
        self.bn3 = norm(4 * planes)
        self.downsample = _projection(inputs, 4 * planes, stride)

    def forward(self, maps: Tensor) -> Tensor:
        shortcut = maps if self.downsample is None else self.downsample(maps)
        hidden = norm_relu(self.bn1, self.conv1(maps))
        hidden = norm_relu(self.bn2, self.conv2(hidden))
        return norm_add_relu(self.bn3, self.conv3(hidden), shortcut)


def _projection(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(conv(inputs, outputs, 1, stride=stride), norm(outputs))


@dataclass(frozen=True)
class Plan:
    """What tells one network of the family from another."""

    blocks: tuple[int, int, int, int]
    bottleneck: bool = True
    groups: int = 1
    group_width: int = 64

    @property
    def expansion(self) -> int:
        return 4 if self.bottleneck else 1

    def block(self, inputs: int, planes: int, stride: int) -> nn.Module:
        if self.bottleneck:
            return Bottleneck(inputs, planes, stride, groups=self.groups, group_width=self.group_width)
        return BasicBlock(inputs, planes, stride)


def plan(name: Name) -> Plan:
    match name:
        case "resnet18":
            return Plan((2, 2, 2, 2), bottleneck=False)
        case "resnet34":
            return Plan((3, 4, 6, 3), bottleneck=False)
        case "resnet50":
            return Plan((3, 4, 6, 3))
        case "resnet101":
            return Plan((3, 4, 23, 3))
        case "resnet152":
            return Plan((3, 8, 36, 3))
        case "resnext50":
            return Plan((3, 4, 6, 3), groups=32, group_width=4)


def _layers(plan: Plan, planes: Planes) -> Sequence[nn.Sequential]:
    layers: list[nn.Sequential] = []
    inputs = 64
    for number, (blocks, width) in enumerate(zip(plan.blocks, planes, strict=True)):
        made: list[nn.Module] = []
        for position in range(blocks):
            made.append(plan.block(inputs, width, stride=2 if number > 0 and position == 0 else 1))
            inputs = width * plan.expansion
        layers.append(nn.Sequential(*made))
    return layers


def build(plan: Plan, *, planes: Planes = (64, 128, 256, 512), generator: torch.Generator) -> ResNet:
    layers = _layers(plan, planes)
    stem = conv(3, 64, 7, stride=2)
    network = ResNet(stem, layers, planes[-1] * plan.expansion, pool_stem=True, fork_after=2)
    kaiming(network, generator)
    return network


def resnet(name: Name, *, planes: Planes = (64, 128, 256, 512), generator: torch.Generator) -> ResNet:
    """One of the family by its torchvision name (resnext50 is the 32x4d)."""
    return build(plan(name), planes=planes, generator=generator)

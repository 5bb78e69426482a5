"""Residual networks for small images (He et al. 2016, section 4.2), with option-A shortcuts.

Depth is 6n + 2: three layers of n blocks, widths 16, 32, 64. ResNet-32 has 463,504 parameters, and 464,144
with a ten-class cosine head (spec F2).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.backbones.initialization import conv, kaiming
from longtail.backbones.normalization import norm, norm_add_relu, norm_relu
from longtail.backbones.residual import ResNet

Widths = tuple[int, int, int]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions. Where the size changes, the shortcut is subsampled and padded with zeros."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = conv(inputs, outputs, 3, stride=stride)
        self.bn1 = norm(outputs)
        self.conv2 = conv(outputs, outputs, 3)
        self.bn2 = norm(outputs)
        self.stride = stride
        added = outputs - inputs
        self.padding = (added // 2, added - added // 2)  # zero channels before and after

    def shortcut(self, maps: Tensor) -> Tensor:
        """Option A: no parameters. Every second pixel, and zeros for the channels that are new."""
        if self.stride != 1:
            maps = maps[:, :, :: self.stride, :: self.stride]
        return F.pad(maps, (0, 0, 0, 0, *self.padding)) if any(self.padding) else maps

    def forward(self, maps: Tensor) -> Tensor:
        hidden = norm_relu(self.bn1, self.conv1(maps))
        return norm_add_relu(self.bn2, self.conv2(hidden), self.shortcut(maps))


def _layer(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1) for _ in range(blocks - 1)))


def resnet(depth: int, *, widths: Widths = (16, 32, 64), generator: torch.Generator) -> ResNet:
    """ResNet-`depth` for images of about 32x32 (8x8 works too).

    Example:
        >>> network = resnet(8, generator=torch.Generator().manual_seed(0))
        >>> network(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 64])
    """
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"the depth of a CIFAR ResNet is 6n + 2 (8, 20, 32, 44, 56, ...), got {depth}")
    first, second, third = widths
    layers = (
        _layer(first, first, blocks, 1),
        _layer(first, second, blocks, 2),
        _layer(second, third, blocks, 2),
    )
    network = ResNet(conv(3, first, 3), layers, third, pool_stem=False, fork_after=1)
    kaiming(network, generator)
    return network

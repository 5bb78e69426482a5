"""Experts of several depths: shared layers, last layers of their own, and shallow maps to multiply with."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Generator, Tensor, nn

from longtail.backbones.initialization import conv, torch_default
from longtail.backbones.normalization import norm
from longtail.backbones.residual import Mix, ResNet, pooled


class Depths(nn.Module):
    """Images [B, 3, H, W] -> features [B, K, num_features] (SHIKE, Jin et al. 2023).

    All layers but the last are shared, and each expert has a last layer of its own. Its maps are multiplied,
    before the pool, with the maps of a shared layer that `aligned` brings to their size: those after layer1
    for the first expert, after layer2 for the second, and so on in turn.
    """

    def __init__(self, shared: ResNet, networks: Iterable[ResNet], *, generator: Generator):
        super().__init__()
        self.num_shared = shared.num_layers - 1
        self.num_features = shared.num_features
        shared.keep_early(self.num_shared)
        self.shared = shared
        self.branches = nn.ModuleList([network.layers[-1] for network in networks])
        self.aligned = nn.ModuleList(
            [aligning(self.num_features, self.num_shared - self.depth(e)) for e in range(len(self.branches))]
        )
        torch_default(self.aligned, generator)

    def depth(self, expert: int) -> int:
        """After how many layers past the first this expert taps the shared part."""
        return expert % self.num_shared

    def forward(self, images: Tensor, mix: Mix | None = None) -> Tensor:
        maps = self.shared.early(images, 1, mix)
        shallow = [maps]
        for layer in self.shared.layers[1 : self.num_shared]:
            maps = layer(maps)
            shallow.append(maps)
        features = [
            pooled(branch(maps) * aligned(shallow[self.depth(expert)]))
            for expert, (branch, aligned) in enumerate(zip(self.branches, self.aligned, strict=True))
        ]
        return torch.stack(features, dim=1)


def aligning(num_features: int, layers: int) -> nn.Sequential:
    """Maps of `layers` layers before the last one -> maps of its size: a strided convolution for each.

    Every layer halves the map and doubles the width, so these do too. The second has no ReLU, as in the
    authors' code: two of them may give negative factors, one cannot.
    """
    steps: list[nn.Module] = []
    for number in range(layers):
        width = num_features >> (layers - number)
        steps += [conv(width, 2 * width, 3, stride=2), norm(2 * width)]
        steps += [nn.ReLU()] if number != 1 else []
    return nn.Sequential(*steps)

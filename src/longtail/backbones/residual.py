"""A residual network as a stem, some layers and an average pool, that can be cut between two layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from longtail.backbones.normalization import norm, norm_relu

Mix = Callable[[Tensor], Tensor]


def pooled(maps: Tensor) -> Tensor:
    """The mean over all positions: [B, D, H, W] -> [B, D]."""
    return maps.mean(dim=(2, 3))


class ResNet(nn.Module):
    """Images [B, 3, H, W] -> features [B, num_features], with torchvision's parameter names.

    `early` and `late` are the two halves of the network on either side of a cut; `forward` is one after the
    other. Experts share what comes before the cut `fork_after` (RIDE: layer1 on CIFAR, layer2 on ImageNet).
    """

    def __init__(
        self,
        conv1: nn.Conv2d,
        layers: Sequence[nn.Sequential],
        num_features: int,
        *,
        pool_stem: bool,
        fork_after: int,
    ):
        super().__init__()
        self.conv1 = conv1
        self.bn1 = norm(conv1.out_channels)
        self.layer_names = tuple(f"layer{number}" for number in range(1, len(layers) + 1))
        for name, layer in zip(self.layer_names, layers, strict=True):
            self.add_module(name, layer)
        self.num_features = num_features
        self.pool_stem = pool_stem
        self.fork_after = fork_after

    @property
    def num_layers(self) -> int:
        return len(self.layer_names)

    @property
    def layers(self) -> list[nn.Module]:
        return [self.get_submodule(name) for name in self.layer_names]

    def stem(self, images: Tensor) -> Tensor:
        maps = norm_relu(self.bn1, self.conv1(images))
        return F.max_pool2d(maps, kernel_size=3, stride=2, padding=1) if self.pool_stem else maps

    def early(self, images: Tensor, stop: int, mix: Mix | None = None) -> Tensor:
        """Stem and the first `stop` layers. `mix` is applied to the maps after layer1 (manifold mixup)."""
        maps = self.stem(images)
        for number, layer in enumerate(self.layers[:stop], start=1):
            maps = layer(maps)
            if mix is not None and number == 1:
                maps = mix(maps)
        return maps

    def late(self, maps: Tensor, start: int) -> Tensor:
        """The layers after the first `start`, then the pool."""
        for layer in self.layers[start:]:
            maps = layer(maps)
        return pooled(maps)

    def forward(self, images: Tensor, mix: Mix | None = None) -> Tensor:
        return self.late(self.early(images, self.num_layers, mix), self.num_layers)

    def keep_early(self, stop: int) -> None:
        """Drops the layers after the first `stop`: only `early(images, stop)` works from now on."""
        for name in self.layer_names[stop:]:
            self.add_module(name, nn.Identity())

    def keep_late(self, start: int) -> None:
        """Drops the stem and the first `start` layers: only `late(maps, start)` works from now on."""
        for name in ("conv1", "bn1", *self.layer_names[:start]):
            self.add_module(name, nn.Identity())

    def keep_blocks(self, blocks: slice) -> None:
        """Cuts the last layer down to some of its blocks."""
        last = self.get_submodule(self.layer_names[-1])
        assert isinstance(last, nn.Sequential)
        self.add_module(self.layer_names[-1], last[blocks])

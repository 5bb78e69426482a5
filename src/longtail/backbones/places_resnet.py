"""The Places-LT network of spec F3: a frozen ResNet-152 without its last block, and a new block on top."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.backbones import imagenet_resnet
from longtail.backbones.imagenet_resnet import Bottleneck, Plan
from longtail.backbones.initialization import torch_default
from longtail.backbones.residual import Mix, ResNet, pooled

# Blocks of ResNet-152 with layer4 cut to two; the rest of layer4 in a weight file is dropped on purpose.
TRUNK = Plan((3, 8, 36, 2))
DROPPED = ("layer4.2.",)


def freeze(module: nn.Module) -> None:
    """Turns every parameter into a buffer: it is saved and moved as before, but nothing can train it."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())


class PlacesResNet(nn.Module):
    """Images -> trunk (always eval mode, never a gradient) -> block -> pool -> 2,048 features.

    The trunk is meant to carry public weights. It takes part in `state_dict()` but has no parameters: no
    stage can train it by accident, and a count of parameters counts what learns.
    """

    fork_after = 0  # experts share the trunk and nothing else
    num_layers = 1  # the block counts as the only layer, the trunk as the stem

    def __init__(self, trunk: ResNet):
        super().__init__()
        freeze(trunk)
        self.trunk = trunk
        self.block = nn.Sequential(Bottleneck(trunk.num_features, 512))
        self.num_features = 4 * 512
        self.train(self.training)

    def train(self, mode: bool = True) -> PlacesResNet:
        super().train(mode)
        self.trunk.eval()
        return self

    def early(self, images: Tensor, stop: int, mix: Mix | None = None) -> Tensor:
        """The trunk, and the block too when `stop` is 1. `mix` is applied to the maps after the trunk."""
        with torch.no_grad():
            maps = self.trunk.early(images, self.trunk.num_layers)
        if mix is not None:
            maps = mix(maps)
        return self.block(maps) if stop else maps

    def late(self, maps: Tensor, start: int) -> Tensor:
        return pooled(maps if start else self.block(maps))

    def keep_early(self, stop: int) -> None:
        """Drops the block, unless `stop` keeps it: only `early(images, stop)` works from now on."""
        if stop == 0:
            self.add_module("block", nn.Identity())

    def keep_late(self, start: int) -> None:
        """Drops the trunk, and the block when `start` is 1: only `late(maps, start)` works from now on."""
        self.add_module("trunk", nn.Identity())
        if start == 1:
            self.keep_blocks(slice(0, 0))

    def keep_blocks(self, blocks: slice) -> None:
        """Cuts the block, a layer of one, down to some of its blocks: all or none."""
        self.add_module("block", self.block[blocks])

    def forward(self, images: Tensor, mix: Mix | None = None) -> Tensor:
        return self.late(self.early(images, 0, mix), 0)


def resnet152(*, generator: torch.Generator) -> PlacesResNet:
    """Trunk and block with fresh weights; `backbones.make` loads a weight file into the trunk."""
    network = PlacesResNet(imagenet_resnet.build(TRUNK, generator=generator))
    torch_default(network.block, generator)
    return network

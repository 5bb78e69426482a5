"""One network cut in two: an early part that is shared, and several late parts of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from longtail.backbones.places_resnet import PlacesResNet
from longtail.backbones.residual import Mix, ResNet

Residual = ResNet | PlacesResNet


class Branched(nn.Module):
    """Images [B, 3, H, W] -> features [B, K, num_features]: `shared` once, then each of the K `branches`.

    `stop` is how many layers `shared` runs, `start` the layer at which a branch goes on. They differ only
    where a layer itself is cut in two (`two_branch`).
    """

    def __init__(self, shared: Residual, branches: Sequence[Residual], *, stop: int, start: int):
        super().__init__()
        self.shared = shared
        self.branches = nn.ModuleList(branches)
        self.num_features = branches[0].num_features
        self.stop, self.start = stop, start

    def late(self, maps: Tensor, branch: int) -> Tensor:
        late = self.branches[branch]
        assert isinstance(late, Residual)
        return late.late(maps, self.start)

    def only(self, images: Tensor, branch: int) -> Tensor:
        """The features of one branch, [B, num_features]."""
        return self.late(self.shared.early(images, self.stop), branch)

    def forward(self, images: Tensor, mix: Mix | None = None) -> Tensor:
        maps = self.shared.early(images, self.stop, mix)
        return torch.stack([self.late(maps, branch) for branch in range(len(self.branches))], dim=1)


class Separate(nn.Module):
    """Several whole networks on the same images: [B, 3, H, W] -> features [B, K, num_features]."""

    def __init__(self, networks: Sequence[nn.Module], num_features: int):
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.num_features = num_features

    def forward(self, images: Tensor, mix: Mix | None = None) -> Tensor:
        given = (images,) if mix is None else (images, mix)
        return torch.stack([network(*given) for network in self.networks], dim=1)


def experts(shared: Residual, branches: Iterable[Residual]) -> Branched:
    """RIDE's cut (spec F5): after layer1 on CIFAR, after layer2 on ImageNet, after the trunk on Places."""
    at = shared.fork_after
    shared.keep_early(at)
    kept: list[Residual] = []
    for branch in branches:  # cut as they come: two whole networks never wait side by side
        branch.keep_late(at)
        kept.append(branch)
    return Branched(shared, kept, stop=at, start=at)


def two_branch(shared: Residual, branches: Iterable[Residual]) -> Branched:
    """BBN's cut (spec B1): all is shared but the last residual block, of which each branch has its own."""
    layers = shared.num_layers
    shared.keep_blocks(slice(None, -1))
    kept: list[Residual] = []
    for branch in branches:
        branch.keep_late(layers - 1)
        branch.keep_blocks(slice(-1, None))
        kept.append(branch)
    return Branched(shared, kept, stop=layers, start=layers - 1)

"""Convolutions without hidden randomness, and the two laws their weights are drawn from.

`nn.Conv2d` draws from the global stream when it is built. `conv` builds it without drawing, and the caller
fills the whole network from one generator: equal generators give bit-equal networks.
"""

from __future__ import annotations

import math

import torch
from torch import nn


def conv(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the size at stride 1; its weights are not set yet."""
    # On the meta device the constructor's own draw does nothing and touches no stream.
    made = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False, device="meta"
    )
    return made.to_empty(device="cpu")


def _convolutions(network: nn.Module) -> list[nn.Conv2d]:
    return [module for module in network.modules() if isinstance(module, nn.Conv2d)]


def _fan_in(module: nn.Conv2d) -> int:
    return module.weight[0].numel()  # input channels of one group times the kernel's area


@torch.no_grad()
def kaiming(network: nn.Module, generator: torch.Generator) -> None:
    """Every convolution from N(0, 2 / fan_in): Kaiming normal with gain sqrt 2, in the order of modules()."""
    for module in _convolutions(network):
        module.weight.normal_(0.0, math.sqrt(2.0 / _fan_in(module)), generator=generator)


@torch.no_grad()
def torch_default(network: nn.Module, generator: torch.Generator) -> None:
    """Every convolution from the law that PyTorch gives it by default: uniform within 1 / sqrt(fan_in)."""
    for module in _convolutions(network):
        bound = 1.0 / math.sqrt(_fan_in(module))
        module.weight.uniform_(-bound, bound, generator=generator)

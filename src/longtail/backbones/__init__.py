"""Networks that turn images [B, 3, H, W] into features [B, num_features].

Every network is drawn from the generator it is given: equal generators give bit-equal networks, and the
global stream is neither read nor moved.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import torch
from torch import nn

from longtail.backbones import (
    branched,
    cifar_resnet,
    imagenet_resnet,
    places_resnet,
    timm_backbone,
)
from longtail.backbones import (
    weights as weight_files,
)
from longtail.backbones.branched import Branched as Branched
from longtail.backbones.branched import Residual as Residual
from longtail.backbones.branched import Separate as Separate
from longtail.backbones.depths import Depths as Depths
from longtail.backbones.places_resnet import PlacesResNet as PlacesResNet
from longtail.backbones.residual import Mix as Mix
from longtail.backbones.residual import ResNet as ResNet
from longtail.errors import UsageError

Weights = str | Path | None

NAMES = (
    *("resnet8", "resnet20", "resnet32", "resnet44", "resnet56", "resnet32x2"),
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50"),
    "places_resnet152",
)


def make(name: str, *, generator: torch.Generator, weights: Weights = None) -> nn.Module:
    """The backbone called `name`: one of NAMES, or timm:NAME through the extra.

    resnet8 to 56 are for images of about 32x32, resnet18 and on for large ones. resnet32x2 is ResNet-32 at
    double width (128 features). `weights` is a .safetensors or .pth file; for places_resnet152 it fills the
    frozen trunk, which is of no use without one.

    Example:
        >>> network = make("resnet32", generator=torch.Generator().manual_seed(0))
        >>> network.num_features, sum(p.numel() for p in network.parameters())
        (64, 463504)
    """
    if name.startswith("timm:"):
        network = timm_backbone.make(name.removeprefix("timm:"), generator=generator)
        if weights is not None:
            weight_files.load(network.network, weights)
        return network
    return _residual(name, generator, weights, reduced=False)


def experts(
    name: str, count: int, *, reduced: bool = False, generator: torch.Generator, weights: Weights = None
) -> Branched:
    """`count` copies of the late layers over shared early ones (RIDE, spec F5): features [B, count, D].

    Shared are stem and layer1 of a CIFAR network, stem to layer2 of an ImageNet one, the trunk of Places.
    `reduced` gives the layers that are not shared three quarters of their width (32, 64 -> 24, 48).
    """
    shared = _residual(name, generator, weights, reduced=reduced)
    copies = (_residual(name, generator, weights, reduced=reduced) for _ in range(count))
    return branched.experts(shared, copies)


def separate(name: str, count: int, *, generator: torch.Generator, weights: Weights = None) -> Separate:
    """`count` whole networks side by side (NCL): features [B, count, D]."""
    networks = [make(name, generator=generator, weights=weights) for _ in range(count)]
    width = networks[0].num_features
    assert isinstance(width, int)
    return Separate(networks, width)


def at_depths(name: str, count: int, *, generator: torch.Generator, weights: Weights = None) -> Depths:
    """`count` last layers over shared ones, each times maps of a depth of its own (SHIKE): [B, count, D]."""

    def network() -> ResNet:
        made = _residual(name, generator, weights, reduced=False)
        if not isinstance(made, ResNet):
            raise UsageError(f"{name} has one layer only, so no shallow maps; use a resnet")
        return made

    return Depths(network(), (network() for _ in range(count)), generator=generator)


def two_branch(name: str, *, generator: torch.Generator, weights: Weights = None) -> Branched:
    """The network with its last residual block twice (BBN, spec B1): features [B, 2, D]."""
    shared = _residual(name, generator, weights, reduced=False)
    copies = (_residual(name, generator, weights, reduced=False) for _ in range(2))
    return branched.two_branch(shared, copies)


def _residual(name: str, generator: torch.Generator, weights: Weights, *, reduced: bool) -> Residual:
    if name == "places_resnet152":
        return _places(generator, weights, reduced=reduced)
    network = _resnet(name, generator, reduced=reduced)
    if weights is not None:
        weight_files.load(network, weights)
    return network


def _places(generator: torch.Generator, weights: Weights, *, reduced: bool) -> PlacesResNet:
    if reduced:
        raise UsageError(
            "places_resnet152 has no reduced form: its experts own one block each; set reduced=false"
        )
    network = places_resnet.resnet152(generator=generator)
    if weights is not None:
        weight_files.load(network.trunk, weights, dropped=places_resnet.DROPPED)
    return network


def _resnet(name: str, generator: torch.Generator, *, reduced: bool) -> ResNet:
    match name:
        case "resnet8" | "resnet20" | "resnet32" | "resnet44" | "resnet56":
            widths = (16, 24, 48) if reduced else (16, 32, 64)
            return cifar_resnet.resnet(int(name.removeprefix("resnet")), widths=widths, generator=generator)
        case "resnet32x2":
            widths = (32, 48, 96) if reduced else (32, 64, 128)
            return cifar_resnet.resnet(32, widths=widths, generator=generator)
        case "resnet18" | "resnet34" | "resnet50" | "resnet101" | "resnet152" | "resnext50":
            planes = (64, 128, 192, 384) if reduced else (64, 128, 256, 512)
            return imagenet_resnet.resnet(name, planes=planes, generator=generator)
        case _:
            raise UsageError(_unknown(name))


def _unknown(name: str) -> str:
    if name.startswith("timm:"):
        return f"{name} cannot be cut into branches; use one of {', '.join(NAMES)}"
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(NAMES)}, or timm:NAME"
    return f"no backbone is called {name!r}; {hint}"

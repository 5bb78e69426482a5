"""A backbone that stands still, made fast: BatchNorm folded into the convolutions, no autograd, no casts.

Stage 2 of a two-stage method and every evaluation run a backbone with fixed weights and fixed BatchNorm
statistics. `folded` copies it into a form with the same features up to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longtail.backbones import Branched, Depths, Mix, PlacesResNet, ResNet
from longtail.backbones.fused import Convolution
from longtail.models import Classifier, Contrasted, Experts, Output, answer
from longtail.recipe import ManifoldMixup, Recipe, Stage

# Images at a time on a processor: the maps of one slice stay in the cache. Larger batches are slower.
_SLICE = 64


class Folded(nn.Module):
    """A still copy of a backbone: images [B, 3, H, W] -> float32 features, the same as in eval mode."""

    def __init__(self, network: nn.Module, dtype: torch.dtype):
        super().__init__()
        self.network = network
        self.num_features = network.num_features
        self.dtype = dtype

    @torch.no_grad()
    def forward(self, images: Tensor, mix: Mix | None = None) -> Tensor:
        if mix is not None:
            raise ValueError("a folded backbone has no maps inside to mix")
        # Outside of autocast: the weights have their precision already.
        with torch.autocast(images.device.type, enabled=False):
            # The fused ReLU makes 0 of NaN: a broken image must not come out as one of sound features.
            broken = images.sum(dim=(1, 2, 3), dtype=torch.float32)[:, None] * 0
            images = images.to(self.dtype)
            parts = images.split(_SLICE) if images.device.type == "cpu" else (images,)
            features = torch.cat([self.network(part) for part in parts]).float()
            return features + broken.view(-1, *[1] * (features.dim() - 1))


def folds(backbone: nn.Module) -> bool:
    """Whether `folded` knows how this network is put together: ours, not those of timm."""
    return isinstance(backbone, ResNet | PlacesResNet | Branched | Depths)


def folded(backbone: nn.Module, *, dtype: torch.dtype = torch.float32) -> Folded:
    """A copy of `backbone` for eval mode only. Later changes of the backbone do not reach it.

    Example:
        >>> from longtail import backbones
        >>> network = backbones.make("resnet8", generator=torch.Generator().manual_seed(0)).eval()
        >>> still, images = folded(network), torch.ones(2, 3, 8, 8)
        >>> torch.allclose(still(images), network(images), atol=1e-4)
        True
    """
    if not folds(backbone):
        raise TypeError(f"cannot fold a {type(backbone).__name__}; ask folds() first")
    network = copy.deepcopy(backbone).eval().requires_grad_(False)
    for parent in list(network.modules()):
        for first, second in _pairs(parent):
            conv, bn = parent.get_submodule(first), parent.get_submodule(second)
            if isinstance(conv, nn.Conv2d) and isinstance(bn, nn.BatchNorm2d):
                # The blocks call norm_relu(bn, conv(maps)): the whole work moves to where the norm was.
                parent.add_module(first, nn.Identity())
                parent.add_module(second, Convolution(conv, bn, dtype))
    return Folded(network, dtype)


def still(model: nn.Module, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """`model` with a folded copy of its backbone and its own head: training the head trains the model's.

    A model that cannot be folded is given back as it is. Manifold mixup needs the maps inside: not for it.
    """
    if not isinstance(model, Classifier | Experts | Contrasted) or not folds(model.backbone):
        return model
    return type(model)(folded(model.backbone, dtype=dtype), model.head).train(model.training)  # pyright: ignore[reportArgumentType]


class Over(nn.Module):
    """The head of a model, over features that are there already."""

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head

    def forward(self, features: Tensor) -> Output:
        return answer(self.head, features)


def network(recipe: Recipe, stage: Stage, model: nn.Module) -> nn.Module:
    """What the steps of a stage run: the model, or less of it where its backbone stands still."""
    if stage.cached is not None:
        return Over(model.head)  # pyright: ignore[reportArgumentType]
    moves = "backbone" in stage.trains or stage.batchnorm != "frozen"
    # Manifold mixup reaches into the backbone; compiled, the whole model is one graph already.
    if moves or recipe.compile or isinstance(stage.mixing, ManifoldMixup):
        return model
    return still(model, dtype=precision(recipe))


def precision(recipe: Recipe) -> torch.dtype:
    return torch.bfloat16 if recipe.precision == "bf16" else torch.float32


def _pairs(parent: nn.Module) -> Iterator[tuple[str, str]]:
    """The names of a convolution and of the normalisation that directly follows it."""
    if isinstance(parent, nn.Sequential):
        names = [name for name, _ in parent.named_children()]
        yield from zip(names, names[1:])
    else:
        present = dict(parent.named_children())
        yield from (
            (f"conv{n}", f"bn{n}") for n in (1, 2, 3) if f"conv{n}" in present and f"bn{n}" in present
        )

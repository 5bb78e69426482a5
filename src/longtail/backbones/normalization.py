"""The one place that builds a normalisation layer and says how it meets its ReLU.

Every residual network here goes through these three functions, so that a faster form serves them all at once.
The layers keep torchvision's parameter names (`bn1`, `bn2`) because the blocks name them.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from longtail.backbones import batch_norm, fused


def norm(num_features: int) -> nn.BatchNorm2d:
    """Batch normalisation with PyTorch's defaults: weight 1, bias 0, momentum 0.1. Draws no randomness."""
    return nn.BatchNorm2d(num_features)


def norm_relu(layer: nn.Module, maps: Tensor) -> Tensor:
    """relu(layer(maps)). In place, because the normalised maps are needed by nobody else."""
    if isinstance(layer, fused.Convolution):  # a network that stands still: engine/frozen.py
        return layer.relu(maps)
    if (library := batch_norm.library_for(layer, maps)) is not None and isinstance(layer, nn.BatchNorm2d):
        return batch_norm.norm_add_relu(library, layer, maps, None)
    return F.relu(layer(maps), inplace=True)


def norm_add_relu(layer: nn.Module, maps: Tensor, shortcut: Tensor) -> Tensor:
    """relu(layer(maps) + shortcut), the end of every residual block."""
    if isinstance(layer, fused.Convolution):
        return layer.add_relu(maps, shortcut)
    if (library := batch_norm.library_for(layer, maps)) is not None and isinstance(layer, nn.BatchNorm2d):
        return batch_norm.norm_add_relu(library, layer, maps, shortcut)
    return F.relu(layer(maps).add_(shortcut), inplace=True)

"""A convolution with its BatchNorm folded in, that adds and rectifies before its result leaves the registers.

For networks that stand still: stage 2 and evaluation. Where `norm_relu` and `norm_add_relu` meet a
`Convolution` instead of a normalisation layer, they run the whole of convolution, shift, addition and ReLU as
one oneDNN primitive. Elsewhere (accelerators, builds without oneDNN) it is the same arithmetic in several.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class Convolution(nn.Module):
    """bn(conv(maps)) with the running statistics of `bn`, in the precision `dtype`; not to be trained.

    The fold is computed in the precision of the given layers and rounded once.
    """

    def __init__(self, conv: nn.Conv2d, bn: nn.BatchNorm2d, dtype: torch.dtype):
        super().__init__()
        both = fuse_conv_bn_eval(conv, bn)
        assert both.bias is not None and not isinstance(both.padding, str)
        layout = torch.channels_last if dtype == torch.bfloat16 else torch.preserve_format
        self.register_buffer("weight", both.weight.detach().to(dtype, memory_format=layout))
        self.register_buffer("bias", both.bias.detach().to(dtype))
        self.weight: Tensor
        self.bias: Tensor
        self.stride, self.padding = list(both.stride), list(both.padding)
        self.dilation, self.groups = list(both.dilation), both.groups

    def forward(self, maps: Tensor) -> Tensor:
        return F.conv2d(maps, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def relu(self, maps: Tensor) -> Tensor:
        if not _one_primitive(maps):
            return self(maps).relu_()
        place = (self.padding, self.stride, self.dilation, self.groups)
        return torch.ops.mkldnn._convolution_pointwise(maps, self.weight, self.bias, *place, "relu", [], "")

    def add_relu(self, maps: Tensor, shortcut: Tensor) -> Tensor:
        if not _one_primitive(maps):
            return self(maps).add_(shortcut).relu_()
        place = (self.padding, self.stride, self.dilation, self.groups)
        return torch.ops.mkldnn._convolution_pointwise.binary(
            maps, shortcut, self.weight, self.bias, *place, "add", 1.0, "relu", [], ""
        )


def _one_primitive(maps: Tensor) -> bool:
    """Whether oneDNN runs a convolution with what follows it on these maps. Its operator has no gradient."""
    if maps.device.type != "cpu" or torch.is_grad_enabled() or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_convolution_pointwise"):
        return False
    return maps.dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()

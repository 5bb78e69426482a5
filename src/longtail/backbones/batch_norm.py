"""relu(batch_norm(maps) + shortcut) in training on a processor, through the compiled passes of batch_norm.c.

PyTorch goes over the maps about ten times for this, which is a third of a step of ResNet-32; here it is four
times. The arithmetic is the same, but for one rounding to bf16 less at the end of a block.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from longtail.backbones import kernels

SMALLEST = 1 << 16  # numbers in the maps: below it, a call costs as much as it saves


def library_for(layer: nn.Module, maps: Tensor) -> ctypes.CDLL | None:
    """The kernels for this call, or None where PyTorch's own passes have to do it."""
    if not (isinstance(layer, nn.BatchNorm2d) and layer.training and maps.device.type == "cpu"):
        return None
    if maps.dtype not in (torch.bfloat16, torch.float32) or torch.compiler.is_compiling():
        return None
    if maps.numel() < SMALLEST or not maps.is_contiguous(memory_format=torch.channels_last):
        return None
    if layer.momentum is None or layer.running_mean is None or maps.shape[1] > kernels.WIDEST:
        return None
    if not layer.affine or {layer.weight.dtype, layer.running_mean.dtype} != {torch.float32}:
        return None
    return kernels.library("bf16" if maps.dtype == torch.bfloat16 else "fp32")


def norm_add_relu(
    library: ctypes.CDLL, layer: nn.BatchNorm2d, maps: Tensor, shortcut: Tensor | None
) -> Tensor:
    """relu(layer(maps) + shortcut), for what `library_for` has found fit. Moves the running statistics."""
    if shortcut is not None:
        shortcut = shortcut.to(maps.dtype).contiguous(memory_format=torch.channels_last)
    if layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
    return _NormAddReLU.apply(maps, shortcut, layer.weight, layer.bias, layer, library)  # type: ignore[no-any-return]


class _NormAddReLU(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # noqa: PLR0913
        ctx: Any,
        maps: Tensor,
        shortcut: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        layer: nn.BatchNorm2d,
        library: ctypes.CDLL,
    ) -> Tensor:
        assert layer.running_mean is not None and layer.running_var is not None
        channels = maps.shape[1]
        mean, inverse = torch.empty(2, channels).unbind()
        result = torch.empty_like(maps)
        failed = library.forward(
            maps.data_ptr(),
            None if shortcut is None else shortcut.data_ptr(),
            maps.numel() // channels,
            channels,
            weight.data_ptr(),
            bias.data_ptr(),
            layer.eps,
            layer.momentum,
            layer.running_mean.data_ptr(),
            layer.running_var.data_ptr(),
            mean.data_ptr(),
            inverse.data_ptr(),
            result.data_ptr(),
        )
        if failed:
            raise MemoryError("no memory for the sums of a batch normalisation")
        # Where nothing was added, the ReLU's side is computed again instead of read.
        ctx.save_for_backward(maps, result if shortcut is not None else None, weight, bias, mean, inverse)
        ctx.library = library
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        maps, result, weight, bias, mean, inverse = ctx.saved_tensors
        given = given.to(maps.dtype).contiguous(memory_format=torch.channels_last)
        channels = maps.shape[1]
        found, passed = torch.empty_like(maps), torch.empty_like(maps) if result is not None else None
        of_weight, of_bias = torch.empty(2, channels).unbind()
        failed = ctx.library.backward(
            maps.data_ptr(),
            None if result is None else result.data_ptr(),
            given.data_ptr(),
            maps.numel() // channels,
            channels,
            weight.data_ptr(),
            bias.data_ptr(),
            mean.data_ptr(),
            inverse.data_ptr(),
            None if passed is None else passed.data_ptr(),
            found.data_ptr(),
            of_weight.data_ptr(),
            of_bias.data_ptr(),
        )
        if failed:
            raise MemoryError("no memory for the sums of a batch normalisation")
        return found, passed, of_weight, of_bias, None, None

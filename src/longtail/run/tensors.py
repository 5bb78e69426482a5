"""Tensors to safetensors bytes and back. Weights that are not finite are neither written nor accepted."""

from __future__ import annotations

from collections.abc import Mapping

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from longtail.errors import ModelFileError, NumericsError
from longtail.run.escape import terminal

LARGEST_HEADER = 16 << 20  # bytes; thousands of times what a real network needs


def encode(tensors: Mapping[str, Tensor], where: str, *, finite: bool = True) -> bytes:
    """The file form; the same tensors always give the same bytes."""
    if finite and (name := _not_finite(tensors)) is not None:
        raise NumericsError(f"{terminal(name)} holds NaN or infinity; {where} was not written")
    # A copy each: tied tensors and views become tensors of their own, any layout becomes the plain one.
    held = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    return safetensors.torch.save(held)


def decode(data: bytes, where: str, *, finite: bool = True) -> dict[str, Tensor]:
    header = int.from_bytes(data[:8], "little")
    if header > LARGEST_HEADER:
        raise ModelFileError(f"{where} is damaged: its header claims {header:,} bytes")
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{where} is not a safetensors file: {terminal(str(error))[:80]}") from error
    if finite and (name := _not_finite(tensors)) is not None:
        raise ModelFileError(f"{where} holds NaN or infinity in {terminal(name)}; it is not used")
    return tensors


def _not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None

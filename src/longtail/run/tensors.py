"""Tensors to safetensors bytes and back. Weights that are not finite are neither written nor accepted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from longtail.errors import ModelFileError, NumericsError
from longtail.run.escape import terminal

_OF_NUMPY = (torch.float16, torch.float32, torch.float64)
LARGEST_HEADER = 16 << 20  # bytes; thousands of times what a real network needs


def encode(tensors: Mapping[str, Tensor], where: str, *, finite: bool = True) -> bytes:
    """The file form; the same tensors always give the same bytes."""
    held = _plain(tensors)
    if finite and (name := _not_finite(held)) is not None:
        raise NumericsError(f"{terminal(name)} holds NaN or infinity; {where} was not written")
    return safetensors.torch.save(held)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, in plain layout; of tensors that share memory (tied weights) each gets its own."""
    held: dict[str, Tensor] = {}
    places = set[int]()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        held[name] = plain.clone() if place in places else plain
        places.add(place)
    return held


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
        if not tensor.is_floating_point():
            continue
        # NumPy, because it starts no threads: on a busy machine those of torch wait for each other far longer
        # than the check takes.
        plain = tensor if tensor.dtype in _OF_NUMPY else tensor.float()
        if not bool(np.isfinite(plain.numpy()).all()):
            return name
    return None

"""Lengths and directions of the rows of a matrix, finite for rows of zeros; and how new rows are drawn."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(values: Tensor) -> Tensor:
    """At least float32: half precision loses what the scale of a loss then multiplies."""
    return values if values.dtype == torch.float64 else values.float()


def unit(rows: Tensor) -> Tensor:
    """Every row at length one; a row of zeros stays zero."""
    return rows / lengths(rows)


def lengths(rows: Tensor) -> Tensor:
    """The length of each row, 1 for a row of zeros: dividing by it keeps value and gradient finite."""
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return torch.where(length > 1e-12, length, torch.ones_like(length))


def drawn(shape: torch.Size, bound: float, generator: torch.Generator | None) -> Tensor:
    """uniform(-bound, bound), drawn where the generator lives: a head gets the same on every device."""
    device = "cpu" if generator is None else generator.device
    return torch.empty(shape, device=device, dtype=torch.float32).uniform_(-bound, bound, generator=generator)

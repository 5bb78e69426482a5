"""The optimiser's state by parameter name: what a checkpoint holds and a kept optimiser carries over."""

from __future__ import annotations

import torch
from torch import Tensor

from longtail.errors import ModelFileError


def momenta(optimizer: torch.optim.SGD) -> dict[str, Tensor]:
    """parameter name -> momentum buffer; empty before the first step."""
    return {
        name: optimizer.state[parameter]["momentum_buffer"]
        for group in optimizer.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
        if optimizer.state[parameter].get("momentum_buffer") is not None
    }


def set_momenta(optimizer: torch.optim.SGD, held: dict[str, Tensor]) -> None:
    """Puts held buffers back; parameters that are not held start afresh (a new head, for one)."""
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            if name not in held:
                continue
            if held[name].shape != parameter.shape:
                raise ModelFileError(
                    f"optimizer state of {name} has shape {tuple(held[name].shape)}, the model has "
                    f"{tuple(parameter.shape)}: the checkpoint is of another recipe; start a new --out folder"
                )
            buffer = torch.empty_like(parameter, requires_grad=False)
            buffer.copy_(held[name])
            optimizer.state[parameter]["momentum_buffer"] = buffer

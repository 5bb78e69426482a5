"""One number per class, kept exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class PerClass(nn.Module):
    """A float64 vector `[C]` that follows `.to(device)`, ignores `.half()` and stays out of the state dict.

    It is derived from the counts, so a checkpoint has no use for it. `loss.half()` would round a cloud size
    to three digits; a loss casts it to the dtype it computes in instead.
    """

    values: Tensor

    def __init__(self, values: Tensor):
        super().__init__()
        self.register_buffer("values", values.detach().double(), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PerClass:
        # `fn` may change the device, the dtype or both; an empty tensor tells the device without rounding.
        device = fn(torch.empty(0, device=self.values.device)).device
        exact = torch.float32 if device.type == "mps" else torch.float64  # mps has no float64
        self.values = self.values.to(device=device, dtype=exact)
        return self

    def __len__(self) -> int:
        return len(self.values)

    def forward(self, scores: Tensor) -> Tensor:
        """The vector in the dtype and on the device of the scores."""
        return self.values.to(scores)


def checked_weights(weights: Tensor | Sequence[float], classes: int) -> Tensor:
    given = torch.as_tensor(weights)
    if given.shape != (classes,):
        raise ValueError(f"weights must have shape [{classes}], got {tuple(given.shape)}")
    if not bool((torch.isfinite(given) & (given >= 0)).all()):
        raise ValueError("weights must be finite and not negative")
    return given

"""Muon: convolution filters step along their orthogonalised momentum, all else by SGD (Jordan et al., 2024).

A filter bank `[out, in, height, width]` is taken as the matrix `[out, in * height * width]`. Its momentum M
has singular values of very different sizes, so that a plain step moves few directions; `U V^T` of
`M = U S V^T` moves all of them alike. Five steps of a polynomial that sends (0, 1] close to 1 stand in for
the decomposition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# p(s) = a s + b s^3 + c s^5: its slope at 0 is as large as keeps five steps in about [0.7, 1.2].
POLYNOMIAL = (3.4445, -4.7750, 2.0315)


def orthogonalized(matrices: Tensor, steps: int = 5) -> Tensor:
    """`[K, rows, columns]`: the singular values of each matrix go close to 1, its directions stay.

    Example:
        >>> out = orthogonalized(torch.tensor([[[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]))
        >>> bool(((out[0, :, :2].diagonal() - 1).abs() < 0.35).all())
        True
    """
    a, b, c = POLYNOMIAL
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(steps):
        squared = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


class Muon(torch.optim.SGD):
    """Fused SGD. Groups with `orthogonal`, a momentum, hold filters and step along what becomes of it.

    The rate of such a group is the length of a step in each direction; its own weight decay applies, and
    `momentum` must be 0 there, since the fused step takes the direction as it is.
    """

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            if group.get("orthogonal") is not None:
                self._turn(group["params"], group["orthogonal"])
        return super().step(closure)

    @torch.no_grad()
    def _turn(self, filters: list[Tensor], momentum: float) -> None:
        """Puts the direction of each filter bank in the place of its gradient; equal shapes go together."""
        alike: dict[torch.Size, list[Tensor]] = {}
        for weight in filters:
            if weight.grad is None:
                continue
            held = self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
            held.lerp_(weight.grad, 1 - momentum)
            alike.setdefault(weight.shape, []).append(weight)
        for shape, weights in alike.items():
            # Nesterov: the momentum that the next step would begin with, if the gradient stayed
            ahead = [
                _gradient(w).lerp(self.state[w]["momentum_buffer"], momentum).flatten(1) for w in weights
            ]
            rows, columns = shape[0], shape[1:].numel()
            turned = orthogonalized(torch.stack(ahead)) * max(1.0, rows / columns) ** 0.5
            for weight, direction in zip(weights, turned, strict=True):
                _gradient(weight).copy_(direction.view(shape))


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad

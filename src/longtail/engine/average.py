"""An exponential moving average of the weights, evaluated and kept in place of the raw ones."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """Follows every floating tensor of a model's state; BatchNorm statistics are averaged like weights."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.held = {n: t.detach().clone() for n, t in model.state_dict().items() if t.is_floating_point()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        state = model.state_dict()
        current = [state[name].detach() for name in self.held]
        for held, tensor in zip(self.held.values(), current, strict=True):
            held.lerp_(tensor, 1.0 - self.decay)

    def load(self, held: dict[str, Tensor]) -> None:
        for name, tensor in self.held.items():
            tensor.copy_(held[name])

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Generator[None]:
        """The model carries the averaged weights inside, and its own again afterwards."""
        own = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self.put(model)
        try:
            yield
        finally:
            model.load_state_dict(own)

    def put(self, model: nn.Module) -> None:
        """The averaged weights become the model's: at the end of a stage."""
        model.load_state_dict({**model.state_dict(), **self.held})

"""The whole update as one CUDA graph: a small network's step is bound by kernel launches, a replay has one.

The numbers are the same as without: each step's noise comes from the generator's seed, which a replay reads
anew, and the first steps and every odd-sized batch run eagerly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longtail.data.mixing import Mixture
from longtail.engine.step import Step
from longtail.keys import Key
from longtail.losses import Mixed
from longtail.recipe import ManifoldMixup

WARM_UP = 3  # eager steps before the capture, so that lazy initialisation is over


class Graphed:
    """A `Step` that captures itself once for the full batch and is replayed from then on."""

    def __init__(self, step: Step):
        self.step, self.seen = step, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.size = 0

    @property
    def trouble(self) -> Tensor:
        return self.step.trouble

    def prepare(self, lr: float, key: Key) -> None:
        self.step.prepare(lr, key)

    def __call__(self, mixture: Mixture, share: float, progress: float) -> Tensor:
        size = len(mixture.images)
        if self.graph is not None and size == self.size:
            for held, given in zip(self.inputs, tensors(mixture), strict=True):
                held.copy_(given)
            self.graph.replay()
            return self.loss
        self.seen += 1
        self.size = max(self.size, size)
        if self.seen > WARM_UP and size == self.size:
            self._capture(mixture, progress)
            return self(mixture, share, progress)
        return self.step(mixture, share, progress)

    def _capture(self, mixture: Mixture, progress: float) -> None:
        self.inputs = [tensor.clone() for tensor in tensors(mixture)]
        held = rebuilt(mixture, self.inputs)
        self.step.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.step.noise)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.loss = self.step(held, 1.0, progress)


def captured(step: Step) -> Step | Graphed:
    """The step as a graph where that is possible: alone on a CUDA device, hidden maps not mixed."""
    alone = step.world.size == 1 and step.world.device.type == "cuda"
    hidden = isinstance(step.stage.mixing, ManifoldMixup)
    # `progress` is a number of the host: a captured loss would see that of the capture for ever; and what a
    # head that follows its batches decides on the host would never be decided again
    on_host = "progress" in step.needs or step.follower is not None
    return Graphed(step) if alone and not hidden and not on_host else step


def tensors(mixture: Mixture) -> list[Tensor]:
    """The tensors of a batch, in a fixed order."""
    target, second = mixture.target, [] if mixture.second is None else [mixture.second]
    if isinstance(target, Mixed):
        return [mixture.images, target.first, target.second, torch.as_tensor(target.weight), *second]
    return [mixture.images, target]


def rebuilt(mixture: Mixture, held: list[Tensor]) -> Mixture:
    if isinstance(mixture.target, Mixed):
        return Mixture(held[0], Mixed(held[1], held[2], held[3]), None, *held[4:])
    return Mixture(held[0], held[1], None)

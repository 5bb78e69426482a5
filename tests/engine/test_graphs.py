"""What becomes of a step that is captured: which batches are replayed, with which images, rate and noise.

There is no accelerator here. A stand-in for CUDA's graph notes the step instead of running it, as a capture
does, and runs it on the held tensors when it is replayed.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from longtail.data.mixing import Mixture
from longtail.engine.graphs import WARM_UP, Graphed
from longtail.keys import Key
from longtail.losses import Mixed


class Noted:
    """A step whose result names everything that it depended on."""

    def __init__(self):
        self.noise, self.lr = torch.Generator(), torch.zeros(())
        self.optimizer = SimpleNamespace(zero_grad=lambda set_to_none: None)
        self.trouble, self.eager, self.capturing, self.held = torch.zeros(()), 0, False, None

    def prepare(self, lr: float, key: Key) -> None:
        self.lr.fill_(lr)
        self.noise.manual_seed(key.integer())

    def __call__(self, mixture: Mixture, share: float, progress: float) -> torch.Tensor:
        if self.capturing:
            self.held = (mixture, torch.zeros(4, dtype=torch.float64))
            return self.held[1]
        self.eager += 1
        return self.computed(mixture) * share

    def computed(self, mixture: Mixture) -> torch.Tensor:
        mixed, noise = mixture.target, torch.rand((), generator=self.noise)
        classes = mixed.first.sum() * mixed.weight + 100 * mixed.second.sum() * (1 - mixed.weight)
        return torch.stack([mixture.images.sum(), classes, self.lr, noise]).double()

    def replayed(self) -> None:
        mixture, result = self.held
        result.copy_(self.computed(mixture))


@pytest.fixture
def steps(monkeypatch):
    """The same step twice: as it is, and behind the stand-in for a graph."""
    plain, captured = Noted(), Noted()

    class Graph:
        replays = 0

        def register_generator_state(self, generator) -> None:
            assert generator is captured.noise

        def replay(self) -> None:
            Graph.replays += 1
            captured.replayed()

    @contextmanager
    def capture(graph):
        captured.capturing = True
        yield
        captured.capturing = False

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return plain, captured, Graph


def batch(number: int, size: int) -> Mixture:
    generator = Key(number).fold("batch").generator()
    first, second = torch.randint(0, 9, (2, size), generator=generator)
    images = torch.rand(size, 3, 2, 2, generator=generator)
    return Mixture(images, Mixed(first, second, torch.rand((), generator=generator)))


def test_a_replayed_step_sees_its_own_batch_rate_and_noise(steps):
    """Two epochs of seven batches, the last of them short: every full batch after the first is replayed."""
    plain, captured, graph = steps
    update, sizes = Graphed(captured), [8, 8, 8, 8, 8, 8, 3] * 2
    for number, size in enumerate(sizes):
        found = []
        for each in (plain, update):
            each.prepare(0.1 * number, Key(7).fold(number))
            found.append(each(batch(number, size), 1.0, 0.5).clone())
        assert torch.equal(*found), number
    full = sizes.count(8)
    assert graph.replays == full - WARM_UP
    assert captured.eager == len(sizes) - graph.replays


def test_a_short_first_batch_is_not_what_is_captured(steps):
    """A run that goes on in the middle of an epoch may begin with the last, partial batch."""
    plain, captured, graph = steps
    update = Graphed(captured)
    for number, size in enumerate([3, 8, 8, 8, 8]):
        for each in (plain, update):
            each.prepare(0.1, Key(7).fold(number))
        assert torch.equal(plain(batch(number, size), 1.0, 0.5), update(batch(number, size), 1.0, 0.5))
    assert graph.replays == 2 and update.size == 8

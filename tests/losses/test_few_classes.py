"""Guidance for few classes: with a large step, scale 30 can lose the tail of two classes for good."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from longtail import counts, losses

COUNTS, SIZE, HIDDEN, STARTS = [2000, 20], 20, 32, 6


def tail_recall(scale: float, seed: int) -> float:
    """Two well separated Gaussians at ratio 100, a small network with a cosine head, GCL, SGD at rate 5."""
    source = torch.Generator().manual_seed(seed)
    centre = torch.zeros(SIZE)
    centre[0] = 3.0

    def drawn(images: list[int]) -> tuple[Tensor, Tensor]:
        means = torch.cat([centre.expand(images[0], -1), -centre.expand(images[1], -1)])
        return means + torch.randn(means.shape, generator=source), torch.arange(2).repeat_interleave(
            torch.tensor(images)
        )

    points, targets = drawn(COUNTS)
    layer = (torch.randn(SIZE, HIDDEN, generator=source) * (2 / SIZE) ** 0.5).requires_grad_()
    bias = torch.zeros(HIDDEN, requires_grad=True)
    anchors = torch.randn(2, HIDDEN, generator=source).requires_grad_()
    loss = losses.GCL(COUNTS, scale=scale)
    optimizer = torch.optim.SGD([layer, bias, anchors], lr=5.0, momentum=0.9)

    def cosines(points: Tensor) -> Tensor:
        return normalize(torch.relu(points @ layer + bias)) @ normalize(anchors).T

    for _ in range(150):
        chosen = torch.randint(len(points), (64,), generator=source)
        optimizer.zero_grad()
        loss(cosines(points[chosen]), targets[chosen], generator=source).backward()
        optimizer.step()
    tail, _ = drawn([0, 500])
    with torch.no_grad():
        return float((cosines(tail).argmax(1) == 1).double().mean())


def test_scale_thirty_may_lose_the_tail_of_two_classes_and_the_suggested_scale_keeps_it():
    # The same data, start and batches; only the scale differs. Some starts survive scale 30, some do not.
    thirty = [tail_recall(30.0, seed) for seed in range(STARTS)]
    suggested = [tail_recall(counts.suggest_scale(2), seed) for seed in range(STARTS)]
    assert sum(recall < 0.05 for recall in thirty) >= 2
    assert min(suggested) > 0.9

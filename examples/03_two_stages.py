"""Both stages of GCL by hand (the paper's Algorithm 1), in plain PyTorch. Runs in a few seconds.

`longtail train` does the same with images, mixup, checkpoints and a report; here nothing is hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import longtail as lt

source = torch.Generator().manual_seed(0)
counts = lt.counts.exponential(classes=10, largest=500, ratio=100)
centres = 0.8 * torch.randn(10, 16, generator=source)
labels = torch.arange(10).repeat_interleave(counts)
points = centres[labels] + torch.randn(len(labels), 16, generator=source)
test_labels = torch.arange(10).repeat_interleave(200)
test_points = centres[test_labels] + torch.randn(len(test_labels), 16, generator=source)

backbone = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
head = lt.heads.Cosine(32, 10, generator=source)


def train(
    parts: list[nn.Module], loss: nn.Module, rule: lt.data.sampling.Rule, epochs: int, lr: float
) -> None:
    weights = [weight for part in parts for weight in part.parameters()]
    optimizer = torch.optim.SGD(weights, lr=lr, momentum=0.9, weight_decay=2e-4)
    for epoch in range(epochs):
        order = torch.tensor(list(lt.data.sampling.Sampler(labels, rule, seed=epoch)))
        for chosen in order.split(64):
            optimizer.zero_grad()
            loss(scores(points[chosen]), labels[chosen], generator=source).backward()
            optimizer.step()


def scores(inputs: Tensor) -> Tensor:
    return head(backbone(inputs))


def tell(when: str, loss: lt.losses.GCL) -> dict[str, float]:
    meter = lt.metrics.Meter(counts)
    with torch.no_grad():
        meter.update(loss.logits(scores(test_points)), test_labels)
    found = meter.compute()
    print(when, {name: round(found[name], 1) for name in ("top1", "many", "medium", "few")})
    return found


# Stage 1 learns the representation from the images as they come: the clouds keep the rare classes apart.
first = lt.losses.GCL(counts, strength=0.5)
train([backbone, head], first, "instance", epochs=20, lr=0.1)
tell("after stage 1:", first)

# Stage 2 learns the classifier alone, on as many images of every class; what is below it stands still.
before = [weight.clone() for weight in backbone.parameters()]
backbone.requires_grad_(False)
second = lt.losses.GCL(counts, strength=0.5, scale=20.0, margin=0.1, focal=1.0)
train([head], second, "class_balanced", epochs=5, lr=0.01)
assert all(torch.equal(old, new) for old, new in zip(before, backbone.parameters(), strict=True))
tell("after stage 2:", second)

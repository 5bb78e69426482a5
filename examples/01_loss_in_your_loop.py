"""A long-tailed loss in a loop of your own: plain PyTorch, nothing else of the package. Runs in a second."""

from __future__ import annotations

import torch

import longtail as lt

source = torch.Generator().manual_seed(0)
counts = lt.counts.exponential(classes=10, largest=500, ratio=100)  # yours: torch.bincount(train_labels)
centres = 0.8 * torch.randn(10, 16, generator=source)
labels = torch.arange(10).repeat_interleave(counts)
points = centres[labels] + torch.randn(len(labels), 16, generator=source)

backbone = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU())
head = lt.heads.Cosine(64, 10, generator=source)  # cosines in [-1, 1]; scale and margin belong to the loss
loss = lt.losses.GCL(counts, form="angular")
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1, momentum=0.9)

for _ in range(300):
    chosen = torch.randint(len(points), (64,), generator=source)
    optimizer.zero_grad()
    loss(head(backbone(points[chosen])), labels[chosen], generator=source).backward()
    optimizer.step()

test_labels = torch.arange(10).repeat_interleave(100)
test_points = centres[test_labels] + torch.randn(1000, 16, generator=source)
with torch.no_grad():
    logits = loss.logits(head(backbone(test_points)))  # clean: no noise, no margin
meter = lt.metrics.Meter(counts)
meter.update(logits, test_labels)
result = meter.compute()
print({name: round(result[name], 1) for name in ("top1", "many", "medium", "few")})

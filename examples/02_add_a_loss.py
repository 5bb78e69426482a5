"""A loss of your own, in the form that the package's loop and its contracts expect.

To make it part of the package: the equation goes to losses/functional.py, a spec of five lines to recipe.py
(and into the union `Loss`), one `case` to build/losses.py (pyright insists), a reference to tests/losses/.
The contracts then cover it by themselves.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from longtail.losses import Mixed, Target


class PriorTemperature(nn.Module):
    """Cross-entropy of `z_j * (1 + heat * n_j / n_max)`: frequent classes must be told apart more sharply."""

    temperature: Tensor

    def __init__(self, counts: Tensor, heat: float = 0.5):
        super().__init__()
        self.register_buffer("temperature", 1 + heat * counts / counts.max(), persistent=False)

    def logits(self, scores: Tensor) -> Tensor:
        """What evaluation, prediction and calibration use: the scores, without the training-time term."""
        return scores

    def forward(self, scores: Tensor, target: Target, *, generator: Generator | None = None) -> Tensor:
        """The mean over the batch. A loss without noise accepts a generator and ignores it."""
        hot = self.logits(scores) * self.temperature if self.training else self.logits(scores)
        if isinstance(target, Mixed):  # as mixup makes it
            first, second = cross_entropy(hot, target.first), cross_entropy(hot, target.second)
            return target.weight * first + (1 - target.weight) * second
        return cross_entropy(hot, target)


counts = torch.tensor([500, 50, 5])
loss = PriorTemperature(counts)
scores, target = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3

halfway = loss(scores, Mixed(target, target.flip(0), 0.5))
soft = 0.5 * (one_hot(target, 3) + one_hot(target.flip(0), 3)).float()
torch.testing.assert_close(halfway, cross_entropy(scores * loss.temperature, soft))
torch.testing.assert_close(loss.eval()(scores, target), cross_entropy(loss.logits(scores), target))
torch.testing.assert_close(PriorTemperature(counts, heat=0.0)(scores, target), cross_entropy(scores, target))
print(f"mixed target {halfway:.4f}; clean {loss(scores, target):.4f}")

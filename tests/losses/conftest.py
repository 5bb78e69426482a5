"""The softmax cross-entropy that every reference of these tests ends in, in plain Python floats."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

CIFAR10_R100 = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]


def _entropy(logits: list[float], target: int) -> float:
    top = max(logits)
    return top + math.log(math.fsum(math.exp(z - top) for z in logits)) - logits[target]


@pytest.fixture
def entropy() -> Callable[[list[float], int], float]:
    """-log softmax(logits)[target] of one sample."""
    return _entropy


@pytest.fixture
def images() -> list[int]:
    """The counts of CIFAR-10-LT at ratio 100."""
    return list(CIFAR10_R100)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    """Sixteen cosines of ten classes in float64, off +-1, and their targets."""
    source = torch.Generator().manual_seed(7)
    cosine = torch.rand(16, 10, generator=source, dtype=torch.float64) * 1.96 - 0.98
    return cosine, torch.randint(10, (16,), generator=source)


@pytest.fixture
def noise() -> Tensor:
    """A raw draw for `batch`; some of it beyond the clip at 1."""
    source = torch.Generator().manual_seed(8)
    drawn = torch.randn(16, 10, generator=source, dtype=torch.float64) / 3
    drawn[0, 0], drawn[3, 4], drawn[5, 9] = 1.7, -2.0, 1.5  # class 9 has the whole cloud
    return drawn

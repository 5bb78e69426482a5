from __future__ import annotations

import pytest
import torch

from longtail.data.splits import Split


def split(number: int = 4) -> Split:
    images = torch.arange(number, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 2, 2)
    return Split(images, torch.arange(number) % 3, ("a", "b", "c"))


def test_selection_keeps_images_and_targets_together():
    picked = split().select([3, 1])
    assert isinstance(picked.images, torch.Tensor)
    assert picked.images[:, 0, 0, 0].tolist() == [3, 1] and picked.targets.tolist() == [0, 1]


def test_counts_cover_classes_without_images():
    assert split(2).counts.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("images", "targets"),
    [
        (torch.zeros(2, 3, 2, 2, dtype=torch.uint8), torch.tensor([0])),
        (torch.zeros(1, 3, 2, 2), torch.tensor([0])),
        (torch.zeros(1, 3, 2, dtype=torch.uint8), torch.tensor([0])),
        (torch.zeros(1, 3, 2, 2, dtype=torch.uint8), torch.tensor([3])),
        (torch.zeros(1, 3, 2, 2, dtype=torch.uint8), torch.tensor([-1])),
        (torch.zeros(1, 3, 2, 2, dtype=torch.uint8), torch.tensor([0.0])),
    ],
)
def test_what_does_not_fit_together_is_refused(images, targets):
    with pytest.raises(ValueError):
        Split(images, targets, ("a", "b", "c"))

"""What every data source hands on: images, targets and class names, either in memory or read one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

Indices = Sequence[int] | NDArray[np.int64] | Tensor


class ImageSource(Protocol):
    """Images that are read when they are needed. Each is a file, or a row of a file."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Image.Image:
        """The decoded RGB image, upright. DataError names the file when it cannot be used."""
        ...

    def encoded(self, index: int) -> bytes:
        """The bytes as stored: what the audit hashes."""
        ...

    def where(self, index: int) -> str:
        """What to call image `index` in a message: a path, or a file and a row."""
        ...

    def stat(self, index: int) -> tuple[str, int]:
        """Name inside the source and size in bytes, found without reading the image."""
        ...

    def select(self, indices: Indices) -> ImageSource: ...


@dataclass(frozen=True, eq=False)
class Split:
    """Images with their targets. `images` is uint8 `[N, 3, H, W]` (resident) or an `ImageSource` (lazy).

    Example:
        >>> split = Split(torch.zeros(3, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1]), ("cat", "dog"))
        >>> split.counts.tolist(), len(split.select([2]))
        ([1, 2], 1)
    """

    images: Tensor | ImageSource
    targets: Tensor
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if (
            self.targets.dtype != torch.int64
            or self.targets.ndim != 1
            or len(self.images) != len(self.targets)
        ):
            raise ValueError(
                f"{len(self.images)} images need as many int64 targets, not {self.targets.shape}"
            )
        if isinstance(self.images, Tensor) and (self.images.dtype != torch.uint8 or self.images.ndim != 4):
            raise ValueError("resident images are uint8 [N, 3, H, W]")
        if len(self.targets) and not 0 <= int(self.targets.min()) <= int(self.targets.max()) < len(
            self.names
        ):
            raise ValueError(f"targets must lie in 0..{len(self.names) - 1}")

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def is_resident(self) -> bool:
        return isinstance(self.images, Tensor)

    @property
    def counts(self) -> Tensor:
        """Images per class, int64 `[C]`."""
        return torch.bincount(self.targets, minlength=len(self.names))

    def select(self, indices: Indices) -> Split:
        index = torch.from_numpy(positions(indices))
        images = self.images[index] if isinstance(self.images, Tensor) else self.images.select(index)
        return Split(images, self.targets[index], self.names)

    def where(self, index: int) -> str:
        return f"record {index}" if isinstance(self.images, Tensor) else self.images.where(index)


@dataclass(frozen=True, eq=False)
class Sources:
    """What a source holds before anything is chosen from it.

    `official` is False for a partial copy of a published set: its order is then taken as its selection order
    (selection "auto" keeps the first images of each class instead of drawing anew).
    """

    train: Split
    test: Split
    held_out: Split | None
    names: tuple[str, ...]
    official: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Dataset:
    """What a run trains on. `counts` belongs to `train`; `manifest` says which images were taken."""

    train: Split
    test: Split
    held_out: Split | None
    names: tuple[str, ...]
    counts: Tensor
    digest: str
    manifest: dict[str, Any]
    nominal_ratio: float | None = None
    notes: tuple[str, ...] = ()


def positions(indices: Indices) -> NDArray[np.int64]:
    """Any list of indices as a fresh int64 array."""
    values = indices.numpy() if isinstance(indices, Tensor) else indices
    return np.array(values, dtype=np.int64)


def printable(text: str) -> str:
    """A name on one line: control, bidi and undecodable characters are written as escapes.

    Example:
        >>> printable("a\\nb\\x1b.png")
        'a\\\\nb\\\\x1b.png'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_path(path: str | Path) -> str:
    """A path for a message, on one line; of a very long one the end, which tells files apart."""
    text = str(path)
    return printable(text if len(text) <= 160 else "..." + text[-150:])

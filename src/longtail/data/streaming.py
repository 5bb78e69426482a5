"""Batches of images that are read and decoded as they are needed, by worker processes.

What is drawn for an image depends on the epoch's key and its place in the epoch's order alone. So the stream
is the same for any number of workers, with any start method, from any step on, and split over any number of
processes. Pixels travel as bytes and are normalised on the device.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor

from longtail.data.augment import Normalize, Triple
from longtail.data.batches import Batch, bounds
from longtail.data.splits import ImageSource, Split
from longtail.data.workers import Method, Share, Team
from longtail.errors import DataError, LongtailError
from longtail.keys import Key, uniforms

Row = list[float]  # an image's numbers in [0, 1)

TRIES = 10  # of a random area and shape, until one fits into the image
SHAPES = (3 / 4, 4 / 3)
COLUMNS = 2 * TRIES + 7  # tries; top, left; flip; three factors of the jitter and their order
ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
PREFETCH = 2  # batches asked for before they are needed


@dataclass(frozen=True, kw_only=True)
class Large:
    """From a decoded image to the square that the model sees.

    Training: random resized crop, flip, jitter of brightness, contrast and saturation in random order.
    Otherwise: the shorter side to `resize`, then the middle.
    """

    size: int = 224
    resize: int = 256
    area: tuple[float, float] = (0.08, 1.0)
    flip: bool = True
    jitter: float = 0.0

    def train(self, image: Image.Image, row: Row) -> Image.Image:
        left, top, width, height = window(image.width, image.height, self.area, row)
        image = image.crop((left, top, left + width, top + height))
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        if self.flip and row[2 * TRIES + 2] < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self._jittered(image, row[2 * TRIES + 3 :]) if self.jitter else image

    def plain(self, image: Image.Image) -> Image.Image:
        factor = self.resize / min(image.size)
        width, height = max(int(image.width * factor), self.size), max(int(image.height * factor), self.size)
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        return image.crop((left, top, left + self.size, top + self.size))

    def _jittered(self, image: Image.Image, row: Row) -> Image.Image:
        enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
        low, high = max(0.0, 1 - self.jitter), 1 + self.jitter
        for which in ORDERS[int(row[3] * len(ORDERS))]:
            image = enhancers[which](image).enhance(low + (high - low) * row[which])
        return image


def window(width: int, height: int, area: tuple[float, float], row: Row) -> tuple[int, int, int, int]:
    """(left, top, width, height) of a random share of the area, between 3:4 and 4:3 in shape.

    The first of ten tries that fits; when none does, the largest middle part of an allowed shape.
    """
    for number in range(TRIES):
        pixels = width * height * (area[0] + (area[1] - area[0]) * row[2 * number])
        low, high = math.log(SHAPES[0]), math.log(SHAPES[1])
        shape = math.exp(low + (high - low) * row[2 * number + 1])
        wide, tall = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
        if 0 < wide <= width and 0 < tall <= height:
            top = int(row[2 * TRIES] * (height - tall + 1))
            return int(row[2 * TRIES + 1] * (width - wide + 1)), top, wide, tall
    wide, tall = min(width, round(height * SHAPES[1])), min(height, round(width / SHAPES[0]))
    return (width - wide) // 2, (height - tall) // 2, wide, tall


@dataclass(frozen=True, eq=False)
class Reading:
    """The work of a worker: a share of images to bytes `[size, size, 3]`, one after the other."""

    source: ImageSource
    view: Large

    def __call__(self, share: Share, hold: Callable[[int], None]) -> Iterator[bytes]:
        rows = None if share.key is None else uniforms(share.key, share.places, COLUMNS).tolist()
        for number, index in enumerate(share.indices.tolist()):
            hold(index)
            yield self._pixels(index, rows[number] if rows is not None else None)

    def _pixels(self, index: int, row: Row | None) -> bytes:
        try:
            image = self.source.read(index)
            return (self.view.plain(image) if row is None else self.view.train(image, row)).tobytes()
        except LongtailError:
            raise
        except Exception as error:  # whatever a source or a decoder throws, the user needs the file
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise DataError(f"{self.source.where(index)}: cannot be read ({reason})", number=309) from error


class Streamed:
    """Large images, decoded in worker processes and normalised on the device.

    Args:
        workers: processes; 0 decodes in this one. Each epoch starts its own, so that two streams may run side
            by side.
        timeout: seconds until an image that does not come is an error.
        method: how processes start; fork on Linux, Python's own choice elsewhere.
    """

    def __init__(  # noqa: PLR0913  (one for each choice that a recipe has for large images)
        self,
        split: Split,
        *,
        size: int = 224,
        resize: int = 256,
        area: tuple[float, float] = (0.08, 1.0),
        flip: bool = True,
        jitter: float = 0.0,
        mean: Triple,
        std: Triple,
        workers: int = 2,
        device: torch.device | str = "cpu",
        timeout: float = 300.0,
        channels_last: bool = False,
        method: Method | None = None,
    ):
        if isinstance(split.images, Tensor):
            raise TypeError("Streamed reads from an ImageSource; images in memory go through Resident")
        view = Large(size=size, resize=resize, area=area, flip=flip, jitter=jitter)
        self.reading, self.normalize = Reading(split.images, view), Normalize(mean, std)
        self.workers, self.timeout = workers, timeout
        self.method: Method | None = method
        self.device, self.channels_last = torch.device(device), channels_last
        self.targets = split.targets

    def __len__(self) -> int:
        return len(self.targets)

    def epoch(
        self,
        order: Tensor,
        *,
        key: Key,
        batch_size: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> Iterator[Batch]:
        """Augmented batches of `order`, from batch number `start` on. `key` names the epoch."""
        indices, places = order.numpy(), np.arange(len(order))
        parts = bounds(len(order), batch_size, rank, world_size, start)
        return self._stream(Share(key, places[part], indices[part]) for part in parts)

    def plain(self, batch_size: int, *, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """Every image once, in order: its middle, without augmentation."""
        places = np.arange(len(self))
        parts = bounds(len(self), batch_size, rank, world_size)
        return self._stream(Share(None, places[part], places[part]) for part in parts)

    def _stream(self, shares: Iterator[Share]) -> Iterator[Batch]:
        if self.workers == 0:
            for share in shares:
                yield self._decoded(share)
            return
        asked: deque[Share] = deque()
        where = self.reading.source.where
        with Team(self.reading, where, count=self.workers, timeout=self.timeout, method=self.method) as team:
            for share in shares:
                team.ask(share)
                asked.append(share)
                if len(asked) > PREFETCH:
                    yield self._fetched(asked.popleft(), team)
            while asked:
                yield self._fetched(asked.popleft(), team)

    def _fetched(self, share: Share, team: Team) -> Batch:
        pixels = self._room(share)
        for number, room in enumerate(_rooms(pixels)):
            team.fetch(number, room)
        return self._batch(share, pixels)

    def _decoded(self, share: Share) -> Batch:
        pixels = self._room(share)
        for content, room in zip(self.reading(share, lambda _: None), _rooms(pixels)):
            room[:] = content
        return self._batch(share, pixels)

    def _room(self, share: Share) -> Tensor:
        size = self.reading.view.size
        pinned = self.device.type == "cuda"  # so that the copy to the device does not wait
        return torch.empty((len(share.indices), size, size, 3), dtype=torch.uint8, pin_memory=pinned)

    def _batch(self, share: Share, pixels: Tensor) -> Batch:
        positions = torch.from_numpy(share.indices.copy())
        images = pixels.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        if not self.channels_last:
            images = images.contiguous()
        target = self.targets[positions].to(self.device, non_blocking=True)
        return Batch(self.normalize(images), target, positions)


def _rooms(pixels: Tensor) -> Iterator[memoryview]:
    """The bytes of each image of `[B, size, size, 3]`, to be written."""
    return (memoryview(image.reshape(-1)) for image in pixels.numpy())

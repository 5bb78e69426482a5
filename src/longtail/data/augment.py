"""Crop, flip, turn, recolour, normalise, erase: whole uint8 batches in, normalised float batches out.

Every number comes from a row of draws per image, so a batch is a pure function of its images and its draws.
Layout goes through unchanged: a channels-last batch in is a channels-last batch out, with no extra pass.
"""

from __future__ import annotations

from typing import Literal, assert_never

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from longtail.data import pixels, policies
from longtail.keys import Key, uniforms

Policy = Literal["none", "autoaugment", "randaugment"]
Triple = tuple[float, float, float]

BELOW_ONE = np.float32(1 - 2**-24)  # a draw stays below 1 when it becomes a float32


class Normalize:
    """`(x / 255 - mean) / std` per channel, as one multiplication and one addition per value."""

    def __init__(self, mean: Triple, std: Triple):
        self.scale = tuple(1 / (255 * s) for s in std)
        self.shift = tuple(-m / s for m, s in zip(mean, std))
        self._maps: dict[tuple[torch.device, torch.Size, bool], tuple[Tensor, Tensor]] = {}

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 `[B, 3, H, W]` to float32, in the same memory layout."""
        scale, shift = self._map(images)
        return images.float().mul_(scale).add_(shift)

    def _map(self, images: Tensor) -> tuple[Tensor, Tensor]:
        # Full-size maps: a three-element inner dimension (channels last) would cost six times as much.
        place = (images.device, images.shape[1:], is_channels_last(images))
        if place not in self._maps:
            layout = torch.channels_last if place[2] else torch.contiguous_format
            scale, shift = (
                torch.tensor(values, device=images.device)
                .view(1, 3, 1, 1)
                .expand(1, *images.shape[1:])
                .contiguous(memory_format=layout)
                for values in (self.scale, self.shift)
            )
            self._maps[place] = scale, shift
        return self._maps[place]


class Small:
    """The augmentation of images that fit in memory.

    Crop (zero padding first, so the border is black), flip, rotation (nearest pixel, black outside), policy,
    loss of the colours; then normalisation; then Cutout, which erases to the mean colour (DeVries & Taylor
    2017).

    Args:
        size: side of the result; images of another size are resized first.
        crop: padding of the random crop, in pixels.
        rotation: degrees, either way.
        grayscale: the chance that an image loses its colours.
        cutout: side of the erased square. Its centre is any pixel, so that it may reach over the border.

    Example:
        >>> augment = Small(size=32, crop=4, flip=True, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        >>> draws = augment.draws(Key(0), np.arange(2))
        >>> black = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
        >>> augment.train(black, torch.from_numpy(draws)).unique().tolist()
        [-1.0]
    """

    def __init__(
        self,
        *,
        size: int = 32,
        crop: int = 4,
        flip: bool = True,
        rotation: float = 0.0,
        cutout: int = 0,
        policy: Policy = "none",
        grayscale: float = 0.0,
        mean: Triple,
        std: Triple,
    ):
        self.size, self.crop, self.flip, self.rotation, self.cutout = size, crop, flip, rotation, cutout
        self.grayscale = grayscale
        match policy:
            case "none":
                self.policy = None
            case "autoaugment":
                self.policy = policies.AutoAugment()
            case "randaugment":
                self.policy = policies.RandAugment()
            case _:
                assert_never(policy)
        self.normalize = Normalize(mean, std)
        widths = (
            2 * (crop > 0),
            int(flip),
            int(rotation > 0),
            self.policy.columns if self.policy else 0,
            int(grayscale > 0),
            2 * (cutout > 0),
        )
        self._ends = tuple(np.cumsum(widths).tolist())

    @property
    def columns(self) -> int:
        """How many numbers an image takes."""
        return self._ends[-1]

    def draws(self, key: Key, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[n, columns]` numbers in [0, 1): row p is a pure function of the key and of position p."""
        return np.minimum(uniforms(key, positions, self.columns).astype(np.float32), BELOW_ONE)

    def train(self, images: Tensor, draws: Tensor) -> Tensor:
        """uint8 `[B, 3, H, W]` and `[B, columns]` to normalised float32 `[B, 3, size, size]`."""
        images = resized(images, self.size)
        crop, flip, rotation, policy, grey, cutout = draws.tensor_split(self._ends[:-1], dim=1)
        if self.crop or self.flip:
            images = cropped(images, crop, flip, self.crop)
        if self.rotation:
            degrees = (2 * rotation[:, 0] - 1) * self.rotation
            images = _kept_layout(
                images, pixels.warped(images, pixels.rotation(degrees, self.size, self.size))
            )
        if self.policy:
            images = _kept_layout(images, self.policy(images, policy))
        if self.grayscale:
            images = _kept_layout(images, greyed(images, grey[:, 0] < self.grayscale))
        normalised = self.normalize(images)
        return erased(normalised, cutout, self.cutout) if self.cutout else normalised

    def plain(self, images: Tensor) -> Tensor:
        """The same images without augmentation."""
        return self.normalize(resized(images, self.size))


def is_channels_last(images: Tensor) -> bool:
    return not images.is_contiguous() and images.is_contiguous(memory_format=torch.channels_last)


def _kept_layout(before: Tensor, after: Tensor) -> Tensor:
    return after.contiguous(memory_format=torch.channels_last) if is_channels_last(before) else after


def resized(images: Tensor, size: int) -> Tensor:
    """Images of side `size` (bilinear, antialiased); the images themselves where they have it already."""
    if images.shape[2:] == (size, size):
        return images
    resampled = F.interpolate(images.float(), (size, size), mode="bilinear", antialias=True)
    return resampled.round_().clamp_(0, 255).to(torch.uint8)


def cropped(images: Tensor, crop: Tensor, flip: Tensor, padding: int) -> Tensor:
    """A window of the zero-padded images, mirrored where `flip` is below 1/2: one indexing pass.

    A row of a window lies in one piece in memory. So the padded images, with their mirror images behind them,
    are seen as overlapping rows, one from every byte on, and one `index_select` copies whole rows. It takes a
    tenth of the time of indexing by pixel. Without padding nothing moves; without `flip` nothing is mirrored.
    """
    if not len(images):
        return images
    last = is_channels_last(images)
    planes = images.permute(0, 2, 3, 1)[:, None] if last else images[..., None]  # [B, planes, H, W, values]
    batch, count, height, width, values = planes.shape
    padded = F.pad(planes, (0, 0, padding, padding, padding, padding))
    wide = width + 2 * padding
    top = left = torch.zeros(batch, dtype=torch.int64, device=images.device)
    if padding:
        top, left = (crop * (2 * padding + 1)).long().clamp_(max=2 * padding).unbind(1)  # may round up
    start = (top * wide + left) * values
    if flip.shape[1]:  # the mirror image of a window lies as far from the other side
        mirrored = padded.numel() + (top * wide + 2 * padding - left) * values
        start = torch.where(flip[:, 0] < 0.5, mirrored, start)
        padded = torch.cat((padded, padded.flip(3)))
    per_plane = (height + 2 * padding) * wide * values
    plane = torch.arange(batch * count, device=images.device).view(batch, count, 1) * per_plane
    row = torch.arange(height, device=images.device) * (wide * values)
    length = width * values
    rows = padded.as_strided((padded.numel() - length + 1, length), (1, 1))
    window = rows.index_select(0, (start[:, None, None] + plane + row).view(-1))
    window = window.view(batch, count, height, width, values)
    return window[:, 0].permute(0, 3, 1, 2) if last else window[..., 0]


def greyed(images: Tensor, chosen: Tensor) -> Tensor:
    """The chosen images in grey, as Pillow makes it."""
    return torch.where(chosen[:, None, None, None], pixels.grey(images).to(torch.uint8)[:, None], images)


def erased(images: Tensor, draws: Tensor, side: int) -> Tensor:
    """Zero in a square of `side` around a drawn pixel, in place; what lies over the border is cut off."""
    height, width = images.shape[2:]

    def hidden(draw: Tensor, length: int) -> Tensor:
        first = (draw * length).long().clamp_(max=length - 1) - side // 2
        place = torch.arange(length, device=draw.device)
        return (place >= first[:, None]) & (place < first[:, None] + side)

    square = hidden(draws[:, 0], height)[:, None, :, None] & hidden(draws[:, 1], width)[:, None, None, :]
    return images.masked_fill_(square, 0.0)

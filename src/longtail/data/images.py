"""From foreign bytes to RGB pixels: few formats, hard limits, every failure one line that names the file."""

from __future__ import annotations

import io
import os
import stat
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from longtail.data.splits import ImageSource, Indices, Split, positions, printable, shown_path
from longtail.errors import DataError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
MAX_PIXELS = 64_000_000
MAX_SIDE = 32_768
MAX_BYTES = 256 << 20
WHAT_TO_DO = "repair or remove it, or skip bad images (on_bad_image=skip)"


def decode(content: bytes, where: str, *, advice: str = WHAT_TO_DO) -> Image.Image:
    """The first frame as upright RGB. Alpha is dropped; 16-bit grey keeps its high byte."""
    return _opened(content, where, whole=True, advice=advice)


def check_header(content: bytes, where: str) -> None:
    """Refuses what is not an image of an allowed format and size, without decoding the pixels."""
    _opened(content, where, whole=False)


def _opened(content: bytes, where: str, *, whole: bool, advice: str = WHAT_TO_DO) -> Image.Image:
    try:
        with warnings.catch_warnings():
            # Pillow's remarks (odd EXIF, odd palettes) say nothing a user can act on; a bomb is refused.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                _check_size(image.size)
                return _rgb(_upright(image)) if whole else image
    except Exception as error:  # decoders raise nearly anything on hostile bytes, MemoryError included
        raise DataError(f"{where}: {_reason(error, content)}; {advice}", number=309) from error


def _check_size(size: tuple[int, int]) -> None:
    width, height = size
    if min(size) < 1 or max(size) > MAX_SIDE or width * height > MAX_PIXELS:
        raise ValueError(f"{width}x{height} pixels; the limits are {MAX_SIDE} a side and {MAX_PIXELS} in all")


def _reason(error: Exception, content: bytes) -> str:
    if not content:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):  # its own text holds a memory address
        return "not a JPEG, PNG, WebP or BMP image"
    return "cannot be decoded: " + printable(f"{error}"[:100] or type(error).__name__)


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF: the pixels are sound, the orientation is unknown
        return image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # convert() would clip 16 bits at 255
        return Image.fromarray(
            (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
        ).convert("RGB")
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    return image.convert("RGB")


def check_path(path: str, where: str) -> str:
    """A path as written, if it is a plain relative one. Whether a link leaves the root is seen on opening."""
    parts = path.split("/")
    if (
        not path
        or "\0" in path
        or "://" in path
        or path.startswith(("/", "~"))
        or ".." in parts
        or "\\" in path
    ):
        shown = printable(path[:120])
        raise DataError(
            f"{where}: the path '{shown}' is not a plain path inside the root; correct it", number=307
        )
    return path


def read_regular(path: str | Path, where: str, *, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file; never waits on a FIFO, never opens a device, never reads past `limit`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise DataError(f"{where}: not a regular file; remove it", number=307)
            if facts.st_size > limit:
                raise DataError(f"{where}: {facts.st_size} bytes; the limit is {limit}", number=309)
            return file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise DataError(f"{where}: cannot be read ({_os_reason(error)})", number=301) from error


def _os_reason(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "bad name"


class FileImages:
    """Image files below one root, named by relative paths, read when needed.

    `listed_in` (as "train.txt:") and `lines` say where a list file names each image, so that messages can.
    """

    def __init__(
        self,
        root: str,
        paths: Sequence[str],
        *,
        listed_in: str | None = None,
        lines: NDArray[np.int64] | None = None,
    ):
        self.root, self.paths, self.listed_in, self.lines = root, paths, listed_in, lines
        self._real_root = os.path.realpath(root)

    def __len__(self) -> int:
        return len(self.paths)

    def where(self, index: int) -> str:
        if self.listed_in is not None and self.lines is not None:
            return f"{self.listed_in}{self.lines[index]}: {shown_path(self.paths[index])}"
        return shown_path(os.path.join(self.root, self.paths[index]))

    def _resolved(self, index: int) -> str:
        """Links are followed here, once, and may not lead out of the root; opening follows none."""
        try:
            path = os.path.realpath(os.path.join(self._real_root, self.paths[index]), strict=True)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.where(index)}: cannot be found ({_os_reason(error)})", number=301
            ) from error
        if not path.startswith(self._real_root.rstrip("/") + "/"):
            raise DataError(f"{self.where(index)}: a link that leaves the root; copy the image", number=307)
        return path

    def encoded(self, index: int) -> bytes:
        return read_regular(self._resolved(index), self.where(index))

    def read(self, index: int) -> Image.Image:
        return decode(self.encoded(index), self.where(index))

    def stat(self, index: int) -> tuple[str, int]:
        facts = os.stat(self._resolved(index))
        if not stat.S_ISREG(facts.st_mode):
            raise DataError(f"{self.where(index)}: not a regular file; remove it", number=307)
        return self.paths[index], facts.st_size

    def select(self, indices: Indices) -> FileImages:
        chosen = positions(indices)
        lines = None if self.lines is None else self.lines[chosen]
        return FileImages(
            self.root, [self.paths[int(i)] for i in chosen], listed_in=self.listed_in, lines=lines
        )


def resident(split: Split, size: int) -> Split:
    """The same split with its images in memory, `[N, 3, size, size]`: short side resized, centre cropped."""
    images = split.images
    if isinstance(images, Tensor) and images.shape[2:] == (size, size):
        return split
    pixels = np.empty((len(split), 3, size, size), dtype=np.uint8)
    for i in range(len(split)):
        pixels[i] = fitted(_image(images, i), size)
    return Split(torch.from_numpy(pixels), split.targets, split.names)


def fitted(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """`[3, size, size]`: the short side resized, the centre cut out."""
    square = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    return np.asarray(square).transpose(2, 0, 1)


def _image(images: Tensor | ImageSource, index: int) -> Image.Image:
    if isinstance(images, Tensor):
        return Image.fromarray(images[index].permute(1, 2, 0).contiguous().numpy())
    return images.read(index)

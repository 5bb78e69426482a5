"""Looks at the images before the first step: bad ones, empty classes, duplicates, overlaps, label conflicts.

The numbers of data errors (exit code 3), each raised in longtail.data or longtail.build.data:

| number | what |
| --- | --- |
| E300 | any other trouble with data |
| E301 | a file or folder is missing or cannot be read |
| E302 | a folder or file does not have the layout it should have |
| E303 | an archive is damaged or holds something that is refused |
| E304 | a download failed, or its bytes are not the published ones |
| E305 | a pickle is refused |
| E306 | a line of a list file cannot be used |
| E307 | a path leaves its root, or names no regular file |
| E308 | a Parquet file, column or label cannot be used |
| E309 | an image cannot be used |
| E310 | a class has no images |
| E311 | a class loses more than a tenth of its images, or its last one, to skipping |
| E312 | duplicates, overlaps or label conflicts under strict |
| E313 | a profile or ratio asks for more images than there are |
| E314 | a manifest does not fit |
| E315 | there is nothing to hold out or to test on |
| E316 | class names clash or are unknown to the training set |
| E317 | an optional package is missing |
| E320 | a worker process takes too long over an image |
| E321 | a worker process died while it read an image |
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from longtail.data.images import check_header, decode
from longtail.data.splits import ImageSource, Split
from longtail.errors import DataError

# Up to here every image is decoded, so that a bad one is found now and not in the middle of a run.
DECODE_UP_TO = 256 << 20
# Up to here every file is read and hashed. Beyond, an image is known by its name and size.
READ_UP_TO = 2 << 30
LOSS_LIMIT = 0.10

Depth = Literal["names", "headers", "pixels"]


@dataclass(frozen=True)
class Inspection:
    """A fingerprint per image (empty for a bad one), what is wrong with the bad, and how deep it looked."""

    prints: tuple[bytes, ...]
    bad: dict[int, str]
    depth: Depth


def inspect(split: Split, *, skip: bool = False) -> Inspection:
    """Looks at every image of a split. The first bad one raises, unless `skip` collects them all.

    Skipping decodes everything, however large: what is left out must be known before the first step, or a
    resumed run would see other images.
    """
    images = split.images
    if isinstance(images, Tensor):
        flat = images.contiguous().flatten(1).numpy()
        return Inspection(tuple(hashlib.sha256(row).digest() for row in flat), {}, "pixels")
    bad: dict[int, str] = {}
    sizes = [_guarded(images, i, "names", skip, bad)[1] for i in range(len(images))]
    depth: Depth = "pixels" if skip or sum(sizes) <= DECODE_UP_TO else "headers"
    depth = "names" if not skip and sum(sizes) > READ_UP_TO else depth
    prints = tuple(b"" if i in bad else _guarded(images, i, depth, skip, bad)[0] for i in range(len(images)))
    return Inspection(prints, bad, depth)


def _guarded(
    images: ImageSource, index: int, depth: Depth, skip: bool, bad: dict[int, str]
) -> tuple[bytes, int]:
    try:
        return _look(images, index, depth)
    except DataError as error:
        if not skip:
            raise
        bad[index] = str(error)
        return b"", 0


def _look(images: ImageSource, index: int, depth: Depth) -> tuple[bytes, int]:
    """Fingerprint and size of one image, checked as deep as asked."""
    if depth == "names":
        name, size = images.stat(index)
        return hashlib.sha256(f"{size} {name}".encode("utf-8", "surrogateescape")).digest(), size
    content = images.encoded(index)
    check = decode if depth == "pixels" else check_header
    check(content, images.where(index))
    return hashlib.sha256(content).digest(), len(content)


def without_bad(split: Split, part: str) -> tuple[list[int], tuple[str, ...]]:
    """Indices of the images that can be used, and a note that counts the others by class (on_bad_image=skip).

    A class that loses more than a tenth of its images, or all of them, stops the run: in a class of five,
    that is the method's subject gone.
    """
    bad = inspect(split, skip=True).bad
    if not bad:
        return list(range(len(split))), ()
    lost = Counter(int(split.targets[i]) for i in bad)
    counts: list[int] = split.counts.tolist()
    first = bad[min(bad)]
    for label, number in sorted(lost.items()):
        if number == counts[label] or number > LOSS_LIMIT * counts[label]:
            lost_of = f"class {split.names[label]} loses {number} of {counts[label]} images"
            raise DataError(f"{part}: {lost_of}; the first: {first}", number=311)
    shares = ", ".join(f"{split.names[label]} {number}" for label, number in sorted(lost.items())[:10])
    kept = [i for i in range(len(split)) if i not in bad]
    return kept, (f"{part}: {len(bad)} bad images skipped ({shares}); the first: {first}",)


def check_classes(counts: Tensor, names: tuple[str, ...], *, allow_empty: bool = False) -> tuple[str, ...]:
    """E310 for training classes without images, or a note that names them when they are allowed."""
    empty: list[int] = torch.nonzero(counts == 0).flatten().tolist()
    if not empty:
        return ()
    shown = ", ".join(names[i] for i in empty[:5]) + (f" and {len(empty) - 5} more" if len(empty) > 5 else "")
    if allow_empty:
        return (f"classes without training images: {shown}; they are left out of loss and average",)
    raise DataError(
        f"classes without training images: {shown}; add images, or allow it (allow_empty_class=true)",
        number=310,
    )


def duplicates(parts: dict[str, tuple[Split, Inspection]], *, strict: bool = False) -> tuple[str, ...]:
    """One note per kind of repetition, within and between the parts; `strict` raises the first."""
    notes: list[str] = []
    seen: dict[str, dict[bytes, int]] = {}
    for part, (_, inspection) in parts.items():
        found: dict[bytes, int] = {}
        repeats = [
            (found[key], i)
            for i, key in enumerate(inspection.prints)
            if key and found.setdefault(key, i) != i
        ]
        if repeats:
            notes.append(_note(f"{part}: {{}} repeated", parts, (part, part), repeats))
        for other, theirs in seen.items():
            shared = [(theirs[key], i) for i, key in enumerate(inspection.prints) if key in theirs]
            if shared:
                notes.append(_note(f"{other} and {part} share {{}}", parts, (other, part), shared))
        seen[part] = found
    if strict and notes:
        raise DataError(f"{notes[0]}; remove them, or go on without strict", number=312)
    shallow = [part for part, (_, inspection) in parts.items() if inspection.depth == "names"]
    if shallow:
        notes.append(
            f"{', '.join(shallow)}: too large to be read first; repeated names were looked for, not images"
        )
    return tuple(notes)


def _note(
    text: str,
    parts: dict[str, tuple[Split, Inspection]],
    sides: tuple[str, str],
    pairs: list[tuple[int, int]],
) -> str:
    """Says how many, names the first pair, and how many of the pairs stand under two labels."""
    left, right = (parts[side][0] for side in sides)
    clashes = [(a, b) for a, b in pairs if left.targets[a] != right.targets[b]]
    a, b = (clashes or pairs)[0]
    number = f"{len(pairs)} image{'s' if len(pairs) > 1 else ''}"
    shown = f"{left.where(a)} = {right.where(b)}"
    if not clashes:
        return f"{text.format(number)} (such as {shown})"
    labels = f"{left.names[int(left.targets[a])]} and {right.names[int(right.targets[b])]}"
    return f"{text.format(number)}, {len(clashes)} under two labels (such as {shown}: {labels})"

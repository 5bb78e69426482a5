"""CIFAR-10 and CIFAR-100: the official binary or python layout, in a folder or a .tar.gz, whole or partial.

Hashes of the files decide whether the images are the official ones. Files that differ are named in a note and
used all the same, so that a partial copy (a long-tailed subset, a sample) works.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.data import archive, download, unpickle
from longtail.data.cifar_layouts import LAYOUTS, Layout
from longtail.data.images import read_regular
from longtail.data.splits import Sources, Split, printable, shown_path
from longtail.errors import DataError

PIXELS = 3 * 32 * 32
MAX_FILE = 200 << 20
Files = Callable[[str], bytes | memoryview | None]


def read(
    classes: Literal[10, 100] = 10,
    root: str | None = None,
    *,
    fetch: bool = False,
    layouts: tuple[Layout, ...] | None = None,
    schemes: tuple[str, ...] = ("https",),
    context: ssl.SSLContext | None = None,
) -> Sources:
    """The training and test images; `held_out` too where the folder has the extra file.

    Args:
        root: a folder or a .tar.gz. When None: $LONGTAIL_DATA, then the cache folder.
        fetch: download the official binary archive into the cache folder when nothing is found.
        layouts, schemes, context: for tests, which bring small data and a server of their own.
    """
    layouts = layouts or LAYOUTS[classes]
    places = [Path(root)] if root is not None else _places()
    found = next((hit for place in places for hit in _look(place, layouts)), None)
    if found is None and fetch:
        layout = layouts[0]
        target = download.cache_folder() / layout.archive
        download.fetch(
            layout.url, target, size=layout.size, sha256=layout.sha256, schemes=schemes, context=context
        )
        found = layout, target
    if found is None:
        shown = shown_path(root) if root is not None else "$LONGTAIL_DATA or the cache folder"
        raise DataError(
            f"CIFAR-{classes} is not in {shown}; name its folder (root), set LONGTAIL_DATA, "
            "or let it be fetched (--set data.download=true)",
            number=301,
        )
    return _sources(*found)


def _places() -> list[Path]:
    named = os.environ.get("LONGTAIL_DATA")
    return [*([Path(named)] if named else []), download.cache_folder()]


def _look(place: Path, layouts: tuple[Layout, ...]) -> list[tuple[Layout, Path]]:
    """Folders before archives, binary before python. A place is the folder itself, its parent, or a file."""
    if os.path.isfile(place):
        return [(layout, place) for layout in layouts if layout.archive == place.name] or _refuse(place)
    folders = [(layout, folder) for layout in layouts for folder in (place, place / layout.folder)]
    # A half-copied folder counts as found: reading it then says which file is missing.
    hits = [
        (layout, folder)
        for layout, folder in folders
        if any(os.path.isfile(folder / name) for name in layout.files)
    ]
    return hits + [
        (layout, place / layout.archive) for layout in layouts if os.path.isfile(place / layout.archive)
    ]


def _refuse(place: Path) -> list[tuple[Layout, Path]]:
    raise DataError(f"{shown_path(place)}: not one of the official archives; keep their names", number=302)


def _sources(layout: Layout, place: Path) -> Sources:
    files = _packed(layout, place) if os.path.isfile(place) else _folder(place)
    names = _names(layout, files, place)
    parts = {name: _records(layout, name, files, place) for name in layout.files}
    strange = [name for name, (_, _, same) in parts.items() if not same]
    train = [parts[name] for name in layout.train]
    held_out = None
    if layout.held_out and files(layout.held_out) is not None:
        held_out = _split([_records(layout, layout.held_out, files, place)], names)
    notes = ()
    if strange:
        count = sum(len(targets) for _, targets, _ in train)
        notes = (
            f"{printable(place.name)}: not the official files ({', '.join(strange)} differ); "
            f"going on with {count} training images",
        )
    return Sources(
        train=_split(train, names),
        test=_split([parts[layout.test]], names),
        held_out=held_out,
        names=names,
        official=not strange,
        notes=notes,
    )


def _folder(folder: Path) -> Files:
    def content(name: str) -> bytes | None:
        path = folder / name
        return read_regular(path, shown_path(path), limit=MAX_FILE) if os.path.lexists(path) else None

    return content


def _packed(layout: Layout, path: Path) -> Files:
    found = archive.members(path)
    return lambda name: found.get(f"{layout.folder}/{name}")


def _names(layout: Layout, files: Files, place: Path) -> tuple[str, ...]:
    content = files(layout.names)
    where = shown_path(place / layout.names)
    if content is None:
        return tuple(str(i) for i in range(layout.classes))
    if layout.kind == "binary":
        names = bytes(content).decode("utf-8", "replace").split()
    else:
        meta = unpickle.load(bytes(content), where)
        listed = meta.get("label_names") or meta.get("fine_label_names")
        names = [_text(name) for name in listed] if isinstance(listed, list) else []
    if len(names) != layout.classes or len(set(names)) != layout.classes:
        raise DataError(
            f"{where}: needs {layout.classes} different class names; restore the file", number=302
        )
    return tuple(printable(name) for name in names)


def _text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)[:100]


Records = tuple[NDArray[np.uint8], NDArray[np.int64], bool]


def _records(layout: Layout, name: str, files: Files, place: Path) -> Records:
    """Pixels `[N, 3072]`, labels, and whether the file is byte for byte the published one."""
    content, where = files(name), shown_path(place / name)
    if content is None:
        raise DataError(f"{where}: missing; copy all of the folder, or fetch it again", number=302)
    if layout.kind == "binary":
        published = hashlib.sha256(content).hexdigest()
        pixels, labels = _binary(content, layout.classes, where)
    else:
        published = hashlib.md5(content, usedforsecurity=False).hexdigest()
        pixels, labels = _python(bytes(content), where)
    wrong = np.flatnonzero((labels < 0) | (labels >= layout.classes))
    if len(wrong):
        message = f"{where}: record {wrong[0]} has label {labels[wrong[0]]}, not 0..{layout.classes - 1}"
        raise DataError(f"{message}; fetch it again", number=302)
    return pixels, labels, published == layout.files.get(name)


def _binary(
    content: bytes | memoryview, classes: int, where: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Label byte (CIFAR-100: coarse, then fine), then the red, green and blue planes."""
    label_bytes = 2 if classes == 100 else 1
    record = label_bytes + PIXELS
    if not len(content) or len(content) % record:
        raise DataError(
            f"{where}: {len(content)} bytes are no whole number of {record}-byte records", number=302
        )
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, record)
    return rows[:, label_bytes:], rows[:, label_bytes - 1].astype(np.int64)


def _python(content: bytes, where: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = unpickle.load(content, where)
    pixels, labels = batch.get("data"), batch.get("labels", batch.get("fine_labels"))
    match pixels, labels:
        case (np.ndarray(), list()) if pixels.shape == (len(labels), PIXELS):
            if all(type(label) is int and 0 <= label < 256 for label in labels):
                return pixels.astype(np.uint8), np.array(labels, dtype=np.int64)
        case _:
            pass
    raise DataError(f"{where}: holds no images with labels; fetch it again", number=302)


def _split(parts: list[Records], names: tuple[str, ...]) -> Split:
    pixels = np.concatenate([part[0] for part in parts]).reshape(-1, 3, 32, 32)
    targets = np.concatenate([part[1] for part in parts])
    return Split(torch.from_numpy(pixels), torch.from_numpy(targets), names)

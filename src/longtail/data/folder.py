"""A folder of class folders; or train/ and test/ (or val/) folders of class folders.

Classes stand in byte order of their folder names. Hidden files and those of file managers are ignored, files
with other endings are counted in a note, folders inside class folders are refused.
"""

from __future__ import annotations

import difflib
import os
import unicodedata
from pathlib import Path

import numpy as np
import torch

from longtail.data.images import EXTENSIONS, FileImages
from longtail.data.splits import Sources, Split, printable, shown_path
from longtail.data.subset import stratified
from longtail.errors import DataError

IGNORED = ("thumbs.db", "desktop.ini")
MAX_CLASSES = 100_000


def read(root: str, test: str | None = None, *, test_fraction: float = 0.2) -> Sources:
    """The images below `root`.

    With train/ inside `root`, test/ is the test set and val/ (or validation/) held out; val/ alone is the
    test set. Without a test folder, `test_fraction` of each class is split off: the same images every time.

    Args:
        test: a folder of class folders, relative to `root` or absolute.
    """
    top = Path(root)
    train_folder, test_folder, held_folder = _parts(top, test)
    names = _classes(train_folder)
    notes: list[str] = []
    train = _split(train_folder, names, notes)
    held_out = None if held_folder is None else _split(held_folder, names, notes)
    if test_folder is None:
        kept, chosen = stratified(train.targets, len(names), test_fraction, "test", at_least=1)
        notes.append(f"no test folder: {len(chosen)} of {len(train)} images, stratified, are the test set")
        train, tested = train.select(kept), train.select(chosen)
        if not len(chosen):
            raise DataError(
                f"{shown_path(root)}: no image is left for a test set; add a test folder", number=315
            )
    else:
        tested = _split(test_folder, names, notes)
    if len(names) == 1:
        notes.append(f"only one class ({names[0]}): there is nothing to tell apart")
    return Sources(train, tested, held_out, names, official=True, notes=tuple(notes))


def _parts(root: Path, test: str | None) -> tuple[Path, Path | None, Path | None]:
    if not os.path.isdir(root):
        near = similar(root)
        what = f"did you mean {shown_path(near)}?" if near else "name a folder of class folders"
        raise DataError(f"{shown_path(root)}: no such folder; {what}", number=301)
    named = None
    if test is not None:
        named = root / test
        if not os.path.isdir(named):
            raise DataError(f"{shown_path(named)}: no such folder; correct the test folder", number=301)
    validation = next((root / name for name in ("val", "validation") if os.path.isdir(root / name)), None)
    if not os.path.isdir(root / "train"):
        if named is not None and named.resolve().is_relative_to(root.resolve()):
            raise DataError(
                f"{shown_path(named)}: lies among the class folders; put them in train/", number=302
            )
        return root, named, None
    found = named or (root / "test" if os.path.isdir(root / "test") else validation)
    return root / "train", found, validation if validation != found else None


def similar(path: Path) -> Path | None:
    """The folder beside `path` whose name is nearest to its own."""
    try:
        names = [entry.name for entry in os.scandir(path.parent) if _is_folder(entry)]
    except OSError:
        return None
    close = difflib.get_close_matches(path.name, names, n=1)
    return path.parent / close[0] if close else None


def _classes(folder: Path) -> tuple[str, ...]:
    names = [entry.name for entry in _entries(folder) if _is_folder(entry)]
    if not names:
        raise DataError(f"{shown_path(folder)}: holds no class folders; each class is one folder", number=302)
    if len(names) > MAX_CLASSES:
        raise DataError(f"{shown_path(folder)}: {len(names)} classes; the limit is {MAX_CLASSES}", number=302)
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(unicodedata.normalize("NFC", printable(name)).casefold(), name)
        if other != name:
            pair = f"'{printable(other)}' and '{printable(name)}'"
            raise DataError(f"{shown_path(folder)}: {pair} are one class on some disks; rename", number=316)
    return tuple(printable(name) for name in names)


def _split(folder: Path, names: tuple[str, ...], notes: list[str]) -> Split:
    ids = {name: i for i, name in enumerate(names)}
    paths: list[str] = []
    targets: list[int] = []
    other: list[str] = []
    for entry in _entries(folder):
        if not _is_folder(entry):
            other.append(entry.name)
            continue
        if printable(entry.name) not in ids:
            where = shown_path(folder / entry.name)
            raise DataError(f"{where}: a class without a training folder; rename or remove it", number=316)
        for path in _images(folder, entry.name, other):
            paths.append(path)
            targets.append(ids[printable(entry.name)])
    if other:
        notes.append(f"{shown_path(folder)}: {len(other)} other files ignored, such as {printable(other[0])}")
    if not paths:
        raise DataError(f"{shown_path(folder)}: holds no image ({', '.join(EXTENSIONS)})", number=302)
    order = np.argsort(np.array(targets), kind="stable")
    split = Split(FileImages(str(folder), paths), torch.tensor(targets, dtype=torch.int64), names)
    return split.select(order)


def _images(folder: Path, name: str, other: list[str]) -> list[str]:
    paths: list[str] = []
    for entry in _entries(folder / name):
        path = f"{name}/{entry.name}"
        if _is_folder(entry):
            where = shown_path(folder / path)
            raise DataError(f"{where}: a folder inside a class folder; move its images up", number=302)
        if entry.name.lower().endswith(EXTENSIONS):
            paths.append(path)
        else:
            other.append(path)
    return paths


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, in byte order, without hidden files."""
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry in found if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{shown_path(folder)}: cannot be read ({error.strerror})", number=301) from error
    entries = [entry for entry in entries if entry.name.lower() not in IGNORED]
    return sorted(entries, key=lambda entry: os.fsencode(entry.name))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle; opening it says so, with its name
        return False

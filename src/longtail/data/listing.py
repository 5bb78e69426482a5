"""List files: `path label` lines, CSV with a header, JSON as iNaturalist or BBN write it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from longtail.data.images import FileImages, check_path, read_regular
from longtail.data.splits import Sources, Split, printable, shown_path
from longtail.errors import DataError

MAX_LIST = 512 << 20
MAX_CLASSES = 1_000_000
PATH_COLUMNS = ("path", "file", "filename", "file_name", "fpath", "image", "image_path")
LABEL_COLUMNS = ("label", "target", "category_id", "class_id")
NAME_COLUMNS = ("class", "class_name", "name")

Prefix = tuple[tuple[str, str], ...]


@dataclass
class Listed:
    """One list file, read: paths, labels (-1 where only a class name is given), and the line of each."""

    file: str
    unit: str = ""  # what the numbers count: lines, or "annotation "
    paths: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    row_names: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    @property
    def start(self) -> str:
        return f"{self.file}:{self.unit}"

    def at(self, line: int) -> str:
        return f"{self.start}{line}"

    def add(self, line: int, path: str, label: str | int | None, prefix: Prefix, row_name: str = "") -> None:
        for written, on_disk in prefix:
            if path.startswith(written):
                path = on_disk + path.removeprefix(written)
                break
        self.paths.append(check_path(path, self.at(line)))
        self.labels.append(-1 if label is None else _label(label, self.at(line)))
        self.lines.append(line)
        self.row_names.append(row_name)


def read(root: str, train: str, test: str, *, val: str | None = None, prefix: Prefix = ()) -> Sources:
    """The images that two list files name, below `root`; those of a third, `val`, are the held-out ones.

    The classes are 0..C-1 with C one more than the largest training label, so a gap in the ids is an empty
    class. A CSV without a label column takes its classes from its class names, in byte order.

    Args:
        prefix: pairs (as written, as on disk); the first that a path starts with is exchanged.
    """
    if not os.path.isdir(root):
        raise DataError(
            f"{shown_path(root)}: no such folder; name the folder the paths start from", number=301
        )
    lists = [listed(file, prefix) for file in (train, test, val) if file is not None]
    names = _names(lists[0])
    for found in lists:
        _number(found, names)
    splits = [_split(root, found, names) for found in lists]
    held_out = splits[2] if val is not None else None
    return Sources(splits[0], splits[1], held_out, names, official=True)


def listed(file: str, prefix: Prefix = ()) -> Listed:
    """The rows of a list file. The ending decides: .json, .csv, anything else is `path label` lines."""
    found = Listed(shown_path(file))
    text = _text(file, found.file)
    if file.lower().endswith(".json"):
        found.unit = "annotation "
        _json(text, found, prefix)
    elif file.lower().endswith(".csv"):
        _csv(text, found, prefix)
    else:
        _plain(text, found, prefix)
    if not found.paths:
        raise DataError(f"{found.file}: names no image; check that it is the right file", number=306)
    return found


def _text(file: str, where: str) -> str:
    content = read_regular(file, where, limit=MAX_LIST)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{where}:{line}: not UTF-8 text; convert it", number=306) from error
    if "\0" in text:
        raise DataError(f"{where}:{text[: text.index(chr(0))].count(chr(10)) + 1}: a NUL byte", number=306)
    return text


def _plain(text: str, found: Listed, prefix: Prefix) -> None:
    for line, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            words = content.strip().rsplit(None, 1)
            if len(words) != 2:
                raise DataError(f"{found.at(line)}: not 'path label'; a column is missing", number=306)
            found.add(line, words[0], words[1], prefix)


def _csv(text: str, found: Listed, prefix: Prefix) -> None:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = list(reader.fieldnames or ())
        path, label, name = (_column(header, known) for known in (PATH_COLUMNS, LABEL_COLUMNS, NAME_COLUMNS))
        if path is None or (label is None and name is None):
            wanted = f"one of {', '.join(PATH_COLUMNS)} and one of {', '.join(LABEL_COLUMNS + NAME_COLUMNS)}"
            raise DataError(f"{found.at(1)}: the header needs {wanted}", number=306)
        for row in reader:
            line = reader.line_num
            if None in row or None in row.values():
                raise DataError(f"{found.at(line)}: not as many columns as the header has", number=306)
            given = row[name] if name else ""
            if name and not given:
                raise DataError(f"{found.at(line)}: the class name is empty", number=306)
            found.add(line, row[path], row[label] if label else None, prefix, given)
            if name and label and found.names.setdefault(found.labels[-1], given) != given:
                raise DataError(f"{found.at(line)}: label {found.labels[-1]} has two class names", number=306)
    except csv.Error as error:
        raise DataError(
            f"{found.at(reader.reader.line_num)}: bad CSV ({printable(str(error))})", number=306
        ) from error


def _column(header: list[str], known: tuple[str, ...]) -> str | None:
    return next((name for name in header if name.strip().lower() in known), None)


def _json(text: str, found: Listed, prefix: Prefix) -> None:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{found.file}:{error.lineno}: not JSON ({error.msg})", number=306) from error
    except ValueError as error:  # a number of thousands of digits, which Python refuses to read
        raise DataError(f"{found.file}:1: a number is too long; correct it", number=306) from error
    except RecursionError as error:
        raise DataError(f"{found.file}:1: nested too deeply to be a list", number=306) from error
    if not isinstance(content, dict) or not isinstance(content.get("annotations"), list):
        raise DataError(
            f"{found.file}:1: no list 'annotations'; BBN or iNaturalist JSON is needed", number=306
        )
    files = {
        row["id"]: row.get("file_name") for row in _rows(content, "images", found) if _key(row.get("id"))
    }
    for row in _rows(content, "categories", found):
        if _key(row.get("id")) and "name" in row:
            found.names[int(row["id"])] = printable(str(row["name"])[:200])
    for index, row in enumerate(_rows(content, "annotations", found)):
        key = row.get("image_id")
        path = row.get("fpath") or (files.get(key) if _key(key) else None)
        if not isinstance(path, str) or not isinstance(row.get("category_id"), int):
            raise DataError(f"{found.at(index)}: needs fpath (or image_id) and category_id", number=306)
        found.add(index, path, row["category_id"], prefix)


def _key(value: Any) -> bool:
    return type(value) is int


def _rows(content: dict[str, Any], name: str, found: Listed) -> Iterator[dict[str, Any]]:
    rows = content.get(name, [])
    for index, row in enumerate(rows if isinstance(rows, list) else [rows]):
        if not isinstance(row, dict):
            raise DataError(f"{found.file}: {name} {index} is no object", number=306)
        yield row


def _label(label: str | int, where: str) -> int:
    try:
        value = int(str(label).strip()) if str(label).isascii() and "_" not in str(label) else -1
    except ValueError:
        value = -1
    if not 0 <= value < MAX_CLASSES:
        shown = printable(str(label)[:40])
        raise DataError(f"{where}: label '{shown}' is not a whole number from 0 on; correct it", number=306)
    return value


def _names(train: Listed) -> tuple[str, ...]:
    if -1 in train.labels:
        return tuple(sorted(set(train.row_names), key=lambda name: name.encode()))
    return tuple(train.names.get(i, str(i)) for i in range(max(train.labels) + 1))


def _number(found: Listed, names: tuple[str, ...]) -> None:
    """Turns class names into labels where only names are given, and refuses what training does not know."""
    ids = {name: i for i, name in enumerate(names)}
    for i, line in enumerate(found.lines):
        if found.labels[i] == -1:
            found.labels[i] = ids.get(found.row_names[i], len(names))
        if found.labels[i] >= len(names):
            shown = printable(found.row_names[i][:80]) or found.labels[i]
            raise DataError(f"{found.at(line)}: class {shown} has no training images; correct it", number=306)


def _split(root: str, found: Listed, names: tuple[str, ...]) -> Split:
    lines = np.array(found.lines, dtype=np.int64)
    images = FileImages(root, found.paths, listed_in=found.start, lines=lines)
    return Split(
        images, torch.tensor(found.labels, dtype=torch.int64), tuple(printable(name) for name in names)
    )

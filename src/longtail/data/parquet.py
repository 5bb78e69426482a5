"""Parquet files with an image column (bytes, or a struct with bytes) and a label column; `[parquet]`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from longtail.data.images import MAX_BYTES, decode
from longtail.data.splits import Indices, Sources, Split, positions, printable, shown_path
from longtail.errors import DataError

MAX_CLASSES = 1_000_000


def read(train: str, test: str, *, image: str = "image", label: str = "label") -> Sources:
    """The rows of two files, or of two folders of .parquet files in byte order of their names.

    Labels are whole numbers, or text whose distinct values in byte order are the classes. Class names come
    from the features that the datasets library stores in the file, where they are there.
    """
    columns = [_Columns(part, image, label) for part in (train, test)]
    names = _names(columns[0])
    return Sources(_split(columns[0], names), _split(columns[1], names), None, names, official=True)


class EncodedImages:
    """Images inside Parquet columns, memory-mapped where the file allows it."""

    def __init__(self, column: Any, file: str, rows: NDArray[np.int64]):
        self.column, self.file, self.rows = column, file, rows

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, index: int) -> str:
        return f"{self.file}: row {self.rows[index]}"

    def encoded(self, index: int) -> bytes:
        content = self.column[int(self.rows[index])].as_py()
        if isinstance(content, dict):
            content = content.get("bytes")
        if not isinstance(content, bytes):
            raise DataError(f"{self.where(index)}: holds no image bytes; embed the images", number=309)
        if len(content) > MAX_BYTES:
            raise DataError(
                f"{self.where(index)}: {len(content)} bytes; the limit is {MAX_BYTES}", number=309
            )
        return content

    def read(self, index: int) -> Image.Image:
        return decode(self.encoded(index), self.where(index))

    def stat(self, index: int) -> tuple[str, int]:
        return f"row {self.rows[index]}", len(self.encoded(index))

    def select(self, indices: Indices) -> EncodedImages:
        return EncodedImages(self.column, self.file, self.rows[positions(indices)])


class _Columns:
    """The two columns of a file or of a folder of files, with labels checked."""

    def __init__(self, path: str, image: str, label: str):
        self.file = shown_path(path)
        arrow = _arrow(self.file)
        try:
            tables = [_table(part, image, label) for part in _shards(Path(path), self.file)]
            self.metadata: dict[bytes, bytes] = tables[0].schema.metadata or {}
            table = arrow.concat_tables(tables)
        except (arrow.ArrowException, OSError) as error:
            reason = " ".join(printable(str(error)).split())[:120]
            raise DataError(f"{self.file}: not readable as Parquet ({reason})", number=308) from error
        self.images: Any = table.column(image)
        self.labels: list[int | str] = table.column(label).to_pylist()
        if not self.labels:
            raise DataError(f"{self.file}: holds no rows; check that it is the right file", number=308)
        self.label, self.is_text = label, isinstance(self.labels[0], str)
        for row, value in enumerate(self.labels):
            sound = (
                isinstance(value, str) if self.is_text else type(value) is int and 0 <= value < MAX_CLASSES
            )
            if not sound:
                shown = printable(repr(value)[:40])
                raise DataError(
                    f"{self.file}: row {row}: label {shown} is not usable; correct it", number=308
                )


def _arrow(file: str) -> Any:
    try:
        import pyarrow
    except Exception as error:  # a broken install may raise anything
        raise DataError(f"{file}: needs pyarrow: pip install 'longtail[parquet]'", number=317) from error
    return pyarrow


def _shards(path: Path, file: str) -> list[Path]:
    if os.path.isdir(path):
        parts = sorted(path.glob("*.parquet"), key=lambda part: part.name.encode("utf-8", "surrogateescape"))
        if not parts:
            raise DataError(f"{file}: holds no .parquet file; name the folder that does", number=301)
        return parts
    if not os.path.isfile(path):
        raise DataError(f"{file}: no such file; name a .parquet file or a folder of them", number=301)
    return [path]


def _table(path: Path, image: str, label: str) -> Any:
    import pyarrow.parquet as parquet
    import pyarrow.types as types

    schema = parquet.read_schema(path)
    where = shown_path(path)
    for column in (image, label):
        if column not in schema.names:
            shown = printable(", ".join(schema.names))[:100]
            raise DataError(f"{where}: no column '{printable(column)}'; it has {shown}", number=308)
    kind = schema.field(image).type
    if types.is_struct(kind) and "bytes" in [field.name for field in kind]:
        kind = kind.field("bytes").type
    if not (types.is_binary(kind) or types.is_large_binary(kind)):
        raise DataError(f"{where}: column '{printable(image)}' is {kind}, not image bytes", number=308)
    return parquet.read_table(path, columns=[image, label], memory_map=True)


def _names(train: _Columns) -> tuple[str, ...]:
    if train.is_text:
        return tuple(
            sorted({str(value) for value in train.labels}, key=lambda name: name.encode("utf-8", "replace"))
        )
    classes = max(int(value) for value in train.labels) + 1
    try:
        features = json.loads(train.metadata[b"huggingface"])["info"]["features"]
        names = [printable(str(name)[:200]) for name in features[train.label]["names"]]
    except (KeyError, TypeError, ValueError, RecursionError):
        names = []
    return tuple(names) if len(names) >= classes else tuple(str(i) for i in range(classes))


def _split(columns: _Columns, names: tuple[str, ...]) -> Split:
    ids: dict[int | str, int] = {name: i for i, name in enumerate(names)} if columns.is_text else {}
    targets: list[int] = []
    for row, value in enumerate(columns.labels):
        target = ids.get(value, len(names)) if columns.is_text else int(value)
        if target >= len(names):
            shown = printable(str(value)[:80])
            raise DataError(f"{columns.file}: row {row}: class {shown} has no training images", number=308)
        targets.append(target)
    images = EncodedImages(columns.images, columns.file, np.arange(len(targets), dtype=np.int64))
    return Split(images, torch.tensor(targets, dtype=torch.int64), tuple(printable(name) for name in names))

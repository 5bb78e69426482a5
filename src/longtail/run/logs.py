"""Logs of JSON lines that can be cut back to a known place, so a resumed run writes the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TypedDict

from longtail.errors import MachineError, ModelFileError
from longtail.run import canonical, fsio
from longtail.run.disk import DiskError
from longtail.run.escape import shown


class Position(TypedDict):
    offset: int
    sha256: str  # of all bytes before the offset


class Log:
    """Appends rows to a file. `Log(path)` goes on after the last whole line that is there.

    `Log.open(path, position)` goes on from where a checkpoint stood, and drops what was written after it;
    `position=None` is the start of a run: an empty log.
    """

    def __init__(self, path: str | Path):
        self._begin(Path(path))
        data = _contents(self._file)
        self._keep(data[: data.rfind(b"\n") + 1], found=len(data))

    def _begin(self, path: Path) -> None:
        self._path = path
        existed = self._path.exists()
        self._file = fsio.open_file(self._path, os.O_RDWR | os.O_CREAT)
        if not existed:
            fsio.fsync_dir(self._path.parent)
        self._buffer, self._unsynced = bytearray(), bytearray()

    @classmethod
    def open(cls, path: str | Path, position: Mapping[str, object] | None) -> Log:
        if position is None:
            position = Position(offset=0, sha256=hashlib.sha256().hexdigest())
        if position["offset"] and not Path(path).exists():
            raise ModelFileError(f"{shown(path)} is missing, and the checkpoint goes on from it")
        log = cls.__new__(cls)
        log._begin(Path(path))
        try:
            log._cut(position)
        except BaseException:
            os.close(log._file)
            raise
        return log

    def _cut(self, position: Mapping[str, object]) -> None:
        offset = position["offset"]
        data = _contents(self._file)
        if not isinstance(offset, int) or not 0 <= offset <= len(data):
            raise ModelFileError(
                f"{shown(self._path)} is shorter than its checkpoint says ({len(data):,} bytes of {offset})"
            )
        if hashlib.sha256(data[:offset]).hexdigest() != position["sha256"]:
            raise ModelFileError(f"{shown(self._path)} was changed since the checkpoint was written")
        self._keep(data[:offset], found=len(data))

    def _keep(self, data: bytes, found: int) -> None:
        self._hash, self._offset = hashlib.sha256(data), len(data)
        if found > len(data):
            fsio.truncate(self._file, len(data), self._path)

    def append(self, row: Mapping[str, object]) -> None:
        """Held in memory until `flush`."""
        self._buffer += canonical.line(row)

    def flush(self, *, fsync: bool = False) -> None:
        """Hands the rows to the system, which keeps them when we die; `fsync=True`: also when it dies."""
        if self._buffer:
            data = bytes(self._buffer)
            os.lseek(self._file, self._offset, os.SEEK_SET)  # over the rest of a write that failed
            fsio.write_all(self._file, data, self._path)
            self._hash.update(data)
            self._offset += len(data)
            self._unsynced += data
            self._buffer.clear()
        if fsync and self._unsynced:
            self._sync()

    def _sync(self) -> None:
        for attempt in range(1 + fsio.RETRIES):
            try:
                fsio.fsync_file(self._file, self._path)
                break
            except DiskError as error:
                if error.errno not in fsio.TRANSIENT or attempt == fsio.RETRIES:
                    raise
            # What a failed flush lost is written again (see fsio.fsync_file).
            os.lseek(self._file, self._offset - len(self._unsynced), os.SEEK_SET)
            fsio.write_all(self._file, bytes(self._unsynced), self._path)
        self._unsynced.clear()

    def position(self) -> Position:
        """Where the log stands, after making sure that it is on the disk: a checkpoint relies on it."""
        self.flush(fsync=True)
        return Position(offset=self._offset, sha256=self._hash.hexdigest())

    def close(self) -> None:
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(MachineError) if error is not None else contextlib.nullcontext():
            self.close()


def _contents(file: int) -> bytes:
    parts: list[bytes] = []
    os.lseek(file, 0, os.SEEK_SET)
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def check(path: Path, position: Mapping[str, object]) -> None:
    """Refuses a log whose first `offset` bytes are not those a checkpoint saw."""
    data = fsio.read_bytes(path)
    offset = position.get("offset")
    if not isinstance(offset, int) or offset > len(data):
        raise ModelFileError(f"{shown(path)} is shorter than a checkpoint says")
    if hashlib.sha256(data[:offset]).hexdigest() != position.get("sha256"):
        raise ModelFileError(f"{shown(path)} was changed since a checkpoint was written")

"""All writing to disk. Every operation passes `_hook`, so a test can stop the process before any one of them.

A file is written beside its place, flushed to the disk and renamed into it, so readers see the old file or
the new one, whole. Faults that may pass are tried again; the others become one line that says what to do.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from longtail.errors import LongtailError, MachineError, ModelFileError
from longtail.run import canonical
from longtail.run.canonical import jsonable as jsonable
from longtail.run.disk import TRANSIENT as TRANSIENT
from longtail.run.disk import DiskError as DiskError
from longtail.run.escape import shown

T = TypeVar("T")
Hook = Callable[[str, str], None]

CHUNK = 1 << 20  # bytes per write call
LARGEST_JSON = 64 << 20
RETRIES = 2
WASTE = (".tmp-", ".trash-")  # how names begin of what is being written, or thrown away
PAUSE = 0.05  # seconds, doubled for the second retry


def _no_fault(op: str, path: str) -> None:
    """What a run does before each operation: nothing. Tests put their faults here."""


_hook: Hook = _no_fault


def _tried(op: str, path: str, call: Callable[[], T], *, retries: int | None = None) -> T:
    tries = 1 + (RETRIES if retries is None else retries)
    for attempt in range(1, tries + 1):
        try:
            _hook(op, path)
            return call()
        except OSError as error:
            if error.errno not in TRANSIENT or attempt == tries:
                raise DiskError(error, op, path) from error
            time.sleep(PAUSE * attempt)
    raise AssertionError("a loop of at least one attempt ends by return or raise")


# --------------------------------------------------------------------------------------- single operations


def open_file(path: str | Path, flags: int) -> int:
    """A descriptor that follows no symbolic link and is closed in child programs."""
    name = os.fspath(path)
    return _tried("open", name, lambda: os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))


def open_excl(path: str | Path) -> int:
    """A new file; an existing one is an error."""
    return open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def write_all(fd: int, data: bytes, path: str | Path) -> None:
    """All of `data`, however little one call takes (a limit or a full disk shortens calls silently)."""
    view = memoryview(data)
    while view:
        view = view[_tried("write", os.fspath(path), partial(os.write, fd, view[:CHUNK])) :]


def fsync_file(fd: int, path: str | Path) -> None:
    """Never tried again by itself: after a failed flush the kernel has forgotten what was to be written,
    and a second flush would succeed without it. Whoever wrote the file writes it anew."""
    _tried("fsync", os.fspath(path), lambda: os.fsync(fd), retries=0)


def fsync_dir(path: str | Path) -> None:
    name = os.fspath(path)
    _tried("fsync_dir", name, lambda: _fsync_dir(name))


def _fsync_dir(name: str) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that flush folders by themselves
            raise
    finally:
        os.close(fd)


def fsync_path(path: str | Path) -> None:
    """Flushes a file that others wrote."""
    fd = open_file(path, os.O_RDONLY)
    try:
        fsync_file(fd, path)
    finally:
        os.close(fd)


def rename(source: str | Path, target: str | Path) -> None:
    _tried("rename", os.fspath(target), lambda: os.rename(source, target))


def mkdir(path: str | Path) -> None:
    _tried("mkdir", os.fspath(path), lambda: os.mkdir(path))


def unlink(path: str | Path) -> None:
    _tried("unlink", os.fspath(path), lambda: os.unlink(path))


def truncate(fd: int, size: int, path: str | Path) -> None:
    _tried("truncate", os.fspath(path), lambda: os.ftruncate(fd, size))


# ------------------------------------------------------------------------------------------- whole files


def write_new(path: str | Path, data: bytes) -> None:
    """A new file with exactly `data`, flushed to the disk; the folder's entry is the caller's to flush."""
    for attempt in range(1 + RETRIES):
        fd = open_excl(path)
        try:
            write_all(fd, data, path)
            fsync_file(fd, path)
            return
        except DiskError as error:
            if error.op != "fsync" or error.errno not in TRANSIENT or attempt == RETRIES:
                raise
        finally:
            os.close(fd)
        unlink(path)


def write_file(path: str | Path, data: bytes) -> None:
    """`data` at `path`: the old content or all of the new one, also after a crash."""
    path = Path(path)
    # A name of fixed length, so that a name as long as the file system allows can be written too.
    beside = path.parent / f".tmp-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}"
    try:
        remove(beside)
        write_new(beside, data)
        rename(beside, path)
    except DiskError:
        with contextlib.suppress(MachineError):
            remove(beside)
        raise
    fsync_dir(path.parent)


def write_json(path: str | Path, value: object) -> None:
    write_file(path, canonical.encode(value))


def read_bytes(
    path: str | Path, *, limit: int | None = None, error: type[LongtailError] = ModelFileError
) -> bytes:
    """All bytes of a regular file, at most `limit`. Never waits: a pipe or device is refused."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            size = os.fstat(file.fileno()).st_size
            if limit is not None and size > limit:
                raise error(f"{shown(path)} has {size:,} bytes; at most {limit:,} are read")
            return file.read(size)
    except OSError as trouble:
        raise _unreadable(trouble, path, error) from trouble


def _without_waiting(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file")


def _unreadable(trouble: OSError, path: str | Path, error: type[LongtailError]) -> LongtailError:
    if trouble.errno in (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM):
        return DiskError(trouble, "open", os.fspath(path))
    return error(f"cannot read {shown(path)}: {trouble.strerror}")


def read_json(
    path: str | Path, *, limit: int = LARGEST_JSON, error: type[LongtailError] = ModelFileError
) -> Any:
    """The value in a JSON file; `error` names the file when it is missing, damaged, doubtful or too large."""
    data = read_bytes(path, limit=limit, error=error)
    try:
        return canonical.decode(data)
    except ValueError as trouble:
        raise error(f"{shown(path)}: {trouble}") from trouble


def digest(path: str | Path) -> tuple[int, str]:
    """Size and SHA-256 of a file."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as trouble:
        raise _unreadable(trouble, path, ModelFileError) from trouble


# ----------------------------------------------------------------------------------------------- folders


def free(path: str | Path) -> tuple[int, int | None]:
    """Bytes and files that still fit; None where the file system has no limit of files."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None


def make_folders(path: str | Path) -> None:
    """The folder and its parents; each new one is entered durably in the one above."""
    path = Path(path)
    missing = [part for part in (path, *path.parents) if not part.exists()]
    for part in reversed(missing):
        try:
            mkdir(part)
        except DiskError as error:  # somebody else was faster
            if error.errno != errno.EEXIST:
                raise
        fsync_dir(part.parent)


def remove(path: str | Path, *, whole: bool = True) -> None:
    """A file, link or whole folder (else only an empty one); nothing when it is not there."""
    if not os.path.lexists(path):
        return
    if os.path.islink(path) or not os.path.isdir(path):
        unlink(path)
        return
    for name in sorted(os.listdir(path)) if whole else ():
        remove(Path(path) / name)
    _tried("rmdir", os.fspath(path), lambda: os.rmdir(path))


def clean(folder: str | Path) -> None:
    """Removes what an interrupted run left half done in `folder`. Only for the holder of the lock."""
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.startswith(WASTE):
            remove(Path(folder) / name)

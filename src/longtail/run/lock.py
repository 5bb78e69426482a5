"""One writer per run folder. The kernel releases the lock when its holder dies, so no stale lock exists."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from longtail.errors import BusyError, MachineError
from longtail.run import canonical, fsio
from longtail.run.escape import shown, terminal

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_held: dict[tuple[int, int], int] = {}  # (device, inode) -> descriptor, of this process


def _forget() -> None:
    """In a forked child (a loader worker): it must not hold the lock when its parent is gone."""
    for file in _held.values():
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_forget)


class RunLock:
    """`with RunLock(folder / "lock"):` holds the lock; BusyError names the process that has it instead."""

    def __init__(self, path: str | Path):
        self.path = Path(path) / "lock" if Path(path).is_dir() else Path(path)
        self._place: tuple[int, int] | None = None

    def __enter__(self) -> RunLock:
        file = self._locked()
        try:
            fsio.truncate(file, 0, self.path)
            fsio.write_all(file, canonical.line(_who()), self.path)
        except BaseException:
            os.close(file)
            raise
        self._place = _place(os.fstat(file))
        _held[self._place] = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: removing it would let two processes lock two files of the same name.
        if self._place in _held:
            os.close(_held.pop(self._place))

    def _locked(self) -> int:
        while True:
            fsio.make_folders(self.path.parent)
            file = fsio.open_file(self.path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = _holder(self.path)
                os.close(file)
                raise BusyError(
                    f"{shown(self.path.parent)} is in use by {holder}; wait for it or choose another folder"
                ) from error
            except OSError as error:
                os.close(file)
                raise MachineError(
                    f"cannot lock {shown(self.path)}: {error.strerror}; choose a folder on a local disk",
                    number=510,
                ) from error
            if self.path.exists() and os.path.samestat(os.fstat(file), os.stat(self.path)):
                return file
            os.close(file)  # the folder was removed or replaced meanwhile


def is_held_here(path: Path) -> bool:
    """Whether this process holds the lock."""
    return path.exists() and _place(path.stat()) in _held


def _place(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _who() -> dict[str, object]:
    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    return {"pid": os.getpid(), "host": socket.gethostname(), "boot_id": boot}


def _holder(path: Path) -> str:
    """The holder in words. The file may still name the one before for a moment: then look again."""
    for _ in range(20):
        try:
            found: Any = canonical.decode(path.read_bytes())
            pid, host = int(found["pid"]), str(found["host"])
        except (OSError, ValueError, KeyError, TypeError):
            pid, host = 0, ""
        if pid > 0 and (host != socket.gethostname() or _is_alive(pid)):
            return f"process {pid} on {terminal(host)[:60]}"
        time.sleep(0.01)
    return "another process"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True

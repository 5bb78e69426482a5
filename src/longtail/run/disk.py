"""A failed file operation, said in one line."""

from __future__ import annotations

import errno
import os

from longtail.errors import MachineError
from longtail.run.escape import shown

# Worth a second try. A full disk, a quota or a missing permission is not: waiting does not mend those.
TRANSIENT = frozenset(
    getattr(errno, name)
    for name in "EINTR EAGAIN EIO EBUSY EMFILE ENFILE ENOBUFS ETIMEDOUT ESTALE".split()
    if hasattr(errno, name)
)
_VERBS = {
    "fsync": "flush",
    "fsync_dir": "flush",
    "mkdir": "create",
    "rename": "write",
    "unlink": "remove",
    "rmdir": "remove",
    "truncate": "cut back",
}
_ADVICE = {
    errno.ENOSPC: (501, "the disk is full", "free some space"),
    errno.EDQUOT: (502, "the disk quota is used up", "free some space"),
    errno.EROFS: (503, "the file system is read-only", "choose a folder on another one"),
    errno.EACCES: (504, "no permission", "choose a folder that you may write to"),
    errno.EPERM: (504, "no permission", "choose a folder that you may write to"),
    errno.EMFILE: (505, "too many open files", "raise the limit (ulimit -n)"),
    errno.ENFILE: (505, "too many open files", "close other programs"),
    errno.EFBIG: (506, "the file would be larger than allowed", "raise the limit (ulimit -f)"),
    errno.EIO: (507, "the disk reports an error", "look after the disk"),
    errno.ENAMETOOLONG: (508, "the name is too long", "choose a shorter one"),
}


class DiskError(MachineError):
    """An operation on files that failed, also after trying again; `errno` and `op` say which and why."""

    def __init__(self, error: OSError, op: str, path: str):
        code = error.errno or 0
        number, what, advice = _ADVICE.get(code, (509, os.strerror(code).lower(), "mend that"))
        message = (
            f"cannot {_VERBS.get(op, op)} {shown(path)}: {what}; {advice}, then give the same command again"
        )
        super().__init__(message, number=number)
        self.errno, self.op = code, op

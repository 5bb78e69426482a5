"""The memory allocator, set for training on a processor: freed tensors are kept, and lie on huge pages.

A step frees and takes the same few hundred megabytes again and again. glibc gives large blocks back to the
system at once, so that a step of ResNet-32 at batch 64 meets 12,000 page faults; and with pages of 4 KB the
processor waits for its address tables. Numbers do not change. docs/speed.md has the measurements. Under
another allocator (jemalloc, tcmalloc) these calls do nothing: it has settings of its own.
"""

from __future__ import annotations

import ctypes
import functools
import platform

# malloc.h and mman.h of glibc on Linux
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MADV_HUGEPAGE = 14
_HUGE_PAGE = 2 << 20
_PIECE = 16 << 20  # below every mmap threshold we set, so that it comes from the heap


@functools.cache
def tune(reserve: int = 1 << 30) -> bool:
    """Keeps freed memory in the process and asks for huge pages under the next `reserve` bytes of the heap.

    The first call acts, on the whole process. Reserved addresses cost no memory until they are used; memory
    that was used goes back to the system when the process ends. False where the C library is not glibc or
    does not do as asked: then everything works as before.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    library = _library()
    if library is None or not _keep(library):
        return False
    return _huge(library, reserve)


def _library() -> ctypes.CDLL | None:
    """The C library of this process with the argument types of what is called here."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        library.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
        library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
        library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
        library.sbrk.argtypes, library.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_void_p
        library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    except (OSError, AttributeError):  # a static build, or a function that is not there
        return None
    return library


def _keep(library: ctypes.CDLL) -> bool:
    """No block goes back to the system, and large ones come from the heap. Old glibc takes 32 MB at most."""
    large = library.mallopt(_MMAP_THRESHOLD, 1 << 30) or library.mallopt(_MMAP_THRESHOLD, 1 << 25)
    return bool(large and library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1))


def _huge(library: ctypes.CDLL, reserve: int) -> bool:
    """Grows the heap by `reserve` bytes at once, and asks for huge pages there before anything is written."""
    start = library.sbrk(0)
    pieces = [library.malloc(_PIECE) for _ in range(reserve // _PIECE)]
    end = library.sbrk(0)
    for piece in pieces:
        library.free(piece)  # nothing is given back: the heap keeps the addresses
    first = -(-(start or 0) // _HUGE_PAGE) * _HUGE_PAGE
    size = ((end or 0) - first) // _HUGE_PAGE * _HUGE_PAGE
    return size > 0 and library.madvise(first, size, _MADV_HUGEPAGE) == 0

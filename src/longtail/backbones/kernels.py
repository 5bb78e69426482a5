"""Compiles batch_norm.c when a processor first needs it and has a C compiler; nothing is kept on disk.

Without a compiler, or with LONGTAIL_KERNELS=off in the environment, PyTorch's own passes do the work, as on
other devices. A run writes which of the two it had into env.json: they round differently in the last bit.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Literal

Kind = Literal["bf16", "fp32"]
SOURCE = Path(__file__).with_name("batch_norm.c")
WIDEST = 2048  # channels; as in the source
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
WIDE = "-mprefer-vector-width=512"  # gcc holds back from it by itself; measured in docs/speed.md
_POINTER, _SIZE, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


def possible() -> bool:
    """Whether training on a processor here goes through the compiled kernels. Compiles nothing yet."""
    return os.environ.get("LONGTAIL_KERNELS") != "off" and platform.system() == "Linux" and bool(_compiler())


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


@functools.cache
def library(kind: Kind) -> ctypes.CDLL | None:
    """The compiled functions `forward` and `backward`, or None where there are none to be had."""
    if not possible():
        return None
    wide = (WIDE,) if platform.machine() == "x86_64" else ()
    with tempfile.TemporaryDirectory(prefix="longtail-") as folder:
        target = Path(folder) / f"batch_norm_{kind}.so"
        chosen = ("-DBF16",) if kind == "bf16" else ()
        command = [str(_compiler()), *FLAGS, *wide, *chosen, str(SOURCE), "-lm", "-o", str(target)]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=60)
            before = _thread_pools()
            loaded = ctypes.CDLL(str(target))
        except (OSError, subprocess.SubprocessError) as error:
            return _without(f"{SOURCE.name} could not be compiled ({type(error).__name__})")
    return (
        _typed(loaded)
        if _is_shared(before, _thread_pools())
        else _without("PyTorch has an OpenMP of its own")
    )


def _without(reason: str) -> None:
    """env.json says that they are possible, so it is told when they are not."""
    warnings.warn(
        f"longtail: {reason}; training goes on with PyTorch's passes, more slowly. "
        "LONGTAIL_KERNELS=off says that this is meant",
        stacklevel=2,
    )


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    rows_channels = [_SIZE, _SIZE]
    loaded.forward.argtypes = [_POINTER] * 2 + rows_channels + [_POINTER] * 2 + [_FLOAT] * 2 + [_POINTER] * 5
    loaded.backward.argtypes = [_POINTER] * 3 + rows_channels + [_POINTER] * 8
    return loaded


def _is_shared(before: set[str], after: set[str]) -> bool:
    """Whether the library found PyTorch's OpenMP: two would fight for the cores.

    Loading it then maps no other one. Wheels that bring their own (scikit-learn's does) have renamed it, so
    that nothing else is linked to it: `libgomp-e985bcbb.so.1.0.0`.
    """
    plain = {path for path in after if re.search(r"/lib(gomp|omp|iomp5)\.so", path)}
    return before == after and len(plain) == 1


def _thread_pools() -> set[str]:
    """The OpenMP libraries that this process has mapped."""
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    return set(re.findall(r"\S*/lib(?:gomp|omp|iomp5)\S*\.so\S*", mapped))

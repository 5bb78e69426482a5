"""The one place that reads a pickle: the python layout of CIFAR, a dict of lists and one byte array.

Two locks. First the stream is scanned and every opcode outside a short list refused: no persistent ids, no
extension registry, no object construction but the three names NumPy writes. Then those names resolve to plain
stand-ins of this file that can only keep bytes: not even NumPy's own constructors are reached.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import DataError

ALLOWED_OPCODES = frozenset(
    """PROTO FRAME STOP MARK POP EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE
    TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 STRING BINSTRING
    SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES PUT BINPUT LONG_BINPUT MEMOIZE
    GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD""".split()
)
MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")


class _Dtype:
    """Stands in for numpy.dtype: remembers its code, and refuses all but single bytes."""

    def __init__(self, code: Any, *_: Any):
        if code not in ("u1", b"u1", "uint8", b"uint8"):
            raise pickle.UnpicklingError("an array that does not hold bytes")

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment: a byte has neither."""


class _Array:
    """Stands in for numpy.ndarray: keeps its state until `content` makes it an array."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def content(self) -> NDArray[np.uint8]:
        match self.state:
            case (_, (int(rows), int(columns)), _Dtype(), fortran, (bytes() | bytearray()) as data) if (
                not fortran
            ):
                return np.frombuffer(data, dtype=np.uint8).reshape(rows, columns)
            case _:
                raise pickle.UnpicklingError("an array of another shape than [images, bytes]")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


class _Restricted(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        match module_name, global_name:
            case ("numpy", "ndarray"):
                return _Array
            case ("numpy", "dtype"):
                return _Dtype
            case (module, "_reconstruct") if module in MODULES:
                return _reconstruct
            case _:
                raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}")


def load(content: bytes, where: str) -> dict[str, Any]:
    """The dict in the pickle, keys as text, arrays as uint8 `[rows, columns]`; DataError for all else."""
    try:
        _scan(content)
        found = _Restricted(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(found, dict):
            raise pickle.UnpicklingError("it holds no dict")
        return {
            _text(key): value.content() if isinstance(value, _Array) else value
            for key, value in found.items()
        }
    except Exception as error:  # the pickle machine raises nearly anything on hostile bytes
        reason = " ".join(f"{error}".split())[:120].encode("ascii", "replace").decode()
        raise DataError(
            f"{where}: pickle refused: {reason}; use the binary version of CIFAR", number=305
        ) from error


def _scan(content: bytes) -> None:
    """Refuses opcodes outside the list, and what costs memory or time out of proportion to the stream.

    A memo slot far beyond the stream makes the table grow to it; tuples that hold each other twice, sixty
    deep, take for ever to hash. CIFAR's files build seven tuples and look nothing up.
    """
    tuples = lookups = 0
    for opcode, argument, _ in pickletools.genops(content):
        tuples += opcode.name.startswith("TUPLE")
        lookups += opcode.name in ("GET", "BINGET", "LONG_BINGET")
        if tuples > 16 or lookups > 32:
            raise pickle.UnpicklingError("nested structures")
        if opcode.name not in ALLOWED_OPCODES:
            raise pickle.UnpicklingError(f"opcode {opcode.name}")
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > len(content):
            raise pickle.UnpicklingError("a memo slot out of range")


def _text(key: Any) -> str:
    if not isinstance(key, str | bytes):
        raise pickle.UnpicklingError("a key that is no text")
    return key.decode("ascii") if isinstance(key, bytes) else key

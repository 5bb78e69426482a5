"""Text that came from outside (paths, class names), made safe for a terminal, CSV and error lines."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

# C0 and C1 controls, and the marks that reorder text: they can hide, overwrite or colour what is printed.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_BREAKING = {0: None, ord("\r"): None}  # readers stop at the one and split a row at the other
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def terminal(text: str) -> str:
    """`text` on one line, without control or reordering characters.

    Example:
        >>> terminal("cat\\x1b[31m red\\n")
        'cat[31m red'
    """
    return _CONTROLS.sub("", encodable(text))


def encodable(text: str) -> str:
    r"""`text` that UTF-8 can hold: a byte of a file name that was no UTF-8 becomes `\xNN`.

    Example:
        >>> encodable("caf\udce9.png")
        'caf\\xe9.png'
    """
    return _SURROGATES.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def csv_cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula; numbers stay as they are.

    Example:
        >>> csv_cell("=1+1"), csv_cell(-1.5), csv_cell("cat")
        ("'=1+1", -1.5, 'cat')
    """
    if not isinstance(value, str):
        return value
    text = encodable(value)
    guard = "'" if text.lstrip(" ").startswith(_FORMULA) else ""
    return guard + text.translate(_BREAKING)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """A CSV file as text, every cell made safe."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def shown(path: str | os.PathLike[str], width: int = 100) -> str:
    """A path for a message: relative to here or to home where that is possible, one line, not too long."""
    text = os.fspath(path)
    for root, prefix in ((_here(), ""), (os.path.expanduser("~"), "~/")):
        if root not in ("", "/", "~") and Path(text).is_absolute() and Path(text).is_relative_to(root):
            text = prefix + os.path.relpath(text, root)
            break
    text = terminal(text)
    return text if len(text) <= width else f"{text[: width // 3]}...{text[-(width - width // 3 - 3) :]}"


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the folder we stand in was removed
        return ""

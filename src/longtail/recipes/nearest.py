"""The valid name nearest to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(word: str, choices: Iterable[str], *, most: int = 12) -> str:
    """What to append to "unknown ...": the nearest name, else all of them when they are few, else nothing.

    Example:
        >>> hint("clases", ["classes", "ratio"]), hint("zzz", ["classes", "ratio"]), hint("x", [])
        ('; did you mean classes?', '; there are: classes, ratio', '')
    """
    names = list(choices)
    parts = [name for name in names if word and word in (name.split(".")[0], name.split(".")[-1])]
    found = parts or difflib.get_close_matches(word[:100], names, n=1, cutoff=0.6)
    if found:
        return f"; did you mean {' or '.join(found[:6])}?"
    return f"; there are: {', '.join(names)}" if 0 < len(names) <= most else ""

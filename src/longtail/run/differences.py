"""Where two JSON values differ, as paths that `--set` understands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from longtail.run.canonical import Json
from longtail.run.escape import terminal

_ABSENT = "nothing"


def listed(found: Json, expected: Json, *, limit: int = 5, width: int = 200) -> str:
    """The first `limit` differences as one line of about `width` characters; empty when there is none.

    Example:
        >>> listed({"seed": 0, "stages": [{"epochs": 30}]}, {"seed": 1, "stages": [{"epochs": 5}]})
        'seed: 0 there, 1 here; stages.0.epochs: 30 there, 5 here'
    """
    every = list(_differences(found, expected, ""))
    texts: list[str] = []
    for path, there, here in every[:limit]:
        text = f"{path}: {there} there, {here} here"
        if texts and sum(map(len, texts)) + len(text) > width:
            break
        texts.append(text)
    rest = len(every) - len(texts)
    return "; ".join(texts) + (f"; and {rest} more" if rest else "")


def _differences(found: Json, expected: Json, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(found, dict) and isinstance(expected, dict):
        pairs = [(key, found.get(key), expected.get(key)) for key in found | expected]
        present = [(key in found, key in expected) for key in found | expected]
    elif isinstance(found, list) and isinstance(expected, list):
        numbers = range(max(len(found), len(expected)))
        pairs = [(str(i), _at(found, i), _at(expected, i)) for i in numbers]
        present = [(i < len(found), i < len(expected)) for i in numbers]
    else:
        if _kind(found) != _kind(expected) or found != expected:
            yield terminal(path)[-60:] or "the whole", _short(found), _short(expected)
        return
    for (key, there, here), (in_found, in_expected) in zip(pairs, present, strict=True):
        inner = f"{path}.{key}" if path else key
        if in_found and in_expected:
            yield from _differences(there, here, inner)
        else:
            yield (
                terminal(inner)[-60:],
                _short(there) if in_found else _ABSENT,
                _short(here) if in_expected else _ABSENT,
            )


def _at(items: list[Json], index: int) -> Json:
    return items[index] if index < len(items) else None


def _kind(value: Json) -> type:
    """1 and 1.0 are the same number in JSON; True and 1 are not the same value."""
    return float if type(value) is int else cast(type, type(value))


def _short(value: Json) -> str:
    match value:
        case dict():
            text = str(value.get("kind", "{...}"))
        case list():
            text = f"[{len(value)} values]"
        case str():
            text = value
        case _:
            text = str(value)
    text = terminal(text)
    return text if len(text) <= 24 else text[:21] + "..."

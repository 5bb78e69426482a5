"""JSON with one written form per value (sorted keys, no NaN, ASCII), and a reader that trusts nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, TypeAlias, cast

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"


def jsonable(value: object) -> Json:
    """`value` in JSON's types: tensors, arrays, tuples and sets become lists; NaN and infinities null.

    Example:
        >>> jsonable({"few": float("nan"), "hits": (1, 2)})
        {'few': None, 'hits': [1, 2]}
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Mapping():
            return {_key(k): jsonable(v) for k, v in cast("Mapping[object, object]", value).items()}
        case list() | tuple():
            return [jsonable(item) for item in cast("list[object]", value)]
        case set() | frozenset():
            return sorted((jsonable(item) for item in cast("set[object]", value)), key=json.dumps)
        case PathLike():
            return fspath(cast("PathLike[str]", value))
        case _:
            tolist = getattr(value, "tolist", None)  # tensors, arrays and their scalars
            if not callable(tolist):
                raise TypeError(f"cannot write a {type(value).__name__} as JSON")
            return jsonable(tolist())


def _key(key: object) -> str:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return str(key)
    raise TypeError(f"JSON keys are text, not {type(key).__name__}")


def encode(value: object) -> bytes:
    """The file form: one key per line, lists of plain values on one line, a newline at the end."""
    return (_written(jsonable(value), "\n") + "\n").encode("ascii")


def line(row: Mapping[str, object]) -> bytes:
    """The form of one row of a log: keys in the order given, on one line."""
    return json.dumps(jsonable(row), allow_nan=False).encode("ascii") + b"\n"


def compact(value: object) -> bytes:
    """The form that digests are taken of."""
    text = json.dumps(jsonable(value), allow_nan=False, sort_keys=True, separators=(",", ":"))
    return text.encode("ascii")


def _written(value: Json, newline: str) -> str:
    inner = newline + "  "
    if isinstance(value, dict) and value:
        rows = [f"{json.dumps(key)}: {_written(value[key], inner)}" for key in sorted(value)]
        return "{" + inner + ("," + inner).join(rows) + newline + "}"
    if isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        return "[" + inner + ("," + inner).join(_written(item, inner) for item in value) + newline + "]"
    return json.dumps(value, allow_nan=False)


def decode(data: bytes) -> Any:
    """The value of a JSON text; ValueError (one line) for anything doubtful, a repeated key included."""
    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refused, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:40]!r} appears twice")
        found[key] = value
    return found


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is out of range")
    return number

"""The JSON form of a recipe: out, in, and changed at a path (`--set stages.1.epochs=5`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from longtail.errors import UsageError
from longtail.recipe import Data, LongTail, Recipe
from longtail.recipes.explanation import explain
from longtail.recipes.nearest import hint
from longtail.run import canonical, fsio
from longtail.run.escape import shown

Json = dict[str, Any]
T = TypeVar("T")

LARGEST = 1 << 20  # bytes of a recipe file; the largest of ours has 6,000
BY_HAND = "set on the command line"


def plain(recipe: Recipe) -> Json:
    """Every field, defaults included, in JSON's types."""
    return _adapter().dump_python(recipe, mode="json")


def recipe(value: object, *, where: str = "recipe") -> Recipe:
    """The recipe that a JSON value stands for; UsageError names the path of what is wrong in it."""
    return _refined(_adapter(), value, where)


def read(path: str | Path) -> Recipe:
    """The recipe in a file, as `longtail recipes show` and every run folder hold it."""
    return recipe(fsio.read_json(path, limit=LARGEST, error=UsageError), where=shown(path))


def override(base: Recipe, settings: Sequence[str]) -> Recipe:
    """`base` with each `path=value` put in its place; its provenance then says so."""
    if not settings:
        return base
    value = plain(base)
    for path in _changed(value, settings):
        _note(value["provenance"], path)
    return recipe(value, where="--set")


def override_data(base: Data, settings: Sequence[str]) -> Data:
    """The same for data without a recipe: paths begin with `data.` as they do in one."""
    value = {"data": TypeAdapter(Data).dump_python(base, mode="json")}
    _changed(value, settings)
    return _refined(TypeAdapter(Data), value["data"], "--set data")


def long_tail(value: Json) -> LongTail:
    """A long-tailed choice from plain values."""
    return _refined(TypeAdapter(LongTail), value, "the choice")


def _refined(adapter: TypeAdapter[T], value: object, where: str) -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{where}: {explain(error, adapter.json_schema())}", number=203) from error


def _changed(value: Json, settings: Sequence[str]) -> list[str]:
    """Puts every `path=value` into `value`; the paths."""
    paths: list[str] = []
    for setting in settings:
        path, sign, text = setting.partition("=")
        if not sign or not path:
            raise UsageError(
                f"--set {setting[:60]}: write path=value, as in --set stages.0.epochs=5", number=204
            )
        _put(value, path, text)
        paths.append(path)
    return paths


def parsed(text: str) -> Any:
    """A JSON value, or the text itself where it is none: epochs=5 and form=angular say what they mean."""
    try:
        return canonical.decode(text.encode("utf-8"))
    except ValueError:  # UnicodeEncodeError is one too
        return text


def _put(value: Json, path: str, text: str) -> None:
    """Replaces what stands at `path`; the path must exist, so that a typing error cannot pass unnoticed."""
    parent: Any = value
    parts = path.split(".")
    for depth, part in enumerate(parts):
        key = _step(parent, part, ".".join(parts[:depth]), path)
        if depth < len(parts) - 1:
            parent = parent[key]
            continue
        new = parsed(text)
        if isinstance(parent[key], str) and isinstance(new, int | float | bool):
            new = text  # a folder may be called 2024
        if part == "kind" and new != parent[key]:
            whole = ".".join(parts[:-1])
            shape = json.dumps({"kind": new})
            raise UsageError(
                f"--set {path}: another kind has other fields; replace the whole: --set '{whole}={shape}'",
                number=204,
            )
        parent[key] = new


def _step(parent: Any, part: str, so_far: str, path: str) -> str | int:
    where = so_far or "the recipe"
    if isinstance(parent, dict):
        names = list(cast("Json", parent))
        if part not in names:
            raise UsageError(f"--set {path}: {where} has no {part}{hint(part, names, most=20)}", number=204)
        return part
    if isinstance(parent, list):
        size = len(cast("list[Any]", parent))
        if not (part.isascii() and part.isdigit() and int(part[:9]) < size):
            valid = f"0 to {size - 1}" if size else "none, it is empty"
            raise UsageError(
                f"--set {path}: {where} has no entry {part}; the entries are {valid}", number=204
            )
        return int(part)
    raise UsageError(f"--set {path}: {where} is {json.dumps(parent)[:60]}; set {where} itself", number=204)


def _note(provenance: dict[str, str], path: str) -> None:
    """A constant changed by hand no longer comes from the paper."""
    for known in list(provenance):
        if known == path or known.startswith(path + "."):
            del provenance[known]
    if path != "provenance":
        provenance[path] = BY_HAND


@cache
def _adapter() -> TypeAdapter[Recipe]:
    return TypeAdapter(Recipe)

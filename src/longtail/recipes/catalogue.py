"""Finds recipe functions by their dotted name, `cifar.gcl`, and calls them with arguments given as text."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from longtail.errors import UsageError
from longtail.recipe import Recipe
from longtail.recipes import FAMILIES, overrides
from longtail.recipes.explanation import explain
from longtail.recipes.nearest import hint

Function = Callable[..., Recipe]
T = TypeVar("T")


def functions(families: Sequence[str] = FAMILIES) -> dict[str, Function]:
    """Every recipe function by its dotted name: those that say `-> Recipe`, in order."""
    found: dict[str, Function] = {}
    for family in families:
        module = importlib.import_module(f"longtail.recipes.{family}")
        for name, value in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(value) or value.__module__ != module.__name__:
                continue
            if get_type_hints(value).get("return") is Recipe:
                found[f"{family}.{name}"] = value
    return found


def find(name: str) -> Function:
    known = functions((name.split(".")[0],)) if name.split(".")[0] in FAMILIES else {}
    if name in known:
        return known[name]
    nearest = hint(name, known or functions(), most=0)
    raise UsageError(
        f"there is no recipe {name[:60]}{nearest or '; longtail recipes lists them'}", number=201
    )


def make(name: str, settings: Sequence[str] = ()) -> Recipe:
    """The recipe of a function called with `name=value` texts, converted to what the function declares."""
    return call(name, find(name), settings)


def call(name: str, function: Callable[..., T], settings: Sequence[str]) -> T:
    """What `function` makes of `name=value` texts; `name` is what a refusal calls it."""
    arguments = _arguments(name, function, settings)
    try:
        return function(**arguments)
    except ValidationError as error:  # a spec inside refused: its title and path say where
        text = explain(error, {})
        where = text if error.title == "Recipe" else f"{error.title}.{text}"
        raise UsageError(f"{name}: {where}", number=202) from error
    except (ValueError, ArithmeticError) as error:
        raise UsageError(f"{name}: {error}", number=202) from error


def load(source: str, settings: Sequence[str] = (), changes: Sequence[str] = ()) -> Recipe:
    """A recipe by name, from a JSON file or from a run folder; then `--set` changes on top."""
    path = Path(source)
    if path.is_dir() and (path / "recipe.json").is_file():
        path = path / "recipe.json"
    elif not is_file(source):
        return overrides.override(make(source, settings), changes)
    if settings:
        raise UsageError(
            f"{settings[0][:60]}: a recipe file takes no arguments; change it with --set path=value",
            number=202,
        )
    return overrides.override(overrides.read(path), changes)


def is_file(source: str) -> bool:
    """Whether a source means a file: recipe names have neither a slash nor this ending."""
    return source.endswith(".json") or "/" in source or Path(source).is_file()


def parameters(function: Function) -> dict[str, str]:
    """Each argument as `name` -> its default as it would be typed, or what it has to be."""
    hints = get_type_hints(function)
    return {
        name: _kind(hints[name]) if entry.default is entry.empty else str(entry.default)
        for name, entry in inspect.signature(function).parameters.items()
    }


def _arguments(name: str, function: Callable[..., object], settings: Sequence[str]) -> dict[str, Any]:
    known, hints = inspect.signature(function).parameters, get_type_hints(function)
    values: dict[str, Any] = {}
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign or not key:
            raise UsageError(f"{setting[:60]}: write name=value, as in seed=1", number=202)
        if key not in known:
            raise UsageError(f"{name} has no argument {key[:60]}{hint(key, known)}", number=202)
        if key in values:
            raise UsageError(f"{name}: {key} is given twice", number=202)
        values[key] = _converted(name, key, text, hints[key])
    for key, entry in known.items():
        if entry.default is entry.empty and key not in values:
            raise UsageError(f"{name} needs {key}=VALUE ({_kind(hints[key])})", number=202)
    return values


def _converted(name: str, key: str, text: str, kind: Any) -> Any:
    """The JSON value where it fits the declared type, else the text: data=2024 may be a folder's name."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    value = overrides.parsed(text)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        try:
            return adapter.validate_python(text)
        except ValidationError:
            said = explain(error, {}).removeprefix("the value: ").removeprefix(": ")
            raise UsageError(f"{name}: {key}: {said}", number=202) from error


def _kind(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))

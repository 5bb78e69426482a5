"""A refusal of pydantic in one line: the path as it stands in the JSON, what is wrong, the nearest name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from longtail.recipes.nearest import hint

Schema = Mapping[str, Any]


def explain(error: ValidationError, schema: Schema) -> str:
    """The first refusal, and how many more there are. `schema` is the JSON schema of what was validated."""
    first, *more = error.errors(include_url=False)
    path, siblings = locate(first["loc"], schema)
    rest = f" (and {len(more)} more)" if more else ""
    return _said(first, path, siblings) + rest


def _said(first: Mapping[str, Any], path: str, siblings: Sequence[str]) -> str:
    given, about = first["input"], first.get("ctx", {})
    match first["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            name = path.rsplit(".", 1)[-1]
            return f"{path}: there is no {name} here{hint(name, siblings)}"
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            return f"{path}: is missing"
        case "union_tag_invalid":
            tags = [tag.strip("'") for tag in str(about["expected_tags"]).split(", ")]
            tag = str(about["tag"])
            return f"{_below(path, 'kind')}: there is no {_short(tag)}{hint(tag, tags, most=99)}"
        case "union_tag_not_found":
            return f"{_below(path, 'kind')}: is missing, or {path or 'this'} is no object with a kind"
        case "value_error":  # our own words
            text = str(first["msg"]).removeprefix("Value error, ")
            return f"{path}: {text} (got {_short(given)})" if path else text
        case "literal_error":
            return f"{path}: {_short(given)} is not one of {about['expected']}"
        case _:
            text = str(first["msg"])
            return f"{path or 'the value'}: {text[:1].lower()}{text[1:]} (got {_short(given)})"


def locate(loc: Sequence[str | int], schema: Schema) -> tuple[str, Sequence[str]]:
    """(path as in the JSON, the names valid beside its last part); pydantic's own union tags are left out."""
    path: list[str] = []
    node: Schema | None = resolved(schema, schema)
    siblings: Sequence[str] = ()
    for part in loc:
        node = _chosen(node, schema)
        tags = node.get("discriminator", {}).get("mapping", {}) if node else {}
        if part in tags:
            node = resolved({"$ref": tags[part]}, schema)
            continue
        path.append(str(part))
        siblings = list(node.get("properties", {})) if node else ()
        node = _child(node, part, schema)
    return ".".join(path), siblings


def resolved(node: Schema, schema: Schema) -> Schema:
    while "$ref" in node:
        node = schema["$defs"][str(node["$ref"]).rsplit("/", 1)[-1]]
    return node


def _chosen(node: Schema | None, schema: Schema) -> Schema | None:
    """The object or union behind an optional value."""
    for option in node.get("anyOf", ()) if node else ():
        found = resolved(option, schema)
        if found.get("type") != "null":
            return found
    return node


def _child(node: Schema | None, part: str | int, schema: Schema) -> Schema | None:
    if node is None:
        return None
    if isinstance(part, int):
        places = node.get("prefixItems", ())
        found = places[part] if part < len(places) else node.get("items")
    else:
        found = node.get("properties", {}).get(part)
    return resolved(found, schema) if isinstance(found, Mapping) else None


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""A valid example of a schema, and its types in words; both for messages to the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..types import JSON
from .coerce import follow

_MAX_DEPTH = 6


def valid(parameters: JSON, fits: Callable[[Any], bool]) -> JSON | None:
    """Arguments that fit: the required fields, or the first one; None when none is found."""
    made = _value("", parameters, parameters, 0)
    if not isinstance(made, dict):
        return None
    properties = parameters.get("properties")
    if not made and isinstance(properties, dict) and properties:
        name = next(iter(properties))
        made = {name: _value(name, properties[name], parameters, 1)}
    return made if fits(made) else None


def type_words(schema: Any, root: JSON, depth: int = 0) -> str:
    """The schema's type in words: `array of string`, `one of "a", "b"`, `integer or null`."""
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        schema = follow(schema, root)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return "any"
    if isinstance(schema.get("enum"), list):
        return "one of " + ", ".join(
            f'"{v}"' if isinstance(v, str) else str(v) for v in schema["enum"]
        )
    types = schema.get("type")
    if isinstance(types, list):
        return " or ".join(map(str, types))
    if types == "array" and isinstance(schema.get("items"), dict):
        return f"array of {type_words(schema['items'], root, depth + 1)}"
    if isinstance(types, str):
        return types + _range(schema)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        return " or ".join(type_words(choice, root, depth + 1) for choice in choices)
    return "any"


def _range(schema: JSON) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    words = [f">= {low}"] * (low is not None) + [f"<= {high}"] * (high is not None)
    return "".join(f" {word}" for word in words)


def _value(name: str, schema: Any, root: JSON, depth: int) -> Any:
    schema = follow(schema, root)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return "text"
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    for key in ("default", "const"):
        if schema.get(key) is not None:
            return schema[key]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list) and choices:
        return _value(name, choices[0], root, depth + 1)
    return _of_type(name, schema, root, depth)


def _of_type(name: str, schema: JSON, root: JSON, depth: int) -> Any:
    types = schema.get("type", "object" if "properties" in schema else "string")
    kind = next((t for t in types if t != "null"), "null") if isinstance(types, list) else types
    match kind:
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            item = _value(name, schema.get("items", {}), root, depth + 1)
            return [item] * max(1, min(int(schema.get("minItems", 1)), 3))
        case "object":
            properties = schema.get("properties") or {}
            needed = schema.get("required") or ()
            return {key: _value(key, properties.get(key), root, depth + 1) for key in needed}
        case _:
            return "text".ljust(min(int(schema.get("minLength", 0)), 40), "x")[
                : schema.get("maxLength", 40)
            ]


def _number(schema: JSON) -> Any:
    low, high = schema.get("minimum"), schema.get("maximum")
    over, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    for limit, step in ((low, 0), (over, 1)):
        if isinstance(limit, int | float) and limit + step > 1:
            return limit + step
    for limit, step in ((high, 0), (under, -1)):
        if isinstance(limit, int | float) and limit + step < 1:
            return limit + step
    return schema.get("multipleOf", 1)

"""Is a parameters schema sound? A hand-written walk; `runner skills check` adds the metaschema.

The full metaschema check takes 0.75 ms a schema, this one a twentieth of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from ..types import JSON
from . import regexes

MAX_DEPTH = 24
MAX_NODES = 1_000
MAX_UNIQUE = 100
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SCALARS = frozenset({"boolean", "integer", "null", "number", "string"})
_ONE = frozenset(
    {
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_COUNTS = frozenset(
    {
        "maxItems",
        "maxLength",
        "maxProperties",
        "minItems",
        "minLength",
        "minProperties",
        "maxContains",
        "minContains",
    }
)
_NUMBERS = frozenset({"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"})
_TEXTS = frozenset(
    {"title", "description", "format", "$comment", "$schema", "$anchor", "contentEncoding"}
)
_FORBIDDEN = frozenset({"$dynamicRef", "$recursiveRef"})
KNOWN = frozenset(
    _ONE
    | _LIST
    | _MAP
    | _COUNTS
    | _NUMBERS
    | _TEXTS
    | {"$ref", "$id", "type", "enum", "const"}
    | {"required", "pattern", "uniqueItems", "default", "examples", "dependentRequired"}
    | {"readOnly", "writeOnly", "deprecated", "contentMediaType", "contentSchema", "$vocabulary"}
)
_INSIDE = _ONE | _LIST | _MAP
Path = str
Part = tuple[JSON, Path, int]  # a schema, where it stands and how deep


def problems(schema: object) -> list[str]:
    """What makes the schema unusable, each with its path; empty when it is sound."""
    if not isinstance(schema, dict):
        return ["must be a table that describes an object"]
    found: list[str] = []
    if schema and schema.get("type") != "object":
        found.append(_root(schema))
    refers = False
    for count, (node, path, depth) in enumerate(_parts(schema)):
        if count > MAX_NODES or depth > MAX_DEPTH:
            return [*found, f"is too large: more than {MAX_NODES} parts or {MAX_DEPTH} levels"]
        for key, value in node.items():
            if (check := _CHECKS.get(key)) and (fault := check(value, node)):
                found.append(f"{path or '(root)'}: {fault}")
        if path and "$id" in node:
            found.append(f"{path}: '$id' stands only at the root")
        if "$ref" in node:
            refers = True
            if fault := _reference(node["$ref"], schema):
                found.append(f"{path or '(root)'}: {fault}")
    return found or (_cycles(schema) if refers else [])


def strange(schema: JSON) -> list[str]:
    """Keywords JSON Schema does not know, most likely misspelt; for `runner skills check`."""
    found = []
    for node, path, _ in _parts(schema):
        for key in node.keys() - KNOWN:
            near = difflib.get_close_matches(key, KNOWN, 1, 0.7)
            if near:
                found.append(
                    f"{path or '(root)'}: unknown keyword {key!r}; did you mean {near[0]!r}?"
                )
    return found


def normal(schema: JSON) -> JSON:
    """The schema as a model is given it: an empty one says that it takes an object."""
    if schema and "properties" in schema:
        return schema
    return {"type": "object", "properties": {}, **schema}


def _root(schema: JSON) -> str:
    if "type" not in schema:
        return "(root): 'type' is missing; write type = \"object\""
    return f"(root): 'type' must be \"object\", not {schema['type']!r}"


def _parts(schema: Any) -> list[Part]:
    """Every part that is a schema, each before those inside it; cut off past the limits."""
    found: list[Part] = []
    _collect(schema, "", 0, found)
    return found


def _collect(node: Any, path: Path, depth: int, found: list[Part]) -> None:
    if not isinstance(node, dict) or len(found) > MAX_NODES + 1:
        return
    found.append((node, path, depth))
    if depth > MAX_DEPTH:
        return
    for key, value in node.items():
        if key not in _INSIDE:
            continue
        if key in _ONE:
            _collect(value, f"{path}/{key}", depth + 1, found)
        elif key in _MAP and isinstance(value, dict):
            for name, child in value.items():
                _collect(child, f"{path}/{key}/{name}", depth + 1, found)
        elif key in _LIST and isinstance(value, list):
            for index, child in enumerate(value):
                _collect(child, f"{path}/{key}/{index}", depth + 1, found)


def _type(value: Any, _node: JSON) -> str:
    if isinstance(value, str) and value in TYPES:
        return ""
    for name in value if isinstance(value, list) and value else [value]:
        if name not in TYPES if isinstance(name, str) else True:
            near = difflib.get_close_matches(str(name), TYPES, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; use one of {', '.join(TYPES)}"
            return f"unknown type {name!r}{hint}"
    return ""


def _pattern(value: Any, _node: JSON) -> str:
    if not isinstance(value, str):
        return "'pattern' must be text"
    fault = regexes.fault(value)
    return f"pattern {value[:60]!r} {fault}" if fault else ""


def _map(value: Any, _node: JSON) -> str:
    if not isinstance(value, dict):
        return "must map names to schemas"
    for name, child in value.items():
        if not isinstance(child, (dict, bool)):
            return f"{name!r} must be a schema (a table), not {child!r:.40}"
    return ""


def _patterns(value: Any, node: JSON) -> str:
    return _map(value, node) or next((f for name in value if (f := _pattern(name, node))), "")


def _many(value: Any, _node: JSON) -> str:
    good = isinstance(value, list) and value and all(map(_is_schema, value))
    return "" if good else "must be a list of schemas with at least one"


def _one(value: Any, _node: JSON) -> str:
    return (
        "" if _is_schema(value) else f"must be a schema (a table) or a boolean, not {value!r:.40}"
    )


def _required(value: Any, _node: JSON) -> str:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return "'required' must be a list of names"
    if len(set(value)) == len(value):
        return ""
    twice = next(name for name in value if value.count(name) > 1)
    return f"'required' names {twice!r} twice"


def _count(value: Any, _node: JSON) -> str:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return "" if good else f"needs a whole number of at least 0, not {value!r}"


def _number(value: Any, _node: JSON) -> str:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value  # noqa: PLR0124  # NaN
    return "" if good else f"needs a number, not {value!r}"


def _multiple(value: Any, node: JSON) -> str:
    return _number(value, node) or ("" if value > 0 else "'multipleOf' must be above 0")


def _text(value: Any, _node: JSON) -> str:
    return "" if isinstance(value, str) else f"needs text, not {value!r:.40}"


def _enum(value: Any, _node: JSON) -> str:
    return (
        "" if isinstance(value, list) and value else "'enum' must be a list with at least one value"
    )


def _unique(value: Any, node: JSON) -> str:
    """jsonschema compares objects pair by pair: 3,000 of them take 11 s."""
    if not isinstance(value, bool):
        return "'uniqueItems' must be true or false"
    items = node.get("items")
    kind = items.get("type") if isinstance(items, dict) else None
    kinds = set(kind) if isinstance(kind, list) else {kind}
    most = node.get("maxItems")
    bounded = isinstance(most, int) and most <= MAX_UNIQUE
    if not value or bounded or kinds <= _SCALARS:
        return ""
    return f"'uniqueItems' needs items of a simple type, or maxItems of at most {MAX_UNIQUE}"


def _forbidden(value: Any, _node: JSON) -> str:
    return f"a reference to {value!r:.40} is not supported; use '$ref' to '#/$defs/NAME'"


def _reference(value: Any, schema: JSON) -> str:
    if not isinstance(value, str):
        return "'$ref' must be text"
    if value == "#":
        return "'$ref' to '#' makes the schema contain itself; name the part under '$defs'"
    if not value.startswith("#/"):
        return f"'$ref' to {value!r:.80} is not allowed; only '#/$defs/NAME' is, nothing is fetched"
    return (
        ""
        if isinstance(_target(value, schema), dict | bool)
        else f"'$ref' to {value!r}: no such part"
    )


def _target(reference: str, schema: Any) -> Any:
    node = schema
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdigit() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


def _cycles(schema: JSON) -> list[str]:
    """Parts that refer to themselves: a check would never end, and providers refuse them."""
    targets = {n["$ref"] for n, _, _ in _parts(schema) if "$ref" in n}
    leads = {
        target: {n["$ref"] for n, _, _ in _parts(_target(target, schema)) if "$ref" in n}
        for target in targets
    }
    for start in sorted(targets):
        seen: set[str] = set()
        todo = set(leads[start])
        while todo:
            target = todo.pop()
            if target == start:
                return [f"{start}: refers to itself; a tool's parameters cannot be recursive"]
            if target not in seen:
                seen.add(target)
                todo |= leads[target]
    return []


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


_CHECKS: dict[str, Callable[[Any, JSON], str]] = {
    "type": _type,
    "pattern": _pattern,
    "patternProperties": _patterns,
    "required": _required,
    "enum": _enum,
    "uniqueItems": _unique,
    "multipleOf": _multiple,
    **dict.fromkeys(_ONE, _one),
    **dict.fromkeys(_LIST, _many),
    **dict.fromkeys(_MAP - {"patternProperties"}, _map),
    **dict.fromkeys(_COUNTS, _count),
    **dict.fromkeys(_NUMBERS - {"multipleOf"}, _number),
    **dict.fromkeys(_TEXTS, _text),
    **dict.fromkeys(_FORBIDDEN, _forbidden),
}

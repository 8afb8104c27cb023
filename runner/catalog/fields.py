"""Check a manifest against the shipped schema: fast, and with messages for its author.

The schema uses few keywords, so it is turned into plain functions once: 20 times faster than a
general validator, which `runner skills check` still runs.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

Check = Callable[[Any, str, list[str]], None]
KEYWORDS = frozenset(
    {
        "$schema",
        "$defs",
        "$ref",
        "title",
        "description",
        "type",
        "required",
        "additionalProperties",
        "properties",
        "items",
        "maxItems",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "const",
        "enum",
    }
)
_SHOWN = 80
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def problems(document: object, form: str) -> list[str]:
    """What is wrong with a manifest, by key; `form` is "" for skill.toml, "descriptor" for JSON."""
    found: list[str] = []
    _check_for(form)(document, "", found)
    return found


@cache
def schema() -> dict[str, Any]:
    """The manifest schema shipped with the package."""
    text = Path(__file__).with_name("manifest.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _check_for(form: str) -> Check:
    return _compile(schema()["$defs"][form] if form else schema())


@cache
def _defined(name: str) -> Check:
    return _compile(schema()["$defs"][name])


def _compile(node: dict[str, Any]) -> Check:
    if "$ref" in node:
        return _defined(node["$ref"].rpartition("/")[2])
    expected = node["description"]
    tests = _tests(node)
    deeper = _deeper(node)

    def check(value: Any, key: str, found: list[str]) -> None:
        for test in tests:
            if not test(value):
                found.append(f"{_name(key)} must be {expected}, not {_show(value)}")
                return
        if deeper:
            deeper(value, key, found)

    return check


def _tests(node: dict[str, Any]) -> list[Callable[[Any], bool]]:
    tests: list[Callable[[Any], bool]] = []
    if "const" in node:
        tests.append(lambda value: value == node["const"] and not isinstance(value, bool))
    if "enum" in node:
        tests.append(lambda value: isinstance(value, str) and value in node["enum"])
    if "type" in node:
        tests.append(_type_test(node["type"]))
    for keyword, test in _LIMITS.items():
        if keyword in node:
            tests.append(test(node[keyword]))
    return tests


def _type_test(types: str | list[str]) -> Callable[[Any], bool]:
    if isinstance(types, str):
        return _TYPES[types]
    allowed = [_TYPES[name] for name in types]
    return lambda value: any(test(value) for test in allowed)


def _matches(pattern: str) -> Callable[[Any], bool]:
    search = re.compile(pattern.removesuffix("$") + (r"\Z" if pattern.endswith("$") else "")).search
    return lambda value: not isinstance(value, str) or search(value) is not None


_LIMITS: dict[str, Callable[[Any], Callable[[Any], bool]]] = {
    "pattern": _matches,
    "minLength": lambda limit: lambda value: not isinstance(value, str) or len(value) >= limit,
    "maxLength": lambda limit: lambda value: not isinstance(value, str) or len(value) <= limit,
    "maxItems": lambda limit: lambda value: len(value) <= limit,
    "minimum": lambda limit: lambda value: isinstance(value, str) or value >= limit,
    "maximum": lambda limit: lambda value: isinstance(value, str) or value <= limit,
    "exclusiveMinimum": lambda limit: lambda value: isinstance(value, str) or value > limit,
}


def _deeper(node: dict[str, Any]) -> Check | None:
    if "items" in node:
        each = _compile(node["items"])

        def items(value: Any, key: str, found: list[str]) -> None:
            for index, item in enumerate(value):
                each(item, f"{key}[{index}]", found)

        return items
    return _keys(node) if "properties" in node else None


def _keys(node: dict[str, Any]) -> Check:
    known = {name: _compile(child) for name, child in node["properties"].items()}
    required = node.get("required", ())

    def keys(value: Any, key: str, found: list[str]) -> None:
        prefix = f"{key}." if key else ""
        for name, item in value.items():
            if name in known:
                known[name](item, f"{prefix}{name}", found)
            else:
                found.append(_unknown(f"{prefix}{name}", name, known))
        found.extend(
            f"{_name(prefix + name)} is missing; it must be {_expected(node, name)}"
            for name in required
            if name not in value
        )

    return keys


def _expected(node: dict[str, Any], name: str) -> str:
    child = node["properties"][name]
    if "$ref" in child:
        child = schema()["$defs"][child["$ref"].rpartition("/")[2]]
    return str(child["description"])


def _unknown(key: str, name: str, known: dict[str, Check]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    if near:
        return f"unknown field {key!r}; did you mean {near[0]!r}?"
    return f"unknown field {key!r}; known are {', '.join(sorted(known))}"


def _name(key: str) -> str:
    return f"'{key}'" if key else "the whole"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

"""Lossless changes of type, only where the schema admits nothing but the other type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ..types import JSON

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_MAX_NUMBER_CHARS = 400
_MAX_DEPTH = 8
_NAMES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_MISSING = object()
_SETTLED = frozenset([int, bool, type(None)])  # nothing is made of these


@dataclass(slots=True, eq=False)
class Plan:
    """What may be changed at one place of a schema, and below it."""

    target: str = ""
    fields: dict[str, Plan] = field(default_factory=dict)
    rest: Plan | None = None
    items: Plan | None = None

    @property
    def idle(self) -> bool:
        """Nothing can change here or below."""
        return self.target not in _READERS and not self.fields and not self.rest and not self.items

    def apply(self, value: Any, path: str, changed: list[str]) -> Any:
        """The value with every change made; the same object when there was none."""
        if type(value) is str:
            value = self._from_text(value, path, changed)
        elif type(value) is float and self.target == "integer" and value.is_integer():
            changed.append(path)
            return int(value)
        if type(value) is dict and (self.fields or self.rest is not None):
            return self._apply_fields(value, path, changed)
        if type(value) is list and self.items is not None:
            return self._apply_items(value, self.items, path, changed)
        return value

    def _from_text(self, text: str, path: str, changed: list[str]) -> Any:
        read = _READERS.get(self.target)
        value = read(text) if read else _MISSING
        if value is _MISSING:
            return text
        changed.append(path)
        return value

    def _apply_fields(self, value: JSON, path: str, changed: list[str]) -> JSON:
        new = value
        for key, part in value.items():
            if type(part) in _SETTLED:
                continue
            plan = self.fields.get(key, self.rest)
            if plan is None or plan.idle:
                continue
            after = plan.apply(part, join(path, key), changed)
            if after is not part:
                new = dict(value) if new is value else new
                new[key] = after
        return new

    def _apply_items(self, value: list[Any], items: Plan, path: str, changed: list[str]) -> Any:
        new = [items.apply(part, f"{path}[{i}]", changed) for i, part in enumerate(value)]
        return new if any(a is not b for a, b in zip(new, value, strict=True)) else value


def join(path: str, key: str) -> str:
    """The path of a field: `filter.size`, or `filter["odd key"]`."""
    if not re.fullmatch(r"[\w$-]+", key):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def plan(schema: Any, root: JSON) -> Plan:
    """The plan of a whole schema; built once, used for every call."""
    return _build(schema, root, {})


def follow(schema: Any, root: JSON) -> Any:
    """The schema behind a local `$ref`, or the one choice beside null."""
    for _ in range(32):
        if not isinstance(schema, dict):
            return schema
        if isinstance(schema.get("$ref"), str):
            schema = _pointed(schema["$ref"], root)
            continue
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not isinstance(choices, list):
            return schema
        real = [choice for choice in choices if not _is_null(choice)]
        if len(real) != 1:
            return schema
        schema = real[0]
    return {}


def admitted(schema: Any, root: JSON, depth: int = 0) -> frozenset[str] | None:
    """The JSON types a schema admits; None when it admits any."""
    schema = follow(schema, root)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    if "type" in schema:
        types = schema["type"]
        return frozenset([types] if isinstance(types, str) else map(str, types))
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return frozenset(map(type_name, values))
    choices = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(choices, list):
        return None
    sets = [admitted(choice, root, depth + 1) for choice in choices]
    return None if None in sets else frozenset().union(*filter(None, sets))


def type_name(value: Any) -> str:
    """The JSON name of a value's type."""
    return _NAMES.get(type(value), type(value).__name__)


def read_json(text: str) -> Any:
    """Strict JSON: no NaN, no key twice; `ValueError` otherwise."""
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _build(schema: Any, root: JSON, known: dict[int, Plan]) -> Plan:
    schema = follow(schema, root)
    if not isinstance(schema, dict) or not schema:
        return Plan()
    if id(schema) in known:
        return known[id(schema)]
    made = known[id(schema)] = Plan(_target(admitted(schema, root)))
    properties = schema.get("properties")
    if isinstance(properties, dict):
        made.fields = {key: _build(part, root, known) for key, part in properties.items()}
    if isinstance(schema.get("additionalProperties"), dict):
        made.rest = _build(schema["additionalProperties"], root, known)
    if isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
        made.items = _build(schema["items"], root, known)
    return made


def _target(types: frozenset[str] | None) -> str:
    if types is None:
        return ""
    real = types - {"null"}
    if real == {"integer", "number"}:
        return "number"
    return next(iter(real)) if len(real) == 1 else ""


def _pointed(reference: str, root: JSON) -> Any:
    if not reference.startswith("#"):
        return {}
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found if found is not None else {}


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _to_integer(text: str) -> Any:
    return int(text) if _INTEGER.fullmatch(text) else _MISSING


def _to_number(text: str) -> Any:
    if len(text) > _MAX_NUMBER_CHARS or not _NUMBER.fullmatch(text):
        return _MISSING
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text)
    exact = math.isfinite(number) and Decimal(text) == Decimal(repr(number))
    return number if exact else _MISSING


def _to_boolean(text: str) -> Any:
    return {"true": True, "false": False}.get(text, _MISSING)


def _to_container(kind: type, opening: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if not text.lstrip().startswith(opening):
            return _MISSING
        try:
            value = read_json(text)
        except ValueError:
            return _MISSING
        return value if isinstance(value, kind) else _MISSING

    return read


_READERS: dict[str, Callable[[str], Any]] = {
    "integer": _to_integer,
    "number": _to_number,
    "boolean": _to_boolean,
    "array": _to_container(list, "["),
    "object": _to_container(dict, "{"),
}


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> JSON:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found

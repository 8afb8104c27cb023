"""A quick yes or no for the common small schemas, without importing jsonschema.

`compiled` gives None for a schema that uses anything not listed here; jsonschema then decides. Where
it gives a check, the check agrees with jsonschema on every JSON value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

Check = Callable[[Any], bool]

_NOTES = frozenset(
    (
        *("title", "description", "default", "examples", "format", "deprecated", "readOnly"),
        *("writeOnly", "$schema", "$comment", "$defs", "definitions"),
    )
)
_MAX_DEPTH = 12


class _Unsupported(Exception):
    """The schema needs jsonschema."""


def compiled(schema: Any) -> Check | None:
    """The check for this schema; None when it needs jsonschema."""
    try:
        return _check(schema, 0)
    except _Unsupported:
        return None


def _check(schema: Any, depth: int) -> Check:
    if schema is True:
        return _always
    if schema is False:
        return _never
    if not isinstance(schema, dict) or depth > _MAX_DEPTH or "$id" in schema:
        raise _Unsupported
    checks: list[Check] = []
    if _OBJECT_KEYS & schema.keys():
        checks.append(_object(schema, depth))
    for key, value in schema.items():
        if key in _MAKERS:
            checks.append(_MAKERS[key](value, depth))
        elif key not in _NOTES and key not in _OBJECT_KEYS:
            raise _Unsupported
    return _all(checks)


def _all(checks: list[Check]) -> Check:
    if not checks:
        return _always
    if len(checks) == 1:
        return checks[0]

    def check(value: Any) -> bool:
        for part in checks:  # noqa: SIM110 - a plain loop is three times as quick as all()
            if not part(value):
                return False
        return True

    return check


def _always(_value: Any) -> bool:
    return True


def _never(_value: Any) -> bool:
    return False


def is_integer(value: Any) -> bool:
    """A whole JSON number, `5.0` included; a boolean is none."""
    kind = type(value)
    return kind is int or (kind is float and isfinite(value) and value.is_integer())


def is_number(value: Any) -> bool:
    """A finite JSON number; a boolean is none."""
    kind = type(value)
    return kind is int or (kind is float and isfinite(value))


_TYPES: Mapping[str, Check] = {
    "string": lambda value: type(value) is str,
    "integer": is_integer,
    "number": is_number,
    "boolean": lambda value: value is True or value is False,
    "null": lambda value: value is None,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}


def _type(names: Any, _depth: int) -> Check:
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list) or not all(
        isinstance(name, str) and name in _TYPES for name in listed
    ):
        raise _Unsupported
    if len(listed) == 1:
        return _TYPES[listed[0]]
    checks = [_TYPES[name] for name in listed]
    return lambda value: any(check(value) for check in checks)


def _enum(values: Any, _depth: int) -> Check:
    if not isinstance(values, list) or not all(_is_scalar(value) for value in values):
        raise _Unsupported
    known = frozenset((type(value) is bool, value) for value in values)

    def check(value: Any) -> bool:
        return _is_scalar(value) and (type(value) is bool, value) in known

    return check


def _is_scalar(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool)


def _const(value: Any, depth: int) -> Check:
    return _enum([value], depth)


def _bound(compare: Callable[[Any, Any], bool]) -> Callable[[Any, int], Check]:
    def make(limit: Any, _depth: int) -> Check:
        if not is_number(limit):
            raise _Unsupported
        return lambda value: not is_number(value) or compare(value, limit)

    return make


def _length(
    kind: type[str | list[Any] | dict[str, Any]], compare: Callable[[int, int], bool]
) -> Callable[[Any, int], Check]:
    def make(limit: Any, _depth: int) -> Check:
        if type(limit) is not int:
            raise _Unsupported
        return lambda value: type(value) is not kind or compare(len(value), limit)

    return make


def _pattern(pattern: Any, _depth: int) -> Check:
    try:
        search = re.compile(pattern).search
    except (re.error, TypeError, RecursionError) as error:
        raise _Unsupported from error
    return lambda value: type(value) is not str or search(value) is not None


def _items(schema: Any, depth: int) -> Check:
    check = _check(schema, depth + 1)
    return lambda value: type(value) is not list or all(map(check, value))


def _any_of(schemas: Any, depth: int) -> Check:
    checks = _checks(schemas, depth)
    return lambda value: any(check(value) for check in checks)


def _one_of(schemas: Any, depth: int) -> Check:
    checks = _checks(schemas, depth)
    return lambda value: sum(check(value) for check in checks) == 1


def _all_of(schemas: Any, depth: int) -> Check:
    return _all(_checks(schemas, depth))


def _checks(schemas: Any, depth: int) -> list[Check]:
    if not isinstance(schemas, list) or not schemas:
        raise _Unsupported
    return [_check(schema, depth + 1) for schema in schemas]


def _object(schema: Mapping[str, Any], depth: int) -> Check:
    """`properties`, `required` and `additionalProperties` in one pass over the value."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise _Unsupported
    if not all(isinstance(key, str) for key in required):
        raise _Unsupported
    fields = {key: _check(part, depth + 1) for key, part in properties.items()}
    rest = _check(schema.get("additionalProperties", True), depth + 1)
    needed = frozenset(required)

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return True
        for key, part in value.items():
            if not fields.get(key, rest)(part):
                return False
        return needed <= value.keys()

    return check


_OBJECT_KEYS = frozenset(("properties", "required", "additionalProperties"))
_MAKERS: Mapping[str, Callable[[Any, int], Check]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(lambda value, limit: value >= limit),
    "maximum": _bound(lambda value, limit: value <= limit),
    "exclusiveMinimum": _bound(lambda value, limit: value > limit),
    "exclusiveMaximum": _bound(lambda value, limit: value < limit),
    "minLength": _length(str, lambda have, limit: have >= limit),
    "maxLength": _length(str, lambda have, limit: have <= limit),
    "minItems": _length(list, lambda have, limit: have >= limit),
    "maxItems": _length(list, lambda have, limit: have <= limit),
    "minProperties": _length(dict, lambda have, limit: have >= limit),
    "maxProperties": _length(dict, lambda have, limit: have <= limit),
    "pattern": _pattern,
    "items": _items,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
}

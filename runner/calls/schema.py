"""Check a call's arguments against its tool's schema, and say what is wrong in the model's words."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from ..types import JSON
from . import accept, coerce, example
from .keys import canonical

MAX_PROBLEMS = 5
MAX_MESSAGE_CHARS = 590
_MAX_VALUE_CHARS = 80
_MAX_SHOWN_DEPTH = 4
_MAX_CHECKERS = 1024


class Checker:
    """Checks arguments against one schema. Built once per schema, used from any thread.

    Never raises, whatever the schema or the arguments are: what cannot be checked is a problem.
    """

    def __init__(self, parameters: JSON) -> None:
        self._parameters = parameters
        self._accepts = accept.compiled(parameters)
        self._plan = coerce.plan(parameters, parameters)
        self._validator: Any = None
        self._has_defaults = '"default"' in canonical(parameters)

    def fits(self, arguments: Any) -> bool:
        """Do the arguments fit, once coerced?"""
        return not self.problems(self.coerced(arguments)[0])

    def problems(self, arguments: Any) -> list[str]:
        """At most five sentences, each with the path, what was expected and what was given."""
        if type(arguments) is not dict:
            return [f"arguments: expected an object, got {_shown(arguments)}"]
        try:
            if self._accepts is not None and self._accepts(arguments):
                return []
            return self._explained(arguments)
        except RecursionError:
            return ["arguments: nested too deeply to be checked; send a flatter value"]

    def coerced(self, arguments: Any) -> tuple[Any, tuple[str, ...]]:
        """The arguments after every lossless change, and the paths that changed."""
        changed: list[str] = []
        try:
            return self._plan.apply(arguments, "", changed), tuple(changed)
        except RecursionError:
            return arguments, ()

    def with_defaults(self, arguments: JSON) -> JSON:
        """The arguments with the schema's defaults filled in, to compare calls by meaning."""
        if not self._has_defaults:
            return arguments
        try:
            filled: JSON = _filled(arguments, self._parameters, self._parameters)
        except RecursionError:
            return arguments
        return filled

    def _explained(self, arguments: JSON) -> list[str]:
        if self._validator is None:
            self._validator = _validator_class()(self._parameters, registry=_no_registry())
        try:
            return _sentences(self._validator.iter_errors(arguments), self._parameters)
        except _schema_faults() as error:
            reason = _cut(f"{type(error).__name__}: {error}", _MAX_VALUE_CHARS)
            return [f"arguments: the tool's own schema cannot be used ({reason})"]


class _Checkers:
    """The checkers in use, the oldest dropped first. One per distinct schema."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._by_object: OrderedDict[int, tuple[JSON, Checker]] = OrderedDict()
        self._by_text: OrderedDict[str, Checker] = OrderedDict()

    def get(self, parameters: JSON) -> Checker:
        known = self._by_object.get(id(parameters))
        if known is not None and known[0] is parameters:
            return known[1]
        text = canonical(parameters)
        with self._lock:
            made = self._by_text.get(text)
            if made is None:
                made = self._by_text[text] = Checker(parameters)
            self._by_object[id(parameters)] = (parameters, made)
            for kept in (self._by_object, self._by_text):
                while len(kept) > self._limit:
                    kept.popitem(last=False)
        return made


_checkers = _Checkers(_MAX_CHECKERS)


def checker(parameters: JSON) -> Checker:
    """The checker of a schema; equal schemas share one."""
    return _checkers.get(parameters)


def describe(
    tool_name: str, parameters: JSON, problems: Sequence[str], examples: Sequence[JSON] = ()
) -> str:
    """What the model is told: every problem, the accepted fields and a valid example; < 600 chars."""
    each = max(70, 330 // max(1, len(problems)))
    lines = [f"invalid arguments for {_cut(tool_name, 64)}:"]
    lines += [f"- {_cut(problem, each)}" for problem in problems[:MAX_PROBLEMS]]
    fits = checker(parameters).fits
    shown = next((one for one in examples if fits(one)), None) or example.valid(parameters, fits)
    fields = _fields(parameters)
    for line in (f"Example: {_json(shown)}" if shown is not None else "", f"Accepted: {fields}"):
        room = MAX_MESSAGE_CHARS - len("\n".join(lines)) - 1
        if line and (len(line) <= room or line.startswith("Accepted")):
            lines.append(_cut(line, max(room, 20)))
    return "\n".join(lines)[:MAX_MESSAGE_CHARS]


def _fields(parameters: JSON) -> str:
    properties = parameters.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "no fields"
    required = parameters.get("required") or ()
    words = [
        f"{name} ({example.type_words(part, parameters)}{', required' if name in required else ''})"
        for name, part in sorted(properties.items(), key=lambda item: item[0] not in required)
    ]
    return ", ".join(words)


def _sentences(errors: Iterable[Any], root: JSON) -> list[str]:
    """One sentence per place; unknown and missing fields of one place are named together."""
    found: dict[str, str] = {}
    for number, error in enumerate(errors):
        path = _path(error.absolute_path)
        expected = _expected(error, root)
        if error.validator in ("required", "additionalProperties"):
            known = found.get(f"fields {path}")
            if known is not None and expected in known:
                continue
            found[f"fields {path}"] = f"{known}; {expected}" if known else f"{path}: {expected}"
        else:
            given = _shown(error.instance)
            found[f"{number} {path}"] = f"{path}: expected {expected}, got {given}"
        if len(found) > MAX_PROBLEMS:
            break
    return list(found.values())[:MAX_PROBLEMS]


def _expected(error: Any, root: JSON) -> str:
    limit = error.validator_value
    make = _EXPECTED.get(error.validator)
    if make is not None:
        return make(limit)
    match error.validator:
        case "required":
            return _missing(error, root)
        case "additionalProperties" | "unevaluatedProperties" if limit is False:
            return _unknown(error)
        case "anyOf" | "oneOf":
            return _cut(example.type_words(error.schema, root), 160)
        case "multipleOf":
            return f"a multiple of {limit}"
        case _:
            return _cut(f"a value that passes {error.validator} {_json(limit)}", 120)


_EXPECTED: dict[str, Callable[[Any], str]] = {
    "type": lambda limit: limit if isinstance(limit, str) else " or ".join(limit),
    "enum": lambda limit: _cut("one of " + ", ".join(map(_json, limit)), 160),
    "const": lambda limit: _cut(_json(limit), 120),
    "minimum": lambda limit: f"a number >= {limit}",
    "maximum": lambda limit: f"a number <= {limit}",
    "exclusiveMinimum": lambda limit: f"a number > {limit}",
    "exclusiveMaximum": lambda limit: f"a number < {limit}",
    "minLength": lambda limit: f"text of at least {limit} character{'s' * (limit != 1)}",
    "maxLength": lambda limit: f"text of at most {limit} character{'s' * (limit != 1)}",
    "pattern": lambda limit: f"text that matches the pattern {_cut(limit, 80)}",
    "minItems": lambda limit: f"an array of at least {limit} item{'s' * (limit != 1)}",
    "maxItems": lambda limit: f"an array of at most {limit} item{'s' * (limit != 1)}",
    "uniqueItems": lambda _limit: "an array without repeated items",
}


def _missing(error: Any, root: JSON) -> str:
    absent = [name for name in error.validator_value if name not in error.instance]
    properties = error.schema.get("properties", {})
    words = [f"{name} ({example.type_words(properties.get(name, {}), root)})" for name in absent]
    return _cut("missing required " + _plural("field", absent) + " " + ", ".join(words), 200)


def _unknown(error: Any) -> str:
    import difflib

    known = list(error.schema.get("properties", {}))
    patterns = list(error.schema.get("patternProperties", {}))
    unknown = [
        name
        for name in error.instance
        if name not in known and not any(re.search(p, name) for p in patterns)
    ]
    words = []
    for name in unknown[:MAX_PROBLEMS]:
        near = difflib.get_close_matches(name[:64], known, 1)
        words.append(_json(_cut(name, 40)) + (f" (did you mean {near[0]}?)" if near else ""))
    return _cut(f"unknown {_plural('field', unknown)} " + ", ".join(words), 200)


def _plural(word: str, items: Sequence[str]) -> str:
    return word if len(items) == 1 else word + "s"


def _path(parts: Iterable[str | int]) -> str:
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else coerce.join(path, part)
    return _cut(path, 120) or "arguments"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        size = len(value)
        return f"{coerce.type_name(value)} of {size}: {_cut(_json(value), _MAX_VALUE_CHARS)}"
    return f"{_cut(_json(value), _MAX_VALUE_CHARS)} ({coerce.type_name(value)})"


def _json(value: Any) -> str:
    try:
        return json.dumps(_clipped(value, 0), ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return coerce.type_name(value)


def _clipped(value: Any, depth: int) -> Any:
    """A small copy, so that a message about a huge value stays cheap."""
    if isinstance(value, str):
        return value[:200]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**300:
        return "a huge number"
    if isinstance(value, dict):
        items = list(value.items())[:20] if depth < _MAX_SHOWN_DEPTH else []
        return {str(key)[:100]: _clipped(part, depth + 1) for key, part in items}
    if isinstance(value, list):
        return [
            _clipped(part, depth + 1) for part in (value[:20] if depth < _MAX_SHOWN_DEPTH else [])
        ]
    return value


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _filled(value: Any, schema: Any, root: JSON) -> Any:
    schema = coerce.follow(schema, root)
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_filled(part, schema["items"], root) for part in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    filled = {key: _filled(part, properties.get(key), root) for key, part in value.items()}
    for key, part in properties.items():
        if key not in filled and isinstance(part, dict) and "default" in part:
            filled[key] = part["default"]
    return filled


# jsonschema takes 70 ms to import: only schemas the quick check cannot do, and wrong calls, need it.


@cache
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator, validators

    finite = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"number": _is_number, "integer": _is_integer}
    )
    return validators.extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, {"uniqueItems": _unique_items}, type_checker=finite
    )


@cache
def _no_registry() -> Any:
    """Nothing is ever fetched or read for a `$ref`: by default jsonschema would."""
    from referencing import Registry

    return Registry()


@cache
def _schema_faults() -> tuple[type[Exception], ...]:
    from jsonschema.exceptions import UnknownType
    from referencing.exceptions import Unresolvable

    own = (re.error, AttributeError, TypeError, ValueError, ArithmeticError, LookupError)
    return (UnknownType, Unresolvable, *own)


def _is_number(_checker: Any, value: Any) -> bool:
    return accept.is_number(value)


def _is_integer(_checker: Any, value: Any) -> bool:
    return accept.is_integer(value)


def _unique_items(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """Linear; jsonschema's own compares every pair (11 s for 3,000 objects)."""
    from jsonschema.exceptions import ValidationError

    if wanted and validator.is_type(instance, "array"):
        texts = [canonical(part) for part in instance]
        if len(set(texts)) != len(texts):
            yield ValidationError("repeated items")

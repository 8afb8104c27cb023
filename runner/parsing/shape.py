"""Recognise the call in a decoded JSON value, in every spelling models use."""

from __future__ import annotations

import re
from typing import Any

from .names import resolve_name
from .nouns import Answer, Fault, Found, RawCall, Reading, Tools

_EXPLICIT = (
    "tool",
    "tool_name",
    "toolname",
    "function",
    "function_name",
    "recipient_name",
    "skill",
)
_NAMES = (*_EXPLICIT, "name", "action")
_ARGUMENTS = ("params", "arguments", "args", "parameters", "tool_input", "action_input")
_INPUTS = ("input", "inputs", "kwargs")
_LISTS = ("tool_calls", "toolcalls", "calls", "tool_uses", "function_calls")
_SINGLES = ("function_call", "tool_call", "toolcall", "functioncall", "command", "call", "tool_use")
_CARRIED = frozenset({"id", "type", "index", "tool_call_id", "call_id", "role", "content"})
_RECORDED = frozenset({"result", "output", "results", "response", "observation", "returned"})
_MISSING = object()


def calls_in(value: Any, tools: Tools, *, marked: bool = False) -> Reading:
    """Read calls from a decoded value: `Found`, a `Fault`, an `Answer`, or None for plain data.

    `marked`: the value stood within call markers, so it is meant as a call.
    """
    if isinstance(value, list):
        return _many(value, tools, marked)
    if not isinstance(value, dict) or not value:
        return _missing(marked) if marked else None
    keys = {_key(key): key for key in value}
    for wrapper in _LISTS:
        inner = value.get(keys.get(wrapper, ""))
        if isinstance(inner, list) and inner:
            return _many(inner, tools, True)
    for wrapper in (*_SINGLES, "function", "tool", "action"):
        inner = value.get(keys.get(wrapper, ""))
        if isinstance(inner, dict):
            return _nested(value, inner, keys, tools, marked)
    return _one(value, keys, tools, marked)


def _key(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower().replace("-", "_")


def _many(items: list[Any], tools: Tools, marked: bool) -> Reading:
    readings = [calls_in(item, tools, marked=marked) for item in items]
    found = [reading for reading in readings if isinstance(reading, Found)]
    calls = tuple(call for reading in found for call in reading.calls)
    if found and len(found) == len(items):
        return Found(calls, 0, 0)
    faults = [reading for reading in readings if isinstance(reading, Fault)]
    if faults and len(faults) + len(found) == len(items):
        return Fault(faults[0].reason, faults[0].detail, calls=(*calls, *faults[0].calls))
    if any(resolve_name(call.name, tools) for call in calls):
        return Fault("ambiguous", "The list holds calls beside other things.", calls=calls)
    return _missing(marked) if marked else None


def _nested(
    value: dict[str, Any], inner: dict[str, Any], keys: dict[str, str], tools: Tools, marked: bool
) -> Reading:
    outer = _first(value, keys, _ARGUMENTS)
    if outer is not _MISSING and _first(inner, {_key(k): k for k in inner}, _ARGUMENTS) is _MISSING:
        return _one({**inner, "arguments": outer}, {_key(k): k for k in (*inner, "arguments")}, tools, marked)  # fmt: skip
    reading = calls_in(inner, tools, marked=marked)
    if reading is None and marked:
        return _missing(marked)
    return reading


def _first(value: dict[str, Any], keys: dict[str, str], names: tuple[str, ...]) -> Any:
    return next((value[keys[name]] for name in names if name in keys), _MISSING)


def _one(value: dict[str, Any], keys: dict[str, str], tools: Tools, marked: bool) -> Reading:
    name_key = next((key for key in _NAMES if key in keys), None)
    arguments_key = next((key for key in (*_ARGUMENTS, *_INPUTS) if key in keys), None)
    if name_key is None:
        return _nameless(value, keys, arguments_key, tools, marked)
    name = value[keys[name_key]]
    if not isinstance(name, str) or not name.strip():
        return _bad_name(name_key, arguments_key, marked)
    if name_key == "action" and arguments_key and name.strip().lower().replace("_", " ") == "final answer":  # fmt: skip
        answer = value[keys[arguments_key]]
        return Answer("react_final", answer if isinstance(answer, str) else None)
    known = resolve_name(name, tools)
    if arguments_key is None:
        rest = {key: item for key, item in value.items() if key != keys[name_key]}
        return _flat(name, rest, tools, marked) if marked or name_key in _EXPLICIT else None
    arguments = value[keys[arguments_key]]
    call = RawCall(name, arguments)
    foreign = set(keys) - _CARRIED - {name_key, arguments_key}
    if known is None:
        return _unknown(call, name_key, arguments_key, foreign, marked)
    if foreign & _RECORDED:
        return Fault("ambiguous", "The object holds a call and its result.", calls=(call,))
    if looks_like_schema(arguments):
        return Answer("schema_echo")
    if name_key in {"name", "action"} and not isinstance(arguments, (dict, str, type(None))):
        return Fault("invalid_arguments", "The arguments must be one JSON object.", calls=(call,))
    return Found((call,), 0, 0)


def looks_like_schema(arguments: Any) -> bool:
    """Say whether the arguments are a JSON Schema, as in an echoed tool definition."""
    return (
        isinstance(arguments, dict)
        and arguments.get("type") == "object"
        and isinstance(arguments.get("properties"), dict)
    )


def _unknown(
    call: RawCall, name_key: str, arguments_key: str, foreign: set[str], marked: bool
) -> Reading:
    explicit = name_key in _EXPLICIT or arguments_key in {"tool_input", "action_input"}
    plain = name_key == "name" and arguments_key in _ARGUMENTS and not foreign
    if looks_like_schema(call.arguments) and not marked:
        return Answer("schema_echo")
    if marked or explicit or (plain and isinstance(call.arguments, (dict, str))):
        return Fault("unknown_tool", f"There is no tool named {call.name!r}.", calls=(call,))
    return None


def _bad_name(name_key: str, arguments_key: str | None, marked: bool) -> Reading:
    if marked or (name_key in _EXPLICIT and arguments_key is not None):
        return Fault("malformed", "The tool's name must be a non-empty string.")
    return None


def _flat(name: str, rest: dict[str, Any], tools: Tools, marked: bool) -> Reading:
    """Read arguments that stand beside a name whose key leaves no doubt."""
    known = resolve_name(name, tools)
    if known is None:
        alone = all(_key(key) in _CARRIED for key in rest)
        fault = Fault(
            "unknown_tool", f"There is no tool named {name!r}.", calls=(RawCall(name, rest),)
        )
        return fault if marked or alone else None
    properties = tools[known].get("properties", {})
    arguments = {
        key: item for key, item in rest.items() if key in properties or _key(key) not in _CARRIED
    }
    if marked or all(key in properties for key in arguments):
        return Found((RawCall(known, arguments),), 0, 0)
    return None


def _nameless(
    value: dict[str, Any],
    keys: dict[str, str],
    arguments_key: str | None,
    tools: Tools,
    marked: bool,
) -> Reading:
    if len(value) == 1:
        name, arguments = next(iter(value.items()))
        if name in tools and isinstance(arguments, dict):
            return Found((RawCall(name, arguments),), 0, 0)
    if arguments_key in {"params", "arguments"} and set(keys) - _CARRIED == {arguments_key}:
        return _missing(True)
    return _missing(marked) if marked else None


def _missing(marked: bool) -> Fault:
    detail = "The call names no tool." if marked else "No tool is named."
    return Fault("missing_name", detail)

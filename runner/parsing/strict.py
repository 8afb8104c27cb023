"""Decode JSON to the letter: no duplicate keys, no NaN, no endless numbers, no deep nesting."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from .nouns import Unreadable
from .pattern import pattern
from .scan import MAX_DEPTH

_STRING = pattern(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_BRACKETS = pattern(r"[^{}\[\]]++")
_MAX_ENCODINGS = 3


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        name = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Unreadable("duplicate_key", f"The key {name!r} occurs twice in one object.")
    return found


def _finite(raw: str) -> float:
    value = float(raw)
    if math.isinf(value):
        raise Unreadable("non_finite", f"The number {raw[:40]} is too large.")
    return value


def _no_constant(raw: str) -> Any:
    raise Unreadable("non_finite", f"{raw} is not JSON; send a finite number.")


DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_finite, parse_constant=_no_constant
)


def too_deep(text: str) -> bool:
    """Say whether brackets outside strings are nested deeper than allowed."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    raw = text.encode("utf-8", "surrogatepass").translate(None, _NO_BRACKETS)
    if _reduced(raw.decode("ascii")) == "":
        return False
    rest = _reduced(_BRACKETS.sub("", _STRING.sub("", text)))
    return _unbalanced_depth(rest) > MAX_DEPTH or "{}" in rest or "[]" in rest


def _reduced(brackets: str) -> str:
    """Take innermost pairs away, as often as nesting is allowed."""
    for _ in range(MAX_DEPTH):
        shorter = brackets.replace("{}", "").replace("[]", "")
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    return brackets


def _unbalanced_depth(brackets: str) -> int:
    depth = deepest = 0
    for bracket in brackets:
        depth += 1 if bracket in "{[" else -1
        deepest = max(deepest, depth)
        if deepest > MAX_DEPTH:
            break
    return deepest


def decode(text: str) -> Any:
    """Decode the whole text, or raise `Unreadable` with the reason and the place."""
    if too_deep(text):
        raise Unreadable("nesting_limit", f"Brackets are nested deeper than {MAX_DEPTH}.")
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Unreadable("malformed", f"Not valid JSON: {error.msg}, {place}.", error.pos) from None
    except ValueError:
        raise Unreadable("number_limit", "A number has more digits than can be read.") from None
    except RecursionError:
        raise Unreadable("nesting_limit", "Brackets are nested too deeply.") from None


def read_arguments(raw: str) -> dict[str, Any] | str:
    """Read a native call's argument text: the object, or one sentence that says why not."""
    value: Any = raw
    try:
        for _ in range(_MAX_ENCODINGS):
            if not isinstance(value, str):
                break
            text = value.strip()
            value = decode(text) if text else None
    except Unreadable as error:
        return _why(str(value), error)
    if value is None:
        return {}
    if not isinstance(value, dict):
        return f"The arguments must be one JSON object, not {_named(value)}."
    return value


def _named(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def _why(text: str, error: Unreadable) -> str:
    if error.reason != "malformed":
        return error.detail
    text = text.strip()
    if "Extra data" in error.detail and text[error.position : error.position + 1] == "{":
        return "The arguments hold two objects; send exactly one JSON object per call."
    if error.position >= len(text) or "Unterminated string" in error.detail:
        return "The arguments were cut off before the JSON object was complete (truncated)."
    return f"The arguments are not valid JSON. {error.detail}"

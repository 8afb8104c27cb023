"""Read calls between markers: JSON values in a wrapper, or names followed by JSON arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .lenient import decode_loosely
from .nouns import Fault, Found, RawCall, Reading, Source, Unreadable
from .pattern import pattern
from .shape import calls_in
from .strict import decode

CUT_MARK = "The reply ends before the call is complete (truncated). Send the whole call again; if it is long, send less."


@dataclass(frozen=True, slots=True)
class Value:
    """One decoded JSON value of the text, and where it ends."""

    value: Any
    end: int
    loose: bool = False


def value_at(source: Source, at: int) -> Value | Fault:
    """Decode the block that begins at a position, strictly or else leniently."""
    block = next((block for block in source.scan.blocks if block.start == at), None)
    if source.scan.deep:
        return Fault("nesting_limit", "Brackets are nested too deeply.", at, len(source.text))
    if block is None:
        return _unclosed(source, at)
    text = source.text[at : block.end]
    try:
        return Value(decode(text), block.end)
    except Unreadable as error:
        if error.reason != "malformed":
            return Fault(error.reason, error.detail, at, block.end)
    try:
        return Value(decode_loosely(text), block.end, loose=True)
    except Unreadable as error:
        return Fault(error.reason, error.detail, at, block.end)


_AFTER_CUT = pattern(r"\n[ \t]*(?:</?[a-zA-Z_]|<[|｜]|\[/?[A-Z])")


def _unclosed(source: Source, at: int) -> Fault:
    inner = max((block.end for block in source.scan.blocks if block.start > at), default=at)
    if _AFTER_CUT.search(source.text, inner):
        return Fault("malformed", "The JSON object between the markers is never closed.", at, len(source.text))  # fmt: skip
    return Fault("truncated", CUT_MARK, at, len(source.text))


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A dialect of JSON values between an opener and a closer."""

    opener: re.Pattern[str]
    closer: re.Pattern[str]

    def parse(self, source: Source, position: int) -> Reading:
        """Read every value of adjacent wrappers; each must be a call."""
        text = source.text
        at, end = position, position
        values: list[Any] = []
        loose, pending = False, True
        while True:
            at = _space(text, at)
            if (opener := self.opener.match(text, at)) is not None and opener.end() > at:
                at, pending = opener.end(), True
            elif (closer := self.closer.match(text, at)) is not None and closer.end() > at:
                at = end = closer.end()
                pending = False
            elif at < len(text) and text[at] in "{[" and (pending or not values):
                got = value_at(source, at)
                if isinstance(got, Fault):
                    return got
                values.append(got.value)
                loose |= got.loose
                at = end = got.end
                pending = self._more(text, at)
            else:
                break
        if pending:
            return self._missing(text, position, at)
        return _calls(values, source, position, end, loose)

    def _more(self, text: str, at: int) -> bool:
        """A further value may follow within the same wrapper."""
        following = _space(text, at)
        return following < len(text) and text[following] in "{["

    def _missing(self, text: str, position: int, at: int) -> Fault:
        if not text[at:].strip():
            return Fault("truncated", CUT_MARK, position, len(text))
        return Fault("malformed", "There is no JSON object between the call markers.", position, len(text))  # fmt: skip


_SPACE = pattern(r"[\s,;\ufeff\u200b]*+")


def _space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _calls(values: list[Any], source: Source, start: int, end: int, loose: bool) -> Reading:
    calls: list[RawCall] = []
    for value in values:
        reading = calls_in(value, source.tools, marked=True)
        if isinstance(reading, Fault):
            return Fault(reading.reason, reading.detail, start, end, reading.calls)
        if not isinstance(reading, Found):
            return reading
        calls += reading.calls
    if not calls:
        return Fault("malformed", "There is no call between the call markers.", start, end)
    return Found(tuple(calls), start, end, loose)


@dataclass(frozen=True, slots=True)
class Named:
    """A dialect of `header name, JSON arguments, trailer`, any number of times."""

    header: re.Pattern[str]
    trailer: re.Pattern[str]
    optional: bool = False

    def parse(self, source: Source, position: int) -> Reading:
        """Read adjacent calls; a header without complete arguments is a fault."""
        text = source.text
        calls: list[RawCall] = []
        at, end, loose = position, position, False
        while (header := self.header.match(text, at)) is not None:
            start = header.end()
            if start >= len(text) or text[start] not in "{[":
                return self._no_arguments(text, position, start)
            got = value_at(source, start)
            if isinstance(got, Fault):
                return got
            if not isinstance(got.value, dict):
                return Fault("invalid_arguments", "The arguments must be one JSON object.", start, got.end)  # fmt: skip
            calls.append(_named(header["name"], got.value, source))
            loose |= got.loose
            end = self.trailer.match(text, got.end).end()  # type: ignore[union-attr]
            at = _space(text, end)
        if not calls:
            return None if self.optional else self._no_arguments(text, position, position)
        return Found(tuple(calls), position, end, loose)

    def _no_arguments(self, text: str, position: int, at: int) -> Reading:
        if not text[at:].strip() or not re.search(r"\s", text[position:].strip()):
            return Fault("truncated", CUT_MARK, position, len(text))
        return Fault("malformed", "The call markers hold no tool name with JSON arguments.", position, len(text))  # fmt: skip


_ID = pattern(r"call_\w+\Z")


def _named(name: str, arguments: dict[str, Any], source: Source) -> RawCall:
    name = name.strip()
    inner = arguments.get("name")
    if _ID.match(name) and name not in source.tools and isinstance(inner, str):
        rest = {key: value for key, value in arguments.items() if key != "name"}
        nested = rest.get("arguments", rest.get("parameters"))
        return RawCall(inner, nested if isinstance(nested, dict) and len(rest) == 1 else rest)
    return RawCall(name, arguments)

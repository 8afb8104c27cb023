"""Decode almost-JSON: one balanced, call-shaped piece of text, read with a Python eye.

Single and smart quotes, trailing commas, comments, True/None, raw newlines, unquoted keys and
unescaped Windows backslashes are understood. Nothing is closed, joined or invented.
"""

from __future__ import annotations

import math
import re
from typing import Any

from .nouns import Unreadable
from .pattern import pattern
from .scan import MAX_DEPTH

MAX_LOOSE = 64_000

_SPACE = pattern(r"(?:[\s\ufeff\u200b\u2060]++|//[^\n]*+|/\*.*?\*/|#[^\n]*+)*+", re.DOTALL)
_NUMBER = pattern(r"[+-]?(?:0[xX][0-9a-fA-F]{1,64}|(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.])")  # fmt: skip
_WORD = pattern(r"[A-Za-z_][\w.-]*+")
_END = pattern(r"\s*+(?:[,:}\])=;，：]|\Z|//|#|/\*)")
_RAW_TEXT = pattern(r"[^\\\"'“”„‘’]++")
_PATH = pattern(r"(?:[A-Za-z]:|\\|[\w$.-]*+)(?:\\[\w$.() -]++)++\\?")
_PATH_WITHIN = pattern(r"([A-Za-z]:(?:\\[\w$.()-]++)++)")
_KNOWN_MARKS = frozenset("ntrbfu/\\\"'\n")
_BAD_UNICODE = pattern(r"(?<!\\)\\u(?![0-9a-fA-F]{4})")
_ESCAPE = pattern(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "/": "/",
    "\\": "\\",
    "\n": "",
    '"': '"',
    "'": "'",
}
_QUOTES = {'"': '"', "'": "'", "“": '”“"', "„": "“”", "‘": "’‘'"}
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_NAME_KEYS = frozenset({"tool", "name", "function", "tool_name", "function_name", "action"})


class Loose:
    """Reads values from `text`, keeping the position after what was read."""

    def __init__(self, text: str, at: int = 0, *, exact: bool = True) -> None:
        self.text = text
        self.at = at
        self.exact = exact
        self.depth = 0

    def value(self, *, bare: bool = False) -> Any:
        """Read one value; a bare word counts only where `bare` says so."""
        self.skip()
        mark = self.peek()
        if mark == "{":
            return self.nested(self.members)
        if mark in "[(" and mark:
            return self.nested(self.items)
        if mark in _QUOTES:
            return self.string()
        return self.scalar(bare)

    def skip(self) -> None:
        """Move past white space and comments."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, marks: str) -> str:
        """Take one of the marks if it is next."""
        self.skip()
        mark = self.peek()
        if mark and mark in marks:
            self.at += 1
            return mark
        return ""

    def need(self, marks: str) -> None:
        if not self.take(marks):
            self.fail(f"expected {marks[0]!r}")

    def fail(self, what: str) -> Any:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        detail = f"Not valid JSON: {what}, line {line}, column {column}."
        raise Unreadable("malformed", detail, self.at)

    def nested(self, read: Any) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nesting_limit", f"Brackets are nested deeper than {MAX_DEPTH}.")
        self.at += 1
        found = read()
        self.depth -= 1
        return found

    def members(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.take("}"):
            key = self.key()
            self.need(":：=")
            if key in found:
                raise Unreadable("duplicate_key", f"The key {key!r} occurs twice in one object.")
            found[key] = self.value(bare=key.lower() in _NAME_KEYS)
            if not self.take(",，"):
                self.need("}")
                return found
        return found

    def key(self) -> str:
        self.skip()
        if self.peek() in _QUOTES:
            return self.string()
        word = _WORD.match(self.text, self.at)
        if word is None:
            return str(self.fail("expected a key in double quotes"))
        self.at = word.end()
        return word.group()

    def items(self) -> list[Any]:
        closer = "]" if self.text[self.at - 1] == "[" else ")"
        found: list[Any] = []
        while not self.take(closer):
            found.append(self.value())
            if not self.take(",，"):
                self.need(closer)
                return found
        return found

    def scalar(self, bare: bool) -> Any:
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
            return _number(number.group())
        word = _WORD.match(self.text, self.at)
        if word is None:
            return self.fail("expected a value")
        name = word.group()
        if name in _WORDS:
            self.at = word.end()
            return _WORDS[name]
        if name in {"r", "R", "b", "u"} and self.text[word.end() : word.end() + 1] in _QUOTES:
            self.at = word.end()
            return self.string(raw=name in "rR")
        if name in {"NaN", "Infinity", "nan", "inf"}:
            raise Unreadable("non_finite", f"{name} is not JSON; send a finite number.")
        if not bare:
            return self.fail(f"{name!r} needs quotes")
        self.at = word.end()
        return name

    def string(self, *, raw: bool = False) -> str:
        """Read a quoted string, in triple or single quotes of any kind."""
        quote = self.peek()
        triple = quote * 3
        if quote in "\"'" and self.text.startswith(triple, self.at):
            start = self.at + 3
            end = self.text.find(triple, start)
            if end < 0 or not _END.match(self.text, end + 3):
                self.fail("expected the end of the triple-quoted string")
            self.at = end + 3
            return self.resolved(self.text[start:end], raw=raw)
        start = self.at + 1
        end = self.string_end(
            start, _QUOTES[quote], strict=quote == '"' or (self.exact and quote == "'")
        )
        self.at = end + 1
        return self.resolved(self.text[start:end], raw=raw)

    def resolved(self, body: str, *, raw: bool) -> str:
        """Resolve the escapes of a string's body."""
        return unescape(body, raw=raw)

    def string_end(self, at: int, closers: str, *, strict: bool) -> int:
        length = len(self.text)
        while at < length:
            run = _RAW_TEXT.match(self.text, at)
            if run is not None:
                at = run.end()
                continue
            mark = self.text[at]
            if mark == "\\":
                at += self.step_over_escape(at, closers)
                continue
            if mark in closers and (strict or _END.match(self.text, at + 1)):
                return at
            at += 1
        return int(self.fail("expected the end of a string"))

    def step_over_escape(self, at: int, closers: str) -> int:
        """A backslash right before the closing quote of a Windows path is part of the path."""
        following = self.text[at + 1 : at + 2]
        return 2 if following in closers or following == "\\" else 1


def _number(raw: str) -> int | float:
    try:
        if raw.lower().lstrip("+-").startswith("0x"):
            return int(raw, 16)
        if re.fullmatch(r"[+-]?\d+", raw):
            return int(raw)
    except ValueError:
        raise Unreadable("number_limit", "A number has more digits than can be read.") from None
    value = float(raw)
    if math.isinf(value):
        raise Unreadable("non_finite", f"The number {raw[:40]} is too large.")
    return value


def unescape(body: str, *, raw: bool = False) -> str:
    """Resolve escapes; an unescaped Windows path or a regex keeps its backslashes."""
    if raw or "\\" not in body:
        return body
    odd = _is_odd(body)
    if (odd and _PATH.fullmatch(body)) or drive_path(body):
        return body
    if not odd:
        return _joined(_ESCAPE.sub(_resolved, body))
    pieces = _PATH_WITHIN.split(body)
    return _joined(
        "".join(
            piece if index % 2 else _ESCAPE.sub(_resolved_in_odd, piece)
            for index, piece in enumerate(pieces)
        )
    )


def _is_odd(body: str) -> bool:
    """Say whether the text holds escapes that JSON does not know, so that none is to be trusted."""
    marks = {match.group(1)[0] for match in _ESCAPE.finditer(body)}
    return bool(marks - _KNOWN_MARKS) or bool(_BAD_UNICODE.search(body))


def _resolved(match: re.Match[str]) -> str:
    mark = match.group(1)
    if len(mark) > 1:
        return chr(int(mark[1:], 16))
    return _PLAIN.get(mark, match.group())


def _resolved_in_odd(match: re.Match[str]) -> str:
    return match.group() if match.group(1) in {"b", "f"} else _resolved(match)


def _joined(text: str) -> str:
    if not re.search("[\ud800-\udfff]", text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_DRIVE = pattern(r"[C-PR-Z]:(?:\\[\w.()-][\w.() -]*)+\\?")


def drive_path(body: str) -> bool:
    """Say whether a string as written is a Windows path whose backslashes were not doubled."""
    return bool(_DRIVE.fullmatch(body))


_WRITTEN_PATH = pattern(r'"([C-PR-Z]:\\[A-Za-z][^"\n]*)"')


def holds_bare_path(text: str) -> bool:
    """Say whether a JSON text holds such a path, which strict JSON would read as control characters."""
    return any(drive_path(match.group(1)) for match in _WRITTEN_PATH.finditer(text))


def decode_loosely(text: str) -> Any:
    """Decode the whole of one isolated candidate, or raise `Unreadable`."""
    if len(text) > MAX_LOOSE:
        raise Unreadable("malformed", "Not valid JSON, and too long to be read leniently.")
    try:
        return _whole(Loose(text))
    except Unreadable as error:
        if error.reason != "malformed" or "'" not in text:
            raise
    return _whole(Loose(text, exact=False))


def _whole(reader: Loose) -> Any:
    value = reader.value()
    reader.skip()
    if reader.at < len(reader.text):
        reader.fail("text after the value")
    return value

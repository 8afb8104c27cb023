"""Read calls written in Python: `list_files(directory=".")`."""

from __future__ import annotations

import re
from typing import Any

from .frame import place
from .lenient import MAX_LOOSE, Loose, drive_path
from .marked import CUT_MARK
from .names import resolve_name
from .nouns import MAX_CALLS, Answer, Fault, Found, RawCall, Reading, Source, Tools, Unreadable
from .pattern import pattern

MAX_LEAD = 300

_HEAD = pattern(
    r"\s*+(?P<name>(?:(?:functions|default_api|tools)\.)?[A-Za-z_][\w-]*+)(?P<call>\.call)?\s*+\("
)
_KEYWORD = pattern(r"\s*+([A-Za-z_]\w*+)\s*+=(?!=)")
_LINE = pattern(
    r"(?m)^[ \t>]*(?:```[\w]*[ \t]*)?(?P<start>\[?(?:print\()?(?:(?:functions|default_api|tools)\.)?(?P<name>[A-Za-z_][\w-]*)(?:\.call)?\()"
)
_TAG = pattern(
    r"(?:<\|python_tag\|>|<\|python_start\|>|<\|tool_call_start\|>|<TOOLCALL>|<tool_code>|<tool_call>|<function_calls>)\s*+"
)
_TAG_END = pattern(
    r"\s*(?:<\|python_end\|>|<\|tool_call_end\|>|</TOOLCALL>|</tool_code>|</tool_call>|</function_calls>)?"
)
_CALLING_FENCES = frozenset({"tool_code", "tool_call", "tool_calls", "tool", "tool_use"})


_ESCAPE = pattern(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|.)", re.DOTALL)
_MEANS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": ""}


def _python_escape(match: re.Match[str]) -> str:
    mark = match.group(1)
    if len(mark) > 1:
        return chr(int(mark[1:], 16))
    return _MEANS.get(mark, match.group())


class _Reader(Loose):
    """Reads calls and their literal arguments."""

    def __init__(self, text: str, tools: Tools, at: int) -> None:
        super().__init__(text, at)
        self.tools = tools

    def resolved(self, body: str, *, raw: bool) -> str:
        """Resolve the escapes of a Python string; a bare Windows path keeps its backslashes."""
        if raw or "\\" not in body or drive_path(body):
            return body
        return _ESCAPE.sub(_python_escape, body)

    def calls(self) -> list[RawCall]:
        """Read a list of calls, or calls line by line."""
        found: list[RawCall] = []
        if self.take("["):
            while not self.take("]"):
                found.append(self.call())
                if not self.take(","):
                    self.need("]")
                    break
            return found
        while True:
            found.append(self.statement())
            if len(found) > MAX_CALLS:
                raise Unreadable("malformed", f"More than {MAX_CALLS} calls in one reply.")
            self.skip_space()
            self.take(";,")
            head = _HEAD.match(self.text, self.at)
            if head is None or (
                head["name"] != "print" and not resolve_name(head["name"], self.tools)
            ):
                return found

    def skip_space(self) -> None:
        while self.peek().isspace():
            self.at += 1

    def statement(self) -> RawCall:
        head = _HEAD.match(self.text, self.at)
        if head is None or head["name"] != "print":
            return self.call()
        self.at = head.end()
        call = self.call()
        self.need(")")
        return call

    def call(self) -> RawCall:
        head = _HEAD.match(self.text, self.at)
        if head is None:
            return RawCall("", self.fail("expected a call"))
        self.at = head.end()
        return RawCall(head["name"], self.arguments(head["name"]))

    def arguments(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.take(")"):
            self.skip()
            keyword = _KEYWORD.match(self.text, self.at)
            if keyword is None:
                key = self.only_parameter(name, found)
            else:
                key = keyword.group(1)
                self.at = keyword.end()
            if key in found:
                raise Unreadable("duplicate_key", f"The argument {key!r} occurs twice.")
            found[key] = self.value()
            if not self.take(","):
                self.need(")")
                break
        return found

    def only_parameter(self, name: str, found: dict[str, Any]) -> str:
        """One argument without a name is meant for the only required parameter."""
        known = resolve_name(name, self.tools)
        required = self.tools[known].get("required", []) if known else []
        if len(required) != 1 or found or self.peek() in "{*":
            raise Unreadable("invalid_arguments", f"Name the arguments of {name}: parameter=value.")
        return str(required[0])


def read_calls(source: Source, at: int) -> tuple[list[RawCall], int] | Fault:
    """Read Python calls from a position on, or say what is wrong."""
    text = source.text
    if len(text) - at > MAX_LOOSE:
        return Fault("malformed", "Too long for a call in Python notation.", at, len(text))
    reader = _Reader(text, source.tools, at)
    try:
        return reader.calls(), reader.at
    except Unreadable as error:
        cut = reader.at >= len(text) or (error.position >= 0 and _runs_out(text, reader.at))
        if cut and error.reason == "malformed":
            return Fault("truncated", CUT_MARK, at, len(text))
        return Fault(error.reason, error.detail, at, len(text))


def _runs_out(text: str, at: int) -> bool:
    """Say whether a string that begins here has no end, so that the text was cut within it."""
    quote = text[at : at + 1]
    return (
        bool(quote)
        and quote in "\"'"
        and not re.search(rf"(?<!\\){quote}\s*[,)\]}}:]", text[at + 1 :])
    )


def parse_tagged(source: Source, position: int) -> Reading:
    """Read Python calls behind a marker."""
    tag = _TAG.match(source.text, position)
    if tag is None:
        return None
    head = _HEAD.match(source.text, tag.end() + (source.text[tag.end() : tag.end() + 1] == "["))
    if head is None:
        return None
    got = read_calls(source, tag.end())
    if isinstance(got, Fault):
        return got
    calls, end = got
    return Found(tuple(calls), position, _TAG_END.match(source.text, end).end())  # type: ignore[union-attr]


def parse(source: Source, _position: int) -> Reading:
    """Read Python calls that are the whole reply or stand on their own lines at its end."""
    text = source.text
    head = first_line(source)
    if head is None:
        return None
    start = head.start("start")
    if source.scan.inside(start) or head["name"] == "print" or ">" in text[head.start() : start]:
        return None
    got = read_calls(source, start)
    lead = text[:start].strip()
    if isinstance(got, Fault):
        return _fault(source, got, start)
    calls, end = got
    around = place(text, start, end)
    if text[around.end :].strip():
        return None
    lead = text[: around.start].strip()
    found = Found(tuple(calls), start, end)
    if not lead:
        return found
    if len(" ".join(lead.split())) > MAX_LEAD or source.policy == "whole" or "\n#" in f"\n{lead}":
        return Answer("code_answer")
    if around.language is not None and around.language not in _CALLING_FENCES:
        return Fault("ambiguous", "A call in a code block after text was not run. To run it, send only the call.", start, end, found.calls)  # fmt: skip
    return found


def first_line(source: Source) -> re.Match[str] | None:
    """Find the first line that begins like a call of an offered tool."""
    return next(
        (line for line in _LINE.finditer(source.text) if _offered(line["name"], source)), None
    )


def _offered(name: str, source: Source) -> bool:
    return name in source.tools or name == "print" or resolve_name(name, source.tools) is not None


def _fault(source: Source, fault: Fault, start: int) -> Reading:
    """A fault counts when the call begins the reply or was cut off; code in an answer does not."""
    lead = source.text[:start].strip().strip("`").strip()
    whole = not lead or lead in _CALLING_FENCES or lead == "python"
    if fault.reason == "truncated" and (whole or len(lead) <= MAX_LEAD):
        return fault
    return fault if whole and fault.reason == "invalid_arguments" else None

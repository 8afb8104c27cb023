"""Read calls whose arguments stand in tags, one tag per parameter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .marked import CUT_MARK, value_at
from .names import resolve_name
from .nouns import Fault, Found, RawCall, Reading, Source, Unreadable
from .pattern import pattern
from .strict import decode

_NS = r"(?:[\w-]+:|｜DSML｜)?"
_FUNCTION = pattern(
    rf"<{_NS}(?P<tag>function|invoke|tool_call|tool|call)(?:\s*=\s*[\"']?(?P<a>[^<>\"'\s]++)[\"']?|\s+name\s*=\s*[\"'](?P<b>[^\"'<>]++)[\"'])(?:[^<>/]|/(?!>))*+(?P<self>/)?>"
)
_GLM = pattern(
    r"<(?:longcat_)?tool_call>\s*(?P<a>[\w.-]+)\s*(?=<(?:longcat_)?arg_key>|</(?:longcat_)?tool_call>|<(?:longcat_)?tool_call>|\Z)"
)
_AROUND = pattern(
    r"(?:\s|</?(?:[\w-]+:|｜DSML｜)?(?:tool_calls?|function_calls?|invoke_calls|tool_use|TOOLCALL|xml)>"
    r"|<[|｜]tool[_▁]calls?[_▁](?:begin|end)[|｜]>|(?:function)?<[|｜]tool[_▁]sep[|｜]>)*+"
)


@dataclass(frozen=True, slots=True)
class Tagged:
    """A dialect: how a call, a parameter and their ends are written."""

    call: re.Pattern[str]
    parameter: re.Pattern[str]
    parameter_end: re.Pattern[str]
    call_end: re.Pattern[str]
    around: re.Pattern[str] = _AROUND

    def parse(self, source: Source, position: int) -> Reading:
        """Read adjacent calls and the wrappers around them."""
        text = source.text
        calls: list[RawCall] = []
        at = end = position
        loose = False
        while True:
            start = self.around.match(text, at).end()  # type: ignore[union-attr]
            head = self.call.match(text, start)
            if head is None:
                return _finish(source, Found(tuple(calls), position, end, loose), start)
            got = self._closed_by(head).read_call(source, head)
            if isinstance(got, Fault):
                return got
            call, at, soft = got
            calls.append(call)
            loose |= soft
            end = _closers(text, at)
            at = end

    def _closed_by(self, head: re.Match[str]) -> Tagged:
        """Only the tag that opened a call closes it."""
        tag = head.groupdict().get("tag")
        return replace(self, call_end=re.compile(rf"</{_NS}{tag}>")) if tag else self

    def read_call(self, source: Source, head: re.Match[str]) -> tuple[RawCall, int, bool] | Fault:
        """Read one call from its opening tag on: the call, where it ends, whether read leniently."""
        name = _name(head)
        if head.groupdict().get("self"):
            return RawCall(name, {}), head.end(), False
        at = _after_space(source.text, head.end())
        if source.text[at : at + 1] == "{":
            return self._json_body(source, name, at)
        return self._parameters(source, name, head.end())

    def _json_body(self, source: Source, name: str, at: int) -> tuple[RawCall, int, bool] | Fault:
        got = value_at(source, at)
        if isinstance(got, Fault):
            return got
        close = self.call_end.match(source.text, _after_space(source.text, got.end))
        return RawCall(name, got.value), close.end() if close else got.end, got.loose

    def _parameters(self, source: Source, name: str, at: int) -> tuple[RawCall, int, bool] | Fault:
        text, arguments = source.text, dict[str, Any]()
        properties = _properties(source, name)
        while True:
            at = _after_space(text, at)
            close = self.call_end.match(text, at)
            if close is not None:
                return RawCall(name, arguments), close.end(), False
            head = self.parameter.match(text, at)
            if head is None:
                return _stray(text, at, begun=bool(arguments))
            key = _key(head)
            if key in arguments:
                return Fault(
                    "duplicate_key", f"The parameter {key!r} occurs twice.", at, head.end()
                )
            end = self._value_end(text, head, properties, {*arguments, key})
            if isinstance(end, Fault):
                return end
            if end is None:
                return self._unended(text, head.end())
            arguments[key] = typed(text[head.end() : end.start()], properties.get(key, {}))
            at = end.end()

    def _value_end(
        self, text: str, head: re.Match[str], properties: Mapping[str, Any], used: set[str]
    ) -> re.Match[str] | Fault | None:
        """The first closer after which the rest still reads as calls, else the last that may close."""
        last = None
        start, key = head.end(), _key(head)
        for end in self.parameter_end.finditer(text, start):
            if "k" in end.groupdict() and end["k"] != key:
                continue
            after = _after_space(text, end.end())
            following = self.parameter.match(text, after)
            if following is not None:
                if _key(following) in used:
                    detail = f"The parameter {_key(following)!r} occurs twice."
                    return Fault("duplicate_key", detail, start, following.end())
                if not properties or _key(following) in properties:
                    return end
                continue
            close = self.call_end.match(text, after)
            if close is not None:
                last = end
                rest = self.around.match(text, close.end()).end()  # type: ignore[union-attr]
                if rest >= len(text) or self.call.match(text, rest):
                    return end
            elif after >= len(text):
                last = last or end
        return last

    def _unended(self, text: str, start: int) -> Fault:
        if self.call_end.search(text, start) is None:
            return Fault("truncated", CUT_MARK, start, len(text))
        return Fault("malformed", "A parameter's tag is never closed.", start, len(text))


def _finish(source: Source, found: Found, at: int) -> Reading:
    """The next thing is no call: give what was found, unless the text was cut right here."""
    text = source.text
    cut = at >= len(text) and re.search(r"<[\w:-]+>\s*\Z", text[found.end :]) is not None
    if found.calls and not cut:
        return found
    if at >= len(text) or cut:
        return Fault("truncated", CUT_MARK, found.start, len(text))
    return None


def _closers(text: str, at: int) -> int:
    """Move past closing tags, without the opening of a further call."""
    while (close := _CLOSING.match(text, at)) is not None:
        at = close.end()
    return at


_CLOSING = pattern(
    r"\s*(?:</(?:[\w-]+:|｜DSML｜)?(?:tool_calls?|function_calls?|tool_use|TOOLCALL|xml)>|<[|｜]tool[_▁]calls?[_▁]end[|｜]>)"
)


def _stray(text: str, at: int, *, begun: bool) -> Fault:
    rest = text[at:].strip()
    if not rest or re.fullmatch(r"</?[\w:=\"' -]*", rest):
        return Fault("truncated", CUT_MARK, at, len(text))
    reason = "malformed" if begun else "missing_name"
    detail = "Between the call's tags there is text that is no parameter."
    return Fault(reason, detail, at, len(text))


def _after_space(text: str, at: int) -> int:
    return re.compile(r"\s*+").match(text, at).end()  # type: ignore[union-attr]


def _name(head: re.Match[str]) -> str:
    groups = head.groupdict()
    return str(groups.get("a") or groups.get("b") or "").strip()


def _key(head: re.Match[str]) -> str:
    groups = head.groupdict()
    return str(groups.get("k") or groups.get("l") or "").strip()


def _properties(source: Source, name: str) -> Mapping[str, Any]:
    known = resolve_name(name, source.tools)
    found = source.tools[known].get("properties", {}) if known else {}
    return found if isinstance(found, Mapping) else {}


_OWN_LINES = pattern(r"\r?\n(.*?)\r?\n[ \t]*|\r?\n", re.DOTALL)


def typed(text: str, schema: Any) -> Any:
    """Read a tag's text as the schema says: text stays text, the rest is JSON."""
    inner = _OWN_LINES.fullmatch(text)
    body = (inner.group(1) or "") if inner else text
    if _takes_text(schema):
        return body
    try:
        return decode(body.strip())
    except Unreadable:
        words = {"True": True, "False": False, "None": None}
        return words.get(body.strip(), body.strip())


def _takes_text(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    kinds = schema.get("type", ())
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return True
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices):
        return True
    either = schema.get("anyOf") or schema.get("oneOf") or ()
    return isinstance(either, list) and any(_takes_text(one) for one in either)


FUNCTION = Tagged(
    call=_FUNCTION,
    parameter=pattern(
        rf"<{_NS}(?:parameter|param|arg|argument)(?:\s*=\s*[\"']?(?P<k>[^<>\"'\s]++)[\"']?|\s+name\s*=\s*[\"'](?P<l>[^\"'<>]++)[\"'])[^<>]*+>"
    ),
    parameter_end=pattern(rf"</{_NS}(?:parameter|param|arg|argument)>"),
    call_end=pattern(rf"</{_NS}(?:function|invoke|tool_call|tool|call)>"),
)
GLM = Tagged(
    call=_GLM,
    parameter=pattern(
        r"<(?:longcat_)?arg_key>(?P<k>[^<>]++)</(?:longcat_)?arg_key>\s*<(?:longcat_)?arg_value>"
    ),
    parameter_end=pattern(r"</(?:longcat_)?arg_value>"),
    call_end=pattern(r"</(?:longcat_)?tool_call>"),
    around=pattern(r"\s*+"),
)
_MAX_TAGS = 64
_TAG = pattern(r"(?m)^[ \t]*<(?P<a>[A-Za-z_][\w-]*)>")


def first_tag(source: Source) -> re.Match[str] | None:
    """Find the first line that begins with a tag of an offered tool's name."""
    for count, head in enumerate(_TAG.finditer(source.text)):
        if head["a"] in source.tools:
            return head
        if count > _MAX_TAGS:
            break
    return None


def parse_tag(source: Source, _position: int) -> Reading:
    """Read a call written as a tag of the tool's name with a tag per parameter."""
    head = first_tag(source)
    return None if head is None else _tag_call(source, head)


def _tag_call(source: Source, head: re.Match[str]) -> Reading:
    name = head["a"]
    dialect = Tagged(
        call=re.compile(rf"\s*<(?P<a>{re.escape(name)})>"),
        parameter=re.compile(r"<(?P<k>[A-Za-z_][\w-]*)>"),
        parameter_end=re.compile(_parameter_ends(source, name)),
        call_end=re.compile(rf"</{re.escape(name)}>"),
    )
    reading = dialect.parse(source, head.start())
    plain = isinstance(reading, Fault) and reading.reason == "missing_name"
    return None if plain else reading


def _parameter_ends(source: Source, name: str) -> str:
    keys = "|".join(re.escape(str(key)) for key in _properties(source, name)) or r"\w+"
    return rf"</(?P<k>{keys})>"

"""Read Gemma's calls: `call:name{key:<escape>text<escape>}` between its markers."""

from __future__ import annotations

from typing import Any

from .lenient import MAX_LOOSE, Loose
from .marked import CUT_MARK
from .nouns import Fault, Found, RawCall, Reading, Source, Unreadable
from .pattern import pattern

_HEAD = pattern(
    r"\s*+(?:<\|tool_call>|<start_function_call>)?\s*+call:\s*+(?P<name>[\w.-]+)\s*+(?=\{)"
)
_OPEN = pattern(
    r"\s*+(?:<\|tool_call>|<start_function_call>)?\s*+(?:c|ca|cal|call|call:\s*+[\w.-]*+\s*+)?\Z"
)
_CLOSE = pattern(r"\s*+(?:<tool_call\|>|<end_function_call>|<start_function_response>)?")
_QUOTES = ('<|"|>', "<escape>")
_KEY = pattern(r"\s*+([^:{}\[\],\"'<>]{1,200}?)\s*+(?=:)")


class _Reader(Loose):
    def value(self, *, bare: bool = False) -> Any:
        self.skip()
        quote = next((one for one in _QUOTES if self.text.startswith(one, self.at)), None)
        if quote is None:
            return super().value(bare=bare)
        start = self.at + len(quote)
        end = self.text.find(quote, start)
        if end < 0:
            self.at = len(self.text)
            self.fail("a text is never closed")
        self.at = end + len(quote)
        return self.text[start:end]

    def key(self) -> str:
        self.skip()
        if any(self.text.startswith(one, self.at) for one in _QUOTES):
            return str(self.value())
        bare = _KEY.match(self.text, self.at)
        if bare is None:
            return super().key()
        self.at = bare.end()
        return bare.group(1)


def parse(source: Source, position: int) -> Reading:
    """Read adjacent calls in Gemma's notation."""
    text = source.text
    if len(text) - position > MAX_LOOSE * 4:
        return None
    calls: list[RawCall] = []
    at = position
    while (head := _HEAD.match(text, at)) is not None:
        reader = _Reader(text, head.end())
        try:
            arguments = reader.value()
        except Unreadable as error:
            cut = reader.at >= len(text) and error.reason == "malformed"
            reason, detail = ("truncated", CUT_MARK) if cut else (error.reason, error.detail)
            return Fault(reason, detail, position, len(text))
        calls.append(RawCall(head["name"], arguments))
        at = _CLOSE.match(text, reader.at).end()  # type: ignore[union-attr]
    if not calls or (text[at:].strip() and _OPEN.match(text, at)):
        if _OPEN.match(text, at):
            return Fault("truncated", CUT_MARK, position, len(text))
        return None
    return Found(tuple(calls), position, at)

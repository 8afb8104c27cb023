"""Read harmony replies: channels, recipients, and JSON messages to functions."""

from __future__ import annotations

import re

from .marked import CUT_MARK, value_at
from .nouns import Answer, Fault, Found, RawCall, Reading, Source
from .pattern import pattern

_HEAD = pattern(
    r"(?:<\|start\|>)?(?:assistant)?(?:\s*to=(?P<first>[\w.-]+))?\s*"
    r"(?:<\|channel\|>\s*(?P<channel>\w+)(?:\s*to=(?P<second>[\w.-]+))?\s*(?:code|json)?\s*(?:<\|constrain\|>\s*\w+\s*)?)?"
    r"<\|message\|>\s*"
)
_END = pattern(r"<\|(?:end|return|call|start|channel)\|>")
_CLOSE = pattern(r"\s*(?:<\|(?:end|return|call)\|>\s*)?")
_ANY = pattern(r"<\|(?:start|channel|message|constrain)\|>|\bto=functions")


def parse(source: Source, position: int) -> Reading:
    """Read every message; those with a recipient are calls, the final channel is the answer."""
    text = source.text
    calls: list[RawCall] = []
    answer: str | None = None
    at, begin, end, loose = position, position, position, False
    while (head := _HEAD.match(text, at)) is not None and head.end() > at:
        recipient = head["first"] or head["second"]
        if recipient is None:
            stop = _END.search(text, head.end())
            body_end = stop.start() if stop else len(text)
            if head["channel"] in {"final", None}:
                answer = text[head.end() : body_end].strip()
            at = _CLOSE.match(text, body_end).end()  # type: ignore[union-attr]
            continue
        if text[head.end() : head.end() + 1] not in {"{", "["}:
            return _no_json(text, head)
        got = value_at(source, head.end())
        if isinstance(got, Fault):
            return got
        begin = begin if calls else head.start()
        calls.append(RawCall(recipient, got.value))
        loose |= got.loose
        at = end = _CLOSE.match(text, got.end).end()  # type: ignore[union-attr]
    return _result(source, calls, answer, (begin, end, at), loose)


def _result(
    source: Source,
    calls: list[RawCall],
    answer: str | None,
    where: tuple[int, int, int],
    loose: bool,
) -> Reading:
    begin, end, at = where
    rest = source.text[at:].strip()
    if rest and _ANY.match(rest) and answer is None:
        return Fault("truncated", CUT_MARK, at, len(source.text))
    if calls:
        return Found(tuple(calls), begin, end, loose)
    if answer is None and at == begin:
        return None
    return Answer("documentation" if "{" in (answer or "") else "plain_text", answer or "")


def _no_json(text: str, head: re.Match[str]) -> Fault:
    if not text[head.end() :].strip():
        return Fault("truncated", CUT_MARK, head.start(), len(text))
    return Fault("malformed", "The message to the function is not a JSON object.", head.start(), len(text))  # fmt: skip

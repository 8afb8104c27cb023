"""Take a model's reasoning away. It is blanked, so that positions in the text stay true."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .pattern import pattern
from .scan import scan

_TAGS = "think|thinking|thought|reasoning|reflection|scratchpad|analysis|seed:think"
_TAG = pattern(
    rf"<(?=[/trsaTRSA])(?P<close>/)?(?:{_TAGS})>|\[(?P<close2>/)?THINK\]|(?P<open3>◁think▷)|(?P<close3>◁/think▷)",
    re.IGNORECASE,
)
_HINTS = ("<", "[THINK]", "[/THINK]", "◁")
_PYTHON_CALL = pattern(r"[ \t]*+[\w.]++\(\s*+\w++\s*+=")
_MAX_TAGS = 512
_AT_LINE_START = pattern(r"(?:^|\n|>|\])[ \t]*\Z")
_WRAPPER = pattern(r"\s*<(answer|response|final|output)>(.*)</\1>\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Thought:
    """`text` with its reasoning blanked; `removed` are the pieces taken away."""

    text: str
    removed: tuple[tuple[int, int], ...] = ()
    unclosed: bool = False


def take_away(text: str) -> Thought:
    """Blank every stretch of reasoning, nested, unopened or unclosed."""
    if not any(hint in text for hint in _HINTS):
        return Thought(text)
    tags = []
    for tag in _TAG.finditer(text):
        tags.append((tag.start(), tag.end(), _closes(tag)))
        if len(tags) >= _MAX_TAGS:
            break
    if not tags:
        return Thought(text)
    spans, unclosed = _spans(text, tags)
    if not spans:
        return Thought(text)
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], " " * (end - start)]
        at = end
    return Thought("".join([*pieces, text[at:]]), tuple(spans), unclosed)


def _closes(tag: re.Match[str]) -> bool:
    return bool(tag["close"] or tag["close2"] or tag["close3"])


def _spans(text: str, tags: list[tuple[int, int, bool]]) -> tuple[list[tuple[int, int]], bool]:
    blocks = scan(text)
    spans: list[tuple[int, int]] = []
    depth = begin = mentioned = 0
    for start, end, closes in tags:
        if depth:
            depth += -1 if closes else 1
            if depth == 0:
                spans.append((begin, end))
        elif blocks.inside(start) or _in_value(text, start):
            continue
        elif not closes and _AT_LINE_START.search(text, max(0, start - 80), start):
            depth, begin = 1, start
        elif not closes or mentioned:
            mentioned += -1 if closes else 1
        else:
            spans = [(0, end)]
    if depth:
        spans.append((begin, len(text)))
    return spans, depth > 0


def _in_value(text: str, at: int) -> bool:
    """Say whether the position lies within the value of a tag or of a Python call."""
    line = text.rfind("\n", 0, at) + 1
    if _PYTHON_CALL.match(text, line, at):
        return True
    opened = max(
        text.rfind("<parameter", 0, at),
        text.rfind("<param ", 0, at),
        text.rfind("<arg_value>", 0, at),
    )
    closed = max(text.rfind("</param", 0, at), text.rfind("</arg_value>", 0, at))
    return opened > closed


def answer_of(text: str) -> str:
    """Give the answer proper of a text without reasoning."""
    wrapped = _WRAPPER.match(text) if text.lstrip().startswith("<") else None
    return (wrapped.group(2) if wrapped else text).strip()

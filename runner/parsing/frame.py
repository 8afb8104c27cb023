"""What surrounds a reply: chat-template tokens, the next turn a model ran on into, code fences."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .nouns import Source
from .pattern import pattern

INVISIBLE = (
    " \t\r\n\f\v\ufeff\u200b\u200c\u200d\u200e\u200f\u2060\xa0\u3000"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)

_EDGE = pattern(
    r"(?:[\s\ufeff\u200b\u2060]++|<\|(?:im_start|start_header_id|START_OF_TURN_TOKEN)\|>(?:assistant)?"
    r"|<\|(?:end_header_id|assistant|CHATBOT_TOKEN|begin_of_text|im_sep|START_RESPONSE)\|>(?:assistant)?"
    r"|<｜(?:Assistant|begin▁of▁sentence)｜>|<start_of_turn>(?:model)?|<s>|<bos>)*+"
)
_STOP = pattern(
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|return|END_OF_TURN_TOKEN|END_RESPONSE|end_of_turn|eos)\|>"
    r"|<｜end▁of▁sentence｜>|<end_of_turn>|<eos>|</s>|<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>"
    r"|<\|(?:user|assistant|observation)\|>"
)
_HINT = pattern(r"<[|｜/se]")
_OPEN_FENCE = pattern(r"(?:```+|~~~+|'''+|`)[ \t]*+([\w+-]*+)[ \t]*+\r?\n?[ \t]*+\Z")
_CLOSE_FENCE = pattern(r"\s*+(?:```+|~~~+|'''+|`)")
_EXTRA_CLOSERS = pattern(r"[\s}\]);]*+\Z")
_MAX_FENCE = 16
CALL_LANGUAGES = frozenset(
    {
        "",
        "json",
        "json5",
        "jsonc",
        "tool_call",
        "tool_calls",
        "tool",
        "tool_code",
        "tool_use",
        "function_call",
        "xml",
        "plaintext",
    }
)


def bounds(text: str) -> tuple[int, int]:
    """Give where the reply proper begins and ends, without template tokens and what follows them."""
    if _HINT.search(text) is None:
        start = len(text) - len(text.lstrip(INVISIBLE))
        return start, max(start, len(text.rstrip(INVISIBLE)))
    start = _EDGE.match(text).end()  # type: ignore[union-attr]
    while (stop := _STOP.match(text, start)) is not None:
        start = _EDGE.match(text, stop.end()).end()  # type: ignore[union-attr]
    next_turn = _first_stop(text, start)
    end = len(text) if next_turn is None else next_turn
    return start, max(start, len(text[:end].rstrip(INVISIBLE)))


def _first_stop(text: str, start: int) -> int | None:
    """Find the first end-of-turn token that does not lie within a value."""
    source = Source(text, {})
    for count, match in enumerate(_STOP.finditer(text, start)):
        if not source.scan.inside(match.start()):
            return match.start()
        if count > 64:  # noqa: PLR2004
            break
    return None


@dataclass(frozen=True, slots=True)
class Place:
    """A block with its fence: `start:end` covers both. `language` is None without a fence."""

    start: int
    end: int
    language: str | None = None
    loose: bool = False


def place(text: str, start: int, end: int) -> Place:
    """Widen a block to the code fence directly around it."""
    start, end = tagged(text, start, end)
    opening = _OPEN_FENCE.search(text, max(0, start - 64), start)
    if opening is None:
        return Place(start, end)
    tick = opening.group().lstrip()[0]
    closing = _CLOSE_FENCE.match(text, end)
    if closing is None or closing.group().lstrip()[0] != tick:
        at_end = not text[end:].strip()
        return (
            Place(opening.start(), end, opening.group(1).lower()) if at_end else Place(start, end)
        )
    if len(closing.group().strip()) == 1 and "\n" in text[opening.start() : start]:
        return Place(start, end)
    return Place(opening.start(), closing.end(), opening.group(1).lower())


_OPEN_TAG = pattern(
    r"<(json|action|actions|call|request|command|tool_request|execute_tool|use_tool)>\s*+\Z"
)


def tagged(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a block to a tag that says nothing but that this is a call."""
    opening = _OPEN_TAG.search(text, max(0, start - 64), start)
    if opening is None:
        return start, end
    closing = re.compile(rf"\s*</{opening.group(1)}>").match(text, end)
    return (opening.start(), closing.end()) if closing else (start, end)


def only_closers(tail: str) -> bool:
    """Say whether the tail holds nothing but surplus closing brackets."""
    return len(tail) < 64 and _EXTRA_CLOSERS.match(tail) is not None  # noqa: PLR2004


def whole_fence(text: str) -> tuple[str, int, int] | None:
    """Give language, start and end of the body when one fence is the whole text."""
    if text[:3] not in {"```", "~~~", "'''"}:
        return None
    fence = text[:_MAX_FENCE][: len(text[:_MAX_FENCE]) - len(text[:_MAX_FENCE].lstrip(text[0]))]
    line, _, _ = text.partition("\n")
    language = line[len(fence) :].strip().lower()
    closed = text.endswith(fence) and len(text) > len(line) + len(fence)
    end = len(text) - len(fence) if closed else len(text)
    if not re.fullmatch(r"[\w+-]*", language) or re.search(
        r"(?m)^[ \t]*" + re.escape(fence), text[len(line) : end]
    ):
        return None
    return language, min(len(line) + 1, end), end

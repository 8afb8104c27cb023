"""Find out whether a call was copied from a recent tool result; such text never runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .nouns import Found, ParsedCall, Tools, Unreadable
from .pattern import pattern
from .scan import Block, scan
from .shape import calls_in
from .strict import decode

_SPACE = pattern(r"\s+")
_MAX_OUTPUT = 1_000_000


def is_echo(
    written: str, calls: Sequence[ParsedCall], outputs: Sequence[str], tools: Tools
) -> bool:
    """Say whether one of the calls stands in a tool result, word for word or as the same call."""
    if not outputs:
        return False
    compact = _SPACE.sub("", written)
    for output in outputs:
        held = output[:_MAX_OUTPUT]
        if not any(call.name in held for call in calls):
            continue
        if len(compact) > 8 and compact in _SPACE.sub("", held):  # noqa: PLR2004
            return True
        if any(call in _calls_held(held, tools) for call in calls):
            return True
    return False


def _calls_held(output: str, tools: Tools) -> list[ParsedCall]:
    found: list[ParsedCall] = []
    for block in scan(output).blocks:
        reading = calls_in(_value(output, block), tools)
        if isinstance(reading, Found):
            found += [
                ParsedCall(call.name, call.arguments)
                for call in reading.calls
                if isinstance(call.arguments, dict)
            ]
    return found


def _value(output: str, block: Block) -> Any:
    try:
        return decode(output[block.start : block.end])
    except Unreadable:
        return None

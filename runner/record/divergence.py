"""Where a replay went another way than the record: found, and shown as a difference."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from ..context.sameness import same_text
from ..types import JSON
from .turns import Record, RecordedCall, RecordedReply, entries

HEAD_CHARS = 200  # what is compared of a result that was cut and whose whole text is gone
_BRAKES = ("loop.refused", "loop.noticed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first point where now is not as recorded. `what` names it in a word or two."""

    what: str
    turn: int
    number: int
    recorded: str
    now: str
    call_id: str = ""
    tool: str = ""
    arguments: JSON | None = None

    @property
    def where(self) -> str:
        """The place in a line."""
        call = f", {self.tool} {_json(self.arguments)}" if self.tool else ""
        return f"turn {self.turn}, iteration {self.number}{call}"

    def diff(self) -> str:
        """The two sides as a unified diff, headed by the place."""
        lines = unified_diff(
            self.recorded.splitlines(), self.now.splitlines(), "recorded", "now", lineterm=""
        )
        return "\n".join([f"{self.what} differs: {self.where}", *lines])

    def to_dict(self) -> JSON:
        """The object of `trace replay --json`."""
        return {
            "what": self.what,
            "turn": self.turn,
            "iteration": self.number,
            "call_id": self.call_id or None,
            "tool": self.tool or None,
            "arguments": self.arguments,
            "recorded": self.recorded,
            "now": self.now,
        }


def first_difference(
    turn: int, reply: RecordedReply, now: Iterable[Record], *, results: bool, brakes: bool = True
) -> Divergence | None:
    """Compares what followed a reply with what follows it now."""
    events = list(now)
    found = _reading(turn, reply, events)
    if found is None and brakes:
        found = _brake(turn, reply, events)
    if found is None and results:
        finished = {e.get("call_id"): e for e in events if e.get("type") == "tool.finished"}
        for call in reply.calls:
            found = found or _result(turn, reply, call, finished.get(call.id))
    return found


def _reading(turn: int, reply: RecordedReply, events: list[Record]) -> Divergence | None:
    if reply.native and reply.parsed is None:
        return None
    parsed = [e for e in events if e.get("type") == "reply.parsed"]
    before = _read_as(reply.parsed)
    after = _read_as(parsed[-1] if parsed else None)
    if before == after:
        return None
    return Divergence(
        what="what was read in the reply",
        turn=turn,
        number=reply.number,
        recorded=before,
        now=after,
    )


def _read_as(parsed: Record | None) -> str:
    if parsed is None:
        return "plain text"
    if parsed.get("recogniser") == "native":
        return "native calls that cannot be read"
    lines = [f"{parsed.get('kind')} {parsed.get('reason') or ''} ({parsed.get('recogniser')})"]
    lines += [f"{c.get('name')} {_json(c.get('arguments'))}" for c in entries(parsed)]
    return "\n".join(lines)


def _brake(turn: int, reply: RecordedReply, events: list[Record]) -> Divergence | None:
    before = _braked(reply.brakes)
    after = _braked(e for e in events if e.get("type") in _BRAKES)
    if before == after:
        return None
    return Divergence(
        what="the loop guard", turn=turn, number=reply.number, recorded=before, now=after
    )


def _braked(events: Iterable[Record]) -> str:
    lines = [f"{e['type']} {e.get('form')} × {e.get('count')} ({e.get('tool')})" for e in events]
    return "\n".join(lines) or "goes on"


def _result(
    turn: int, reply: RecordedReply, call: RecordedCall, now: Record | None
) -> Divergence | None:
    if call.finished is None or now is None:
        return None
    if call.kind == now.get("kind") and same_text(*_comparable(call.finished, now)):
        return None
    return Divergence(
        what="the result",
        turn=turn,
        number=reply.number,
        recorded=f"{call.kind}\n{call.content}",
        now=f"{now.get('kind')}\n{now.get('content')}",
        call_id=call.id,
        tool=call.tool,
        arguments=call.arguments,
    )


def _comparable(recorded: Record, now: Record) -> tuple[str, str]:
    """Two contents; when one was cut, the whole texts, or the beginnings when those are gone."""
    texts = str(recorded.get("content", "")), str(now.get("content", ""))
    if not (recorded.get("spilled_to") or now.get("spilled_to")):
        return texts
    wholes = [_whole(r, t) for r, t in zip((recorded, now), texts, strict=True)]
    if wholes[0] is not None and wholes[1] is not None:
        return wholes[0], wholes[1]
    return texts[0][:HEAD_CHARS], texts[1][:HEAD_CHARS]


def _whole(record: Record, content: str) -> str | None:
    path = record.get("spilled_to")
    if not path:
        return content
    try:
        return Path(str(path)).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _json(value: Mapping[str, Any] | None) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)

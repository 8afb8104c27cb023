"""What happened, as values: the trajectory, the terminal and hooks listen to one stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

SCHEMA = 1  # version of the trajectory; raised when a reader of the old one would misread the new
KINDS = (
    "session.started",
    "session.forked",
    "turn.started",
    "slot.waiting",
    "slot.acquired",
    "model.requested",
    "model.retried",
    "model.replied",
    "model.changed",
    "reply.parsed",
    "note.added",
    "tool.queued",
    "tool.started",
    "tool.retried",
    "tool.progressed",
    "fallback.started",
    "tool.settled",
    "tool.finished",
    "tool.late",
    "approval.asked",
    "approval.answered",
    "breaker.opened",
    "breaker.probed",
    "breaker.closed",
    "loop.noticed",
    "loop.refused",
    "context.truncated",
    "context.summarised",
    "context.slid",
    "skills.changed",
    "agent.started",
    "agent.finished",
    "memory.saved",
    "turn.finished",
    "turn.undone",
)


@dataclass(slots=True)
class Event:
    """One thing that happened. `time` is RFC 3339 in UTC; `data` is already redacted.

    Not to be changed. It is not a frozen dataclass because making one of those costs 1.5 µs more,
    several times an iteration.
    """

    seq: int
    time: str
    session: str
    turn: int
    iteration: int
    type: str
    data: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON line of the trajectory and of `--events`."""
        return {
            "seq": self.seq,
            "time": self.time,
            "session": self.session,
            "turn": self.turn,
            "iteration": self.iteration,
            "type": self.type,
            **self.data,
        }


def now() -> str:
    """The time of an event: RFC 3339 in UTC, with microseconds."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_to_the_second(seconds)}.{rest // 1000:06}Z"


@lru_cache(maxsize=1)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")


# Fields whose values are ours (names, numbers, closed lists) and hold no text of a user, model or skill.
PLAIN_FIELDS = frozenset(
    "call_id tool tools kind attempts duration position messages input_tokens_estimate finish_reason "
    "usage key fingerprint idempotent recogniser delay attempt capability decision pause form count "
    "before_tokens after_tokens iterations tool_calls generation schema status cost below ok "
    "mode context_window repeatable degraded_by coerced agent model parent child".split()
)
Listener = Callable[[Event], None]
Emit = Callable[..., None]  # emit("tool.started", call_id=…, tool=…)

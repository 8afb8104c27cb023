"""A trajectory as turns: each reply of the model with what was read in it, run and said after it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SessionError
from ..types import JSON
from .trajectory import Loaded, file_of, read

Record = Mapping[str, Any]
REDACTED = "[REDACTED:"
_LARGEST = 1e15


@dataclass(slots=True)
class RecordedCall:
    """One tool call of a reply, with its result when one was recorded."""

    id: str
    tool: str
    arguments: JSON
    queued: bool = False
    started: Record | None = None
    finished: Record | None = None

    @property
    def kind(self) -> str:
        """What it came to; empty when nobody recorded its end."""
        return str(self.finished.get("kind", "")) if self.finished else ""

    @property
    def content(self) -> str:
        """The result as the model got it."""
        return str(self.finished.get("content", "")) if self.finished else ""

    @property
    def redacted(self) -> bool:
        """Were its arguments masked on disk? Then what was really sent is not known."""
        return holds_mask(self.arguments)


@dataclass(slots=True)
class RecordedReply:
    """One reply of the model. `notes` and `brakes` are what followed before the next one."""

    number: int
    iteration: int
    text: str
    native: bool
    finish: str
    usage: Record
    duration: float
    tools: tuple[str, ...]
    calls: list[RecordedCall]
    parsed: Record | None = None
    notes: list[Record] = field(default_factory=list)
    brakes: list[Record] = field(default_factory=list)

    def call(self, call_id: str) -> RecordedCall | None:
        """The call of that id."""
        return next((c for c in self.calls if c.id == call_id), None)


@dataclass(slots=True)
class RecordedTurn:
    """One goal with the replies it took. `finished` is missing when the process died.

    `undone_after`: the turn after which it was taken back; 0 when it stands.
    """

    number: int
    goal: str
    undone_after: int = 0
    notes: list[Record] = field(default_factory=list)
    replies: list[RecordedReply] = field(default_factory=list)
    finished: Record | None = None

    @property
    def status(self) -> str:
        """How it ended, or `interrupted`."""
        return str(self.finished.get("status", "")) if self.finished else "interrupted"

    @property
    def answer(self) -> str:
        """What it ended with."""
        return str(self.finished.get("answer") or "") if self.finished else ""


@dataclass(slots=True)
class Story:
    """A whole session, its sub-agents' own events left out."""

    session: str
    model: str = ""
    skills: tuple[str, ...] = ()
    turns: list[RecordedTurn] = field(default_factory=list)

    @property
    def standing(self) -> list[RecordedTurn]:
        """The turns that nobody took back."""
        return [turn for turn in self.turns if not turn.undone_after]

    @property
    def answer(self) -> str:
        """What the last turn that ended, and stands, said."""
        return next((t.answer for t in reversed(self.standing) if t.finished), "")

    def undone_after(self, turn: RecordedTurn) -> list[RecordedTurn]:
        """The turns that were taken back between this one and the next."""
        return [t for t in self.turns if t.undone_after == turn.number]


def load(state: Path, session: str) -> Loaded:
    """The records of a session. `SessionError` when there is none of that name."""
    path = file_of(state, session)
    if not path.is_file():
        raise SessionError(f"no session {session!r} in {path.parent}; see: runner sessions list")
    return read(path)


def story(records: Iterable[Record], session: str) -> Story:
    """Folds the records of a session into its turns."""
    told = Story(session)
    tools: tuple[str, ...] = ()
    for record in records:
        if record.get("session") != session:
            continue  # a sub-agent's events are in its parent's trajectory
        kind = record.get("type")
        if kind == "session.started":
            told.model = str(record.get("model") or told.model)
            told.skills = texts(record.get("skills"))
        elif kind == "turn.started":
            told.turns.append(RecordedTurn(len(told.turns) + 1, str(record.get("goal", ""))))
        elif kind == "model.requested":
            tools = texts(record.get("tools"))
        elif told.turns:
            _into_turn(told, record, tools)
    return told


def first_id(calls: Iterable[RecordedCall]) -> int:
    """The number of the first call's id, 0 when it is not one of ours."""
    for call in calls:
        match = re.fullmatch(r"call_(\d{1,9})", call.id)
        return int(match[1]) if match else 0
    return 0


def holds_mask(value: Any) -> bool:
    """Is there a redacted text anywhere in a JSON value?"""
    if isinstance(value, str):
        return REDACTED in value
    if isinstance(value, Mapping):
        return any(holds_mask(part) for pair in value.items() for part in pair)
    return isinstance(value, (list, tuple)) and any(map(holds_mask, value))


def texts(value: Any) -> tuple[str, ...]:
    """A recorded list as texts; whatever else stands there is none."""
    return tuple(map(str, value)) if isinstance(value, list) else ()


def entries(record: Record) -> list[Record]:
    """The calls that a reply or its reading holds; what is none is left out."""
    listed = record.get("calls")
    found = listed if isinstance(listed, list) else ()
    return [entry for entry in found if isinstance(entry, dict) and "name" in entry]


def figure(value: Any) -> float:
    """A recorded number; whatever else stands there is 0."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else 0.0


def _into_turn(told: Story, record: Record, tools: tuple[str, ...]) -> None:
    turn = told.turns[-1]
    reply = turn.replies[-1] if turn.replies else None
    kind = record.get("type")
    if kind == "model.replied":
        number = sum(len(t.replies) for t in told.turns) + 1
        turn.replies.append(_reply(number, record, tools))
    elif kind == "turn.finished":
        turn.finished = record
    elif kind == "turn.undone":
        for last in told.standing[-1:]:
            last.undone_after = turn.number
    elif kind == "note.added":
        (turn.notes if reply is None else reply.notes).append(record)
    elif reply is not None:
        _into_reply(reply, str(kind), record)


def _into_reply(reply: RecordedReply, kind: str, record: Record) -> None:
    if kind == "reply.parsed":
        reply.parsed = record
        if not reply.native:
            reply.calls = _calls(record)
    elif kind in {"loop.noticed", "loop.refused"}:
        reply.brakes.append(record)
    elif kind in {"tool.queued", "tool.started", "tool.finished"}:
        call = reply.call(str(record.get("call_id")))
        if call is not None:
            _into_call(call, kind, record)


def _into_call(call: RecordedCall, kind: str, record: Record) -> None:
    if kind == "tool.finished":
        call.finished = record
    else:
        call.queued = True
        call.started = record if kind == "tool.started" else None


def _reply(number: int, record: Record, tools: tuple[str, ...]) -> RecordedReply:
    calls = _calls(record)
    return RecordedReply(
        number=number,
        iteration=int(figure(record.get("iteration"))),
        text=str(record.get("text") or ""),
        native=bool(calls),
        finish=str(record.get("finish_reason") or "stop"),
        usage=record["usage"] if isinstance(record.get("usage"), dict) else {},
        duration=figure(record.get("duration")),
        tools=tools,
        calls=calls,
    )


def _calls(record: Record) -> list[RecordedCall]:
    return [
        RecordedCall(
            str(entry.get("id")),
            str(entry["name"]),
            entry["arguments"] if isinstance(entry.get("arguments"), dict) else {},
        )
        for entry in entries(record)
    ]

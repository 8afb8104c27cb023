"""A session rebuilt from its trajectory: what was said, what was done, what is not known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..model.prompt import text_calls, text_results
from ..types import JSON, Mark, Message, ToolCall

NOT_RUN = "not run: the session was interrupted before this call began"
INTERRUPTED = "no result: this call was interrupted. Calling it again does no harm"
UNKNOWN = (
    "no result: this call was interrupted while it ran. Its outcome is unknown: it may have "
    "happened. Check before you do anything about it; the same call is refused until that is known"
)


MOST_INTERRUPTIONS = (
    3  # of one idempotent call: after so many it is taken for what ends the process
)
_LOST_HOW = {"outcome_unknown": "timed out", "cancelled": "was cancelled"}


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call that had begun and whose outcome nobody recorded."""

    fingerprint: str
    tool: str
    key: str
    how: str = "was interrupted"


@dataclass(slots=True)
class _Round:
    """The reply being read, with its calls and the results recorded so far."""

    text: str
    calls: list[ToolCall]
    in_text: bool = False
    results: dict[str, tuple[str, str]] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)  # calls that opened a skill
    started: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Rebuilt:
    """Everything a resumed session needs. `interrupted`: the last turn never finished."""

    messages: list[Message] = field(default_factory=list)
    lost: dict[str, LostCall] = field(default_factory=dict)
    turns: int = 0
    seq: int = 0
    ids: int = 0
    spilled: bool = False
    interrupted: bool = False
    opened_skills: set[str] = field(default_factory=set)
    open_keys: dict[str, str] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)


def rebuild(records: Iterable[Mapping[str, Any]], session: str) -> Rebuilt:
    """Folds a trajectory's records into the state they left behind."""
    fold = _Fold(session)
    bad = 0
    for record in records:
        try:
            fold.take(record)
        except (TypeError, ValueError, AttributeError):  # JSON, but not what we write
            bad += 1
    fold.end_round()
    if bad:
        fold.made.damage.append(f"session {session}: {bad} record(s) of a wrong form left out")
    return fold.made


def before_last_goal(messages: Sequence[Message]) -> tuple[list[Message], str | None]:
    """The conversation without its last turn, and that turn's goal; None when there was none."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].mark == "goal":
            return list(messages[:index]), messages[index].content
    return list(messages), None


class _Fold:
    def __init__(self, session: str) -> None:
        self.made = Rebuilt()
        self._session = session
        self._round: _Round | None = None
        self._interrupted: Counter[str] = Counter()
        self._of_agents: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._take: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "turn.started": self._turn_started,
            "model.requested": lambda _r: self.end_round(),
            "model.replied": self._replied,
            "reply.parsed": self._parsed,
            "tool.started": self._started,
            "fallback.started": self._side_started,
            "tool.settled": self._settled,
            "tool.finished": self._finished,
            "note.added": self._noted,
            "turn.finished": self._turn_finished,
            "turn.undone": self._turn_undone,
        }

    def take(self, record: Mapping[str, Any]) -> None:
        seq = record.get("seq")
        if isinstance(seq, int):
            self.made.seq = max(self.made.seq, seq)
        if record.get("session") != self._session:
            self._take_of_agent(record)
            return
        act = self._take.get(str(record.get("type")))
        if act is not None:
            act(record)

    def _take_of_agent(self, record: Mapping[str, Any]) -> None:
        """A sub-agent's events are in its parent's trajectory: of these, only what was lost counts."""
        call = str(record.get("session")), str(record.get("call_id"))
        kind = record.get("type")
        if kind == "tool.started":
            self._of_agents[call] = record
        if kind in {"tool.started", "fallback.started"}:
            self._side_started(record)
        elif kind == "tool.settled":
            self._settled(record)
        elif kind == "tool.finished" and call in self._of_agents:
            self._outcome(self._of_agents.pop(call), record)

    def end_round(self) -> None:
        """Puts the reply and its results, placeholders included, into the transcript."""
        done, self._round = self._round, None
        if done is None:
            return
        add = self.made.messages.append
        if not done.calls:
            if done.text.strip():
                add(Message(role="assistant", content=done.text))
            return
        for call in done.calls:
            if call.id not in done.results:
                done.results[call.id] = (call.name, self._placeholder(done, call))
        if done.in_text:
            content = text_calls((c.name, c.arguments) for c in done.calls)
            add(Message(role="assistant", content=content))
            text = text_results(done.results[c.id] for c in done.calls)
            mark: Mark = "pinned" if done.opened else "results"
            add(Message(role="user", content=text, mark=mark))
            return
        add(Message(role="assistant", content=done.text, tool_calls=tuple(done.calls)))
        for call in done.calls:
            tool, content = done.results[call.id]
            mark = "pinned" if call.id in done.opened else ""
            add(Message(role="tool", content=content, tool_call_id=call.id, tool=tool, mark=mark))

    def _placeholder(self, done: _Round, call: ToolCall) -> str:
        started = done.started.get(call.id)
        if started is None:
            return NOT_RUN
        if not started.get("idempotent"):
            return UNKNOWN
        fingerprint = str(started.get("fingerprint", ""))
        self._interrupted[fingerprint] += 1
        if self._interrupted[fingerprint] < MOST_INTERRUPTIONS:
            return INTERRUPTED
        how = f"was interrupted {self._interrupted[fingerprint]} times"
        self._lose(started, how)
        return f"no result: this call {how}, each time with the whole program. It is not made again"

    def _turn_started(self, record: Mapping[str, Any]) -> None:
        self.end_round()
        self.made.turns += 1
        self.made.interrupted = True
        self.made.messages.append(
            Message(role="user", content=str(record.get("goal", "")), mark="goal")
        )

    def _replied(self, record: Mapping[str, Any]) -> None:
        self.end_round()
        self._round = _Round(str(record.get("text") or ""), _calls(record))
        self._count_ids()

    def _parsed(self, record: Mapping[str, Any]) -> None:
        found = _calls(record)
        if self._round is not None and found:
            self._round.calls, self._round.in_text = found, True
            self._count_ids()

    def _started(self, record: Mapping[str, Any]) -> None:
        if self._round is not None:
            self._round.started[str(record.get("call_id"))] = record
        self._side_started(record)

    def _side_started(self, record: Mapping[str, Any]) -> None:
        """From now on its outcome is unknown, until a record says otherwise."""
        if record.get("idempotent"):
            fingerprint = str(record.get("fingerprint", ""))
            self.made.open_keys[fingerprint] = str(record.get("key", ""))
        else:
            self._lose(record)

    def _lose(self, record: Mapping[str, Any], how: str = "was interrupted") -> None:
        fingerprint = str(record.get("fingerprint", ""))
        tool, key = str(record.get("tool")), str(record.get("key", ""))
        self.made.lost[fingerprint] = LostCall(fingerprint, tool, key, how)

    def _settled(self, record: Mapping[str, Any]) -> None:
        fingerprint = str(record.get("fingerprint", ""))
        self.made.lost.pop(fingerprint, None)
        self.made.open_keys.pop(fingerprint, None)

    def _finished(self, record: Mapping[str, Any]) -> None:
        call_id = str(record.get("call_id"))
        self.made.spilled = self.made.spilled or bool(record.get("spilled_to"))
        if self._round is None:
            return
        self._round.results[call_id] = (str(record.get("tool")), str(record.get("content", "")))
        if record.get("tool") == "use_skill" and record.get("kind") == "ok":
            self._round.opened.add(call_id)
        started = self._round.started.get(call_id)
        if started is None:
            return
        self._interrupted.pop(str(started.get("fingerprint", "")), None)
        self._outcome(started, record)

    def _outcome(self, started: Mapping[str, Any], finished: Mapping[str, Any]) -> None:
        kind = str(finished.get("kind"))
        if started.get("tool") == "agent":
            self._settled(started)  # it ended; what its own calls left unknown has its own records
        elif kind in _LOST_HOW and finished.get("attempts"):
            if not started.get("idempotent"):
                self._lose(started, _LOST_HOW[kind])
        elif kind != "timeout" or not started.get("idempotent"):
            self._settled(started)

    def _noted(self, record: Mapping[str, Any]) -> None:
        self.end_round()
        text, messages = str(record.get("text", "")), self.made.messages
        if record.get("below") and messages:
            messages[-1] = replace(messages[-1], content=f"{messages[-1].content}\n\n{text}")
        else:
            messages.append(Message(role="user", content=text, mark="note"))

    def _turn_finished(self, record: Mapping[str, Any]) -> None:
        self.end_round()
        self.made.interrupted = False
        messages, status = self.made.messages, record.get("status")
        if status != "completed" and messages and messages[-1].role != "assistant":
            messages.append(Message(role="assistant", content=f"[The turn ended: {status}]"))

    def _turn_undone(self, _record: Mapping[str, Any]) -> None:
        self.end_round()
        self.made.messages, _goal = before_last_goal(self.made.messages)
        self.made.interrupted = False

    def _count_ids(self) -> None:
        for call in self._round.calls if self._round else ():
            match = re.fullmatch(r"call_(\d{1,9})", call.id)
            if match:
                self.made.ids = max(self.made.ids, int(match[1]))


def _calls(record: Mapping[str, Any]) -> list[ToolCall]:
    calls = []
    listed = record.get("calls")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            arguments: JSON = entry["arguments"] if isinstance(entry.get("arguments"), dict) else {}
            calls.append(ToolCall(id=str(entry.get("id")), name=entry["name"], arguments=arguments))
    return calls

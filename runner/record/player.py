"""Stands in for the model, its tools and their results: says again what was recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ..asking import add_note
from ..errors import ModelRefused, RunnerError
from ..events import Event
from ..hookspecs import hookimpl
from ..loop import NUDGE
from ..model.base import CallPart, Chunk, ModelInfo, ModelRequest
from ..state import Approver, SessionState, TurnCancelled, TurnEnded
from ..types import (
    Changes,
    Decision,
    Kind,
    Message,
    SessionInfo,
    Status,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from .divergence import Divergence, first_difference
from .resume import INTERRUPTED, NOT_RUN, UNKNOWN
from .tools import RecordedTools
from .turns import (
    Record,
    RecordedCall,
    RecordedReply,
    RecordedTurn,
    Story,
    figure,
    first_id,
    texts,
)

LOOP_NOTICE = "[Loop notice]"
OWN_NOTES = (LOOP_NOTICE, "[Not run: ", "[Limit reached]", NUDGE)
NOT_AGAIN = {"agent": "it would ask a model", "remember": "it would be remembered twice"}


class Over(RunnerError):
    """Nothing more to replay: the record ends here, or now went another way.

    One of our own errors, so that the loop lets it pass instead of calling it a model's failure.
    """


@dataclass(slots=True)
class Player:
    """A `Model` that gives the recorded replies, and a plugin that gives recorded results.

    Before each reply it compares what followed the last one with the record; the first
    difference ends the replay.
    """

    told: Story
    state: SessionState
    live: bool = False
    start: int = 1
    ask: Approver | None = None
    name: str = "recorded"
    compared: int = 0
    ran: int = 0
    divergence: Divergence | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    tools: RecordedTools | None = None
    _turn: RecordedTurn = field(default_factory=lambda: RecordedTurn(0, ""))
    _given: int = 0
    _settled: int = -1
    _events: list[dict[str, Any]] = field(default_factory=list)
    _names: dict[str, RecordedCall] = field(default_factory=dict)

    def begin(self, turn: RecordedTurn) -> None:
        """The next goal is about to be given."""
        self._turn, self._given, self._settled = turn, 0, -1
        self._events.clear()
        self._offer()

    def heard(self, event: Event) -> None:
        """Listens to what happens now."""
        self._events.append(event.to_dict())

    def settle(self) -> None:
        """Compares what followed the last reply; `Over` when it is not as recorded."""
        if self._settled == self._given:
            return
        self._settled = self._given
        replies = self._turn.replies
        reply = replies[self._given - 1] if self._given else None
        notes = self._turn.notes if reply is None else reply.notes
        if reply is not None and reply.number >= self.start:
            self._compare(reply)
        self._tell(reply, notes)
        self._events.clear()

    def end(self, status: str, answer: str) -> None:
        """Compares how the turn ended."""
        turn = self._turn
        self.settle()
        ahead = turn.replies[self._given :]
        last = turn.replies[-1].number if turn.replies else 0
        if turn.status == "interrupted" and not ahead:
            return  # the process died before it could write how the turn ended
        if status != turn.status or ahead:
            recorded = f"goes on: {_said(ahead[0])}" if ahead else turn.status
            self._diverge("the end of the turn", last, recorded, f"{status}\n{answer}")
        told = turn.answer
        if status == Status.COMPLETED and answer != told and last >= self.start:
            self._diverge("the answer", last, told, answer)

    async def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The next recorded reply."""
        self.settle()
        if self._given >= len(self._turn.replies):
            raise self._ended()
        reply = self._turn.replies[self._given]
        self._given += 1
        self._expect(reply)
        self._offer()
        if reply.text:
            yield Chunk(text=reply.text)
        for index, call in enumerate(reply.calls if reply.native else ()):
            faulty = call.kind == Kind.UNPARSABLE
            arguments = f"unreadable: {call.content}" if faulty else call.arguments
            yield Chunk(call=CallPart(index=index, id=call.id, name=call.tool, arguments=arguments))
        yield Chunk(finish=reply.finish or "stop", usage=_usage(reply.usage))

    async def describe(self) -> ModelInfo:
        """Nothing is known about it."""
        return ModelInfo(name=self.name)

    def cost(self, usage: Usage) -> float:
        """Nothing: no model is asked."""
        return 0.0

    async def close(self) -> None:
        """Nothing to free."""

    @hookimpl(tryfirst=True)
    async def pre_tool_use(
        self, call: ToolCall, tool: Tool, session: SessionInfo
    ) -> Decision | None:
        """Answers with the recorded result where the tool is not to run."""
        recorded = self._instead(call)
        if recorded is None and self.live:
            return None
        return Decision("answer", content=recorded.content if recorded else "not in the record")

    @hookimpl(trylast=True)
    async def post_tool_use(
        self, call: ToolCall, result: ToolResult, session: SessionInfo
    ) -> ToolResult | None:
        """Puts the recorded result in place of one that did not come from the tool."""
        recorded = self._names.get(call.id)
        if recorded is None:
            return None
        if self._instead(call) is None:
            refused = result.kind is Kind.DENIED and call.id in self.refused
            if not refused or recorded.kind == Kind.DENIED:
                self.ran += result.attempts > 0
                return None
            self.left_out[recorded.id] = "it needs permission, and nobody gave it"
        if self.state.turn is not None and recorded.queued:
            self.state.turn.tool_calls += 1
        return result_of(recorded, call.id)

    async def approver(self, call: ToolCall, tool: Tool, session: SessionInfo) -> Any:
        """Asks whoever there is; without a yes the recorded result stands."""
        said = "deny" if self.ask is None else await self.ask(call, tool, session)
        if said not in (True, "allow", "allow_session"):
            self.refused.add(call.id)
        return said

    def _instead(self, call: ToolCall) -> RecordedCall | None:
        """The recorded call when its tool is not to run."""
        recorded = self._names.get(call.id)
        if recorded is None or not self.live:
            return recorded
        if self._turn.replies[self._given - 1].number < self.start:
            return recorded
        why = NOT_AGAIN.get(recorded.tool, "")
        if recorded.redacted:
            why = "its arguments were redacted on disk"
        if why:
            self.left_out[recorded.id] = why
        return recorded if why else None

    def _expect(self, reply: RecordedReply) -> None:
        """Makes the ids of the calls the recorded ones, and the reply read as it was."""
        number = first_id(reply.calls)
        self.state.ids = number - 1 if number else self.state.ids
        fresh = range(self.state.ids + 1, self.state.ids + 1 + len(reply.calls))
        self._names = {f"call_{n:04d}": c for n, c in zip(fresh, reply.calls, strict=True)}
        self.state.mode = "native" if reply.native or reply.parsed is not None else "json"

    def _offer(self) -> None:
        """Offers what was offered when the next reply was asked for."""
        if self.tools is not None and self._given < len(self._turn.replies):
            self.tools.offer(self._turn.replies[self._given].tools)

    def _compare(self, reply: RecordedReply) -> None:
        last = self._given == len(self._turn.replies)
        events = [
            {**e, "call_id": self._names[e["call_id"]].id} if e.get("call_id") in self._names else e
            for e in self._events
        ]
        self.divergence = self.divergence or first_difference(
            self._turn.number,
            reply,
            events,
            results=self.live,
            brakes=not (last and self._turn.status in {"cancelled", "interrupted"}),
        )
        self.compared += len(reply.calls)
        if self.divergence is not None:
            raise Over

    def _tell(self, reply: RecordedReply | None, notes: list[Record]) -> None:
        """Says again what a user said in between, and checks what the runner says by itself."""
        number = 0 if reply is None else reply.number
        said = [str(e.get("text")) for e in self._events if e.get("type") == "note.added"]
        for note in notes:
            text = str(note.get("text", ""))
            if said and _same_note(said[0], text):
                said.pop(0)
            elif not text.startswith(OWN_NOTES):
                self._repeat(text, below=bool(note.get("below")))
            elif number >= self.start:
                self._diverge("what the model is told", number, text, said[0] if said else "")
        if said and number >= self.start:
            self._diverge("what the model is told", number, "", said[0])

    def _repeat(self, text: str, *, below: bool) -> None:
        """Says what the record alone knows: that a tool was edited, or what the user said."""
        if below:
            add_note(self.state, text, below=True)
        else:
            self.state.add(Message(role="user", content=text))

    def _diverge(self, what: str, number: int, recorded: str, now: str) -> None:
        self.divergence = Divergence(
            what=what, turn=self._turn.number, number=number, recorded=recorded, now=now
        )
        raise Over

    def _ended(self) -> Exception:
        """Ends the turn as it was ended when the record has no further reply."""
        turn = self._turn
        reason = str((turn.finished or {}).get("reason") or "")
        match turn.status:
            case Status.CANCELLED:
                return TurnCancelled()
            case Status.BUDGET_EXHAUSTED:
                return TurnEnded(Status.BUDGET_EXHAUSTED, reason or turn.answer.split("\n")[0])
            case Status.FAILED | Status.MAX_ITERATIONS:
                return ModelRefused(reason or "the model failed")
            case "interrupted":
                return Over()
        number = turn.replies[-1].number if turn.replies else 0
        try:
            self._diverge("the end of the turn", number, turn.status, "asks the model again")
        except Over as over:
            return over
        return Over()


def result_of(recorded: RecordedCall, call_id: str) -> ToolResult:
    """The recorded result, or what a resumed session says of a call without one."""
    record = recorded.finished or {}
    changes = record.get("changes")
    return ToolResult(
        call_id=call_id,
        tool=str(record.get("tool") or recorded.tool),
        kind=_kind(recorded),
        content=recorded.content if recorded.finished else _placeholder(recorded),
        attempts=int(figure(record.get("attempts"))),
        degraded_by=_text(record.get("degraded_by")),
        changes=None
        if not isinstance(changes, dict)
        else Changes(*(texts(changes.get(n)) for n in ("created", "modified", "deleted"))),
        spilled_to=_text(record.get("spilled_to")),
        duration=figure(record.get("duration")),
        coerced=texts(record.get("coerced")),
        output=str(record.get("output") or ""),
    )


def _kind(recorded: RecordedCall) -> Kind:
    try:
        return Kind(recorded.kind)
    except ValueError:
        return Kind.CANCELLED


def _placeholder(recorded: RecordedCall) -> str:
    if recorded.started is None:
        return NOT_RUN
    return INTERRUPTED if recorded.started.get("idempotent") else UNKNOWN


def _usage(usage: Record) -> Usage | None:
    if not usage:
        return None
    return Usage(*(int(figure(usage.get(n))) for n in ("input_tokens", "output_tokens")))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _same_note(now: str, recorded: str) -> bool:
    """The loop guard's verdict is compared as such; its advice depends on what no record holds."""
    return now == recorded or (now.startswith(LOOP_NOTICE) and recorded.startswith(LOOP_NOTICE))


def _said(reply: RecordedReply) -> str:
    return ", ".join(c.tool for c in reply.calls) or reply.text

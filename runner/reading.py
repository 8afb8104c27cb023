"""What a reply means: an answer, calls, a fault to tell the model about, or nothing at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .calls.schema import checker
from .model.prompt import text_calls
from .offering import Prepared
from .parsing import Parsed, read
from .state import SessionState
from .types import Message, ModelReply, Source, ToolCall

TEXT_CALLS_BEFORE_JSON = (
    2  # calls that arrived as text until the session stops offering them natively
)

MOST_LEVELS = 100  # of arguments inside each other
MOST_CUTS = 8  # until a text holds no part of a call any more
_OPENED = re.compile(r"```[\w-]*\s*\Z")  # the fence around a call


@dataclass(frozen=True, slots=True)
class Answer:
    """The model answered."""

    text: str


@dataclass(frozen=True, slots=True)
class Calls:
    """The model asks for tools. `in_text`: results go back as text, too."""

    calls: tuple[ToolCall, ...]
    said: str
    in_text: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """Something like a call that cannot be run; `detail` goes back to the model."""

    reason: str
    detail: str
    said: str


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing, or only reasoning."""


Reading = Answer | Calls | Fault | Silence


def read_reply(session: SessionState, reply: ModelReply, prepared: Prepared) -> Reading:
    """Native calls, else what the text holds."""
    if reply.tool_calls:
        if any(call.fault for call in reply.tool_calls):
            session.emit(
                "reply.parsed",
                kind="error",
                recogniser="native",
                reason="truncated" if reply.finish == "length" else _fault_reason(reply),
            )
        return Calls(tuple(map(_shallow, reply.tool_calls)), reply.text, in_text=False)
    parsed = _parsed(session, reply, prepared)
    if parsed.kind == "final":
        if parsed.recogniser or parsed.reason not in {"", "plain_text"}:
            _report(session, parsed)
        return Answer(parsed.text.strip()) if parsed.text.strip() else Silence()
    if parsed.kind == "calls" or parsed.rejected:
        return _as_calls(session, parsed)
    if parsed.reason == "empty":
        return Silence()
    _report(session, parsed)
    return Fault(parsed.reason, parsed.detail, reply.text)


def said(session: SessionState, reply: ModelReply, prepared: Prepared) -> str:
    """What a reply says besides calls, for an answer after which nothing runs."""
    if reply.tool_calls:
        return ""
    parsed = _parsed(session, reply, prepared)
    for _ in range(MOST_CUTS):
        if parsed.kind == "final" or parsed.span is None:
            break
        begins = parsed.span[0]
        if begins >= len(reply.text):  # a call that was cut off, and begins somewhere before
            begins = max(0, reply.text.rfind("<"))
        reply = replace(reply, text=_OPENED.sub("", reply.text[:begins]))
        parsed = _parsed(session, reply, prepared)
    return parsed.text.strip() if parsed.kind == "final" else ""


def assistant_message(reading: Reading, reply: ModelReply) -> Message | None:
    """What the history keeps of the reply: of a call in text, the call and nothing around it."""
    match reading:
        case Calls(calls, said, in_text):
            if in_text:
                content = text_calls((c.name, c.arguments) for c in calls)
                return Message(role="assistant", content=content)
            return Message(
                role="assistant", content=said, tool_calls=calls, reasoning=reply.reasoning
            )
        case Answer(text) | Fault(said=text):
            return Message(role="assistant", content=text)
        case Silence():
            return None


def _parsed(session: SessionState, reply: ModelReply, prepared: Prepared) -> Parsed:
    offered = prepared.offer.tools

    def fits(name: str, arguments: dict[str, Any]) -> bool:
        return checker(offered[name].parameters).fits(arguments)

    schemas: Mapping[str, Mapping[str, Any]] = {n: t.parameters for n, t in offered.items()}
    return read(
        reply.text,
        schemas,
        fits=fits,
        finish=reply.finish,
        mode="json" if session.mode == "json" else "native",
        policy=session.config.parsing.policy,  # type: ignore[arg-type] # the config checked the choice
        tool_outputs=session.recent_outputs,
    )


def _as_calls(session: SessionState, parsed: Parsed) -> Calls:
    found = parsed.calls or parsed.rejected
    source: Source = "strict" if parsed.recogniser == "strict" else "extracted"
    calls = tuple(
        ToolCall(id=session.next_id(), name=c.name, arguments=c.arguments, source=source)
        for c in found
    )
    _report(session, parsed, calls)
    session.text_calls += 1
    configured = session.config.model.tool_mode
    if configured == "auto" and session.text_calls >= TEXT_CALLS_BEFORE_JSON:
        session.mode = "json"
    return Calls(calls, "", in_text=True)


def _report(session: SessionState, parsed: Parsed, calls: tuple[ToolCall, ...] = ()) -> None:
    session.emit(
        "reply.parsed",
        kind=parsed.kind,
        recogniser=parsed.recogniser,
        reason=parsed.reason,
        calls=[{"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls],
    )


def _shallow(call: ToolCall) -> ToolCall:
    """The call, or one that will not run: what is nested that deep breaks whatever walks it."""
    level: list[Any] = [call.arguments]
    for _ in range(MOST_LEVELS):
        inner = [part for one in level for part in (one.values() if type(one) is dict else one)]
        level = [part for part in inner if type(part) in {dict, list}]
        if not level:
            return call
    fault = f"its arguments are nested more than {MOST_LEVELS} levels deep; send flatter ones"
    return replace(call, arguments={}, fault=fault)


def _fault_reason(reply: ModelReply) -> str:
    faults = " ".join(c.fault for c in reply.tool_calls)
    return "truncated" if "cut" in faults or "truncated" in faults else "malformed"

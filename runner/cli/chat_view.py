"""What a conversation shows of its events: calls with their state and time, reloads, brakes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..events import Event
from ..redact import Redactor
from ..state import SessionState
from .chat_screen import Line, Part, Screen
from .text import seconds

TICK_S = 0.1
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ARGUMENT_CHARS = 60
_RESULT_CHARS = 120
_STATES = {"queued": "dim", "running": "cyan", "retried": "yellow"}


@dataclass(slots=True)
class Shown:
    """One call that has not finished."""

    tool: str
    arguments: str
    since: float
    state: str = "queued"
    said: str = ""
    inner: bool = False


@dataclass(slots=True)
class Heard:
    """What the commands want to know of the last turn."""

    events: list[Event] = field(default_factory=list)
    reason: str = ""


class ChatView:
    """A listener of one session. Everything a model, a skill or a user wrote goes through `one_line`."""

    def __init__(
        self,
        screen: Screen,
        session: str,
        redactor: Redactor,
        kept: Callable[[str], bool] = lambda _skill: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._session = session
        self._redactor = redactor
        self._kept = kept
        self._clock = clock
        self._calls: dict[str, Shown] = {}
        self._doing, self._since = "", clock()
        self._asking = False
        self._reply = self._last = ""
        self._streams = {style: redactor.stream() for style in ("", "dim")}
        self._mode = "native"
        self.heard = Heard()

    def follow(self, state: SessionState) -> None:
        """Shows the model's text as it comes, too."""
        self._mode = state.mode
        state.on_text = self._text
        state.on_reasoning = self._reasoning
        state.on_restart = self._restart

    async def tick(self) -> None:
        """Keeps the seconds moving, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self._draw()

    def answered(self, answer: str) -> bool:
        """Has the answer been shown already, as it came?"""
        self._calls.clear()
        self._now("")
        shown = " ".join(self._last.split()) == " ".join(answer.split())
        self._screen.keep()
        self._screen.draw([])
        return shown and bool(answer.strip())

    def __call__(self, event: Event) -> None:
        """Shows what happened."""
        self._remember(event)
        name = event.type.replace(".", "_")
        act = getattr(self, f"_on_{name}", None)
        if act is not None:
            act(event.data, event)
        self._draw()

    # ---- the model's text

    def _text(self, piece: str) -> None:
        self._settle("dim")
        self._show(self._streams[""].feed(piece))

    def _reasoning(self, piece: str) -> None:
        if self._screen.animated:
            self._screen.stream(self._streams["dim"].feed(piece), "dim")

    def _show(self, text: str) -> None:
        self._reply += text
        if self._screen.animated:
            self._screen.stream(text, "dim" if self._mode == "json" else "")

    def _settle(self, stream: str) -> None:
        """Shows what the redactor held back for fear of a secret cut in two."""
        rest = self._streams[stream].end()
        if stream == "dim" and self._screen.animated:
            self._screen.stream(rest, "dim")
        elif rest:
            self._show(rest)

    def _restart(self) -> None:
        self._screen.take_away()
        self._reply = ""
        self._streams = {style: self._redactor.stream() for style in ("", "dim")}

    def _on_model_requested(self, data: Mapping[str, Any], event: Event) -> None:
        if event.session == self._session:
            self._screen.keep()
            self._restart()
        self._now("thinking")

    def _on_model_retried(self, data: Mapping[str, Any], event: Event) -> None:
        again = seconds(float(data.get("delay") or 0))
        self._screen.line(
            ("yellow", "↺ "),
            f"the model is asked again in {again}: ",
            ("dim", str(data.get("reason"))),
        )

    def _on_model_replied(self, data: Mapping[str, Any], event: Event) -> None:
        if event.session != self._session:
            return
        self._settle("dim")
        self._settle("")
        self._now("")
        self._last = self._reply if self._screen.animated and self._mode != "json" else ""
        if self._mode == "json":
            self._screen.take_away()

    def _on_reply_parsed(self, data: Mapping[str, Any], event: Event) -> None:
        if event.session == self._session and data.get("kind") != "final":
            self._screen.take_away()
            self._last = ""

    # ---- calls

    def _on_tool_queued(self, data: Mapping[str, Any], event: Event) -> None:
        self._calls[_id(data, event)] = Shown(
            str(data.get("tool")), _arguments(data.get("arguments")), self._clock(),
            inner=event.session != self._session,
        )  # fmt: skip

    def _on_tool_started(self, data: Mapping[str, Any], event: Event) -> None:
        call = self._calls.get(_id(data, event))
        if call is not None:
            call.state, call.since = "running", self._clock()
            if not self._screen.animated:
                self._screen.line(*_indent(call), "… ", call.tool, ("dim", f" {call.arguments}"))

    def _on_tool_progressed(self, data: Mapping[str, Any], event: Event) -> None:
        call = self._calls.get(_id(data, event))
        if call is not None:
            call.said = str(data.get("text"))

    def _on_tool_retried(self, data: Mapping[str, Any], event: Event) -> None:
        call = self._calls.get(_id(data, event))
        if call is not None:
            call.state = "retried"
            self._screen.line(
                *_indent(call),
                ("yellow", "↺ "),
                call.tool,
                ("dim", f" attempt {data.get('attempt')}: {data.get('reason')}"),
            )

    def _on_tool_finished(self, data: Mapping[str, Any], event: Event) -> None:
        call = self._calls.pop(_id(data, event), None) or Shown(
            str(data.get("tool")), "", self._clock(), inner=event.session != self._session
        )
        self._screen.line(*_finished(call, data))
        for sign, key in (("+", "created"), ("~", "modified"), ("-", "deleted")):
            for name in ((data.get("changes") or {}).get(key) or ())[:8]:
                self._screen.line(*_indent(call), ("dim", f"    {sign} {name}"))

    def _on_tool_late(self, data: Mapping[str, Any], event: Event) -> None:
        took = seconds(float(data.get("duration") or 0))
        self._screen.line(
            ("dim", f"  {data.get('tool')} has ended at last, {took} after it was given up")
        )

    # ---- questions, brakes, skills

    def _on_approval_asked(self, data: Mapping[str, Any], event: Event) -> None:
        self._screen.draw([])
        self._asking = True

    def _on_approval_answered(self, data: Mapping[str, Any], event: Event) -> None:
        self._asking = False

    def _on_slot_waiting(self, data: Mapping[str, Any], event: Event) -> None:
        self._now(f"waiting, number {data.get('position')} in the queue")

    def _on_breaker_opened(self, data: Mapping[str, Any], event: Event) -> None:
        pause = seconds(float(data.get("pause") or 0))
        self._screen.line(
            ("red", "⏸ "), f"{data.get('tool')} keeps failing; not called for {pause}"
        )

    def _on_breaker_closed(self, data: Mapping[str, Any], event: Event) -> None:
        self._screen.line(("green", "▶ "), f"{data.get('tool')} works again")

    def _on_loop_noticed(self, data: Mapping[str, Any], event: Event) -> None:
        self._screen.line(
            ("yellow", "⟳ "),
            f"the model repeats itself ({data.get('count')} times): {data.get('tool')}",
        )

    _on_loop_refused = _on_loop_noticed

    def _on_context_truncated(self, data: Mapping[str, Any], event: Event) -> None:
        how = event.type.partition(".")[2]
        before, after = data.get("before_tokens"), data.get("after_tokens")
        self._screen.line(("dim", f"  context {how}: {before} → {after} tokens"))

    _on_context_summarised = _on_context_slid = _on_context_truncated

    def _on_memory_saved(self, data: Mapping[str, Any], event: Event) -> None:
        self._screen.line(("dim", f"  remembered as {data.get('key')}"))

    def _on_agent_started(self, data: Mapping[str, Any], event: Event) -> None:
        self._screen.line(("cyan", "⤷ "), f"agent {data.get('agent')}")

    def _on_skills_changed(self, data: Mapping[str, Any], event: Event) -> None:
        for line in reload_lines(data, self._kept):
            self._screen.text_of(line)

    def _on_turn_finished(self, data: Mapping[str, Any], event: Event) -> None:
        if event.session == self._session:
            self.heard.reason = str(data.get("reason", ""))

    def _remember(self, event: Event) -> None:
        if event.type == "turn.started" and event.session == self._session:
            self.heard = Heard()
        self.heard.events.append(event)

    def _now(self, doing: str) -> None:
        self._doing, self._since = doing, self._clock()

    def _draw(self) -> None:
        if self._asking:
            return
        now = self._clock()
        spin = SPINNER[int(now / TICK_S) % len(SPINNER)]
        lines: list[Line] = [_live(call, spin, now) for call in self._calls.values()]
        if not lines and self._doing:
            lines = [[("cyan", spin), ("dim", f" {self._doing} {seconds(now - self._since)}")]]
        self._screen.draw(lines)


def reload_lines(data: Mapping[str, Any], kept: Callable[[str], bool]) -> list[list[Part]]:
    """A reload, skill by skill. `kept`: does the last good version of that skill stay in use?"""
    lines: list[list[Part]] = []
    for key, sign in (("added", "+"), ("updated", "↻"), ("removed", "−")):
        lines += [[("green", f"{sign} "), ("", f"{name} {key}")] for name in data.get(key) or ()]
    for name, reason in (data.get("failed") or {}).items():
        what = "keeping the last good version" if kept(name) else "left out"
        lines.append([("red", "✗ "), ("", f"{name}: {reason}"), ("dim", f"; {what}")])
    return lines


def _id(data: Mapping[str, Any], event: Event) -> str:
    return f"{event.session} {data.get('call_id')}"


def _indent(call: Shown) -> list[Part]:
    return [("", "    " if call.inner else "  ")]


def _live(call: Shown, spin: str, now: float) -> Line:
    sign = spin if call.state != "queued" else "·"
    said = f"  {call.said}" if call.said else ""
    took = "" if call.state == "queued" else f" {seconds(now - call.since)}"
    return [
        *_indent(call), (_STATES[call.state], sign), ("", f" {call.tool} "),
        (_STATES[call.state], f"{call.state}{took}"), ("dim", f" {call.arguments}{said}"),
    ]  # fmt: skip


def _finished(call: Shown, data: Mapping[str, Any]) -> list[Part]:
    ok, content = bool(data.get("ok")), " ".join(str(data.get("content", "")).split())
    by = data.get("degraded_by")
    sign = ("green", "✓ ") if ok and not by else ("yellow", "≈ ") if ok else ("red", "✗ ")
    took = seconds(float(data.get("duration") or 0))
    tries = f", {data['attempts']} attempts" if int(data.get("attempts") or 0) > 1 else ""
    line: list[Part] = [
        *_indent(call),
        sign,
        ("", call.tool),
        ("dim", f" {took}{tries} {call.arguments}"),
    ]
    if by:
        line.append(("yellow", f" answered by {by}"))
    if not ok:
        line.append(("red", f" {data.get('kind')}: "))
    arrow = " → " if ok else ""
    return [*line, ("dim", f"{arrow}{cut(content, _RESULT_CHARS)}")]


def _arguments(value: Any) -> str:
    if not isinstance(value, Mapping) or not value:
        return ""
    parts = [
        f"{name}={json.dumps(part, ensure_ascii=False, default=str)}"
        for name, part in value.items()
    ]
    text = " ".join(" ".join(parts).split())
    return cut(text, _ARGUMENT_CHARS)


def cut(text: str, most: int) -> str:
    """The text, at most so many characters of it, with an ellipsis for what is left out."""
    return text if len(text) <= most else text[: most - 1] + "…"

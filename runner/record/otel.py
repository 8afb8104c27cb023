"""Events as OpenTelemetry spans and metrics, by the GenAI semantic conventions. The extra `otel`.

A turn is a span `invoke_agent`; below it lie `chat` for each model request and `execute_tool` for each
call, and below the call of an agent that agent's own turn. Switched on by `[plugins] modules =
["runner.record.otel"]`; where spans go is said by the standard `OTEL_EXPORTER_OTLP_*` variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ..events import PLAIN_FIELDS, Event
from ..hookspecs import hookimpl
from .otel_setup import instruments, providers

CONTENTS = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROVIDERS = {  # ours → the conventions'
    "gemini": "gcp.gemini", "vertex_ai": "gcp.vertex_ai", "mistral": "mistral_ai", "xai": "x_ai",
    "azure": "azure.ai.openai", "bedrock": "aws.bedrock", "ollama_chat": "ollama",
}  # fmt: skip
_POINTS = (  # what happens in a turn and takes no time
    "slot.", "approval.", "breaker.", "loop.", "context.", "skills.", "memory.", "note.",
)  # fmt: skip


def make_plugin() -> OtelPlugin:
    """The plugin of one runner, as the environment describes it. `PluginError` without the extra."""
    return OtelPlugin()


@dataclass(slots=True)
class _Open:
    """A span under way, with what its metrics need."""

    span: Any
    began: int
    about: dict[str, Any]


@dataclass(slots=True)
class _Turn:
    """A turn under way: its span, the model request and the calls that have not ended."""

    own: _Open
    chat: _Open | None = None
    calls: dict[str, _Open] = field(default_factory=dict)


class OtelPlugin:
    """A listener that makes spans and metrics of events.

    Without providers it takes those the host has set up, else it exports by OTLP over HTTP itself.
    `contents`: prompts, arguments and results, too; off unless `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`
    says so.
    """

    def __init__(
        self,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        *,
        contents: bool | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        made = providers(tracer_provider, meter_provider, environ)
        from opentelemetry import trace

        self._trace, self._own = trace, made.owned
        self._tracer = made.tracing.get_tracer("slotrunner")
        self._duration, self._tokens = instruments(made.metering.get_meter("slotrunner"))
        said = environ.get(CONTENTS, "").strip().lower() not in {"", "0", "false", "no_content"}
        self._contents = said if contents is None else contents
        self._turns: dict[str, _Turn] = {}
        self._agents: dict[str, tuple[str, Any]] = {}
        self._take: dict[str, Callable[[Event, int], None]] = {
            "agent.started": self._agent_started,
            "turn.started": self._turn_started,
            "model.requested": self._model_requested,
            "model.replied": self._model_replied,
            "model.retried": self._model_retried,
            "tool.started": self._tool_started,
            "tool.retried": self._tool_retried,
            "tool.finished": self._tool_finished,
            "turn.finished": self._turn_finished,
        }

    @hookimpl
    def event_emitted(self, event: Event) -> None:
        """Opens, marks or ends a span. Events of a turn that was not seen to begin are left out."""
        at = _nanoseconds(event.time)
        act = self._take.get(event.type)
        if act is not None:
            act(event, at)
        elif event.type.startswith(_POINTS) and event.session in self._turns:
            self._turns[event.session].own.span.add_event(event.type, _plain(event.data), at)

    def close(self) -> None:
        """Ends what is open and sends what is waiting, where the providers are our own."""
        for turn in self._turns.values():
            for one in (turn.chat, *turn.calls.values(), turn.own):
                if one is not None:
                    one.span.end()
        self._turns.clear()
        for provider in self._own:
            provider.shutdown()

    # turns

    def _agent_started(self, event: Event, at: int) -> None:
        parent = self._turns.get(str(event.data.get("parent")))
        call = parent.calls.get(str(event.data.get("call_id"))) if parent is not None else None
        below = call or (parent.own if parent is not None else None)
        name = str(event.data.get("agent") or "default")
        self._agents[event.session] = name, below.span if below is not None else None

    def _turn_started(self, event: Event, at: int) -> None:
        name, parent = self._agents.pop(event.session, ("slotrunner", None))
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        own = self._begin(f"invoke_agent {name}", event, at, about, parent)
        own.span.set_attribute("runner.turn", event.turn)
        if self._contents:
            own.span.set_attribute("gen_ai.input.messages", _said("user", event.data.get("goal")))
        self._turns[event.session] = _Turn(own)

    def _turn_finished(self, event: Event, at: int) -> None:
        turn = self._turns.pop(event.session, None)
        if turn is None:
            return
        status = str(event.data.get("status"))
        for left in (turn.chat, *turn.calls.values()):
            if left is not None:
                self._end(left, at, status)
        turn.own.span.set_attributes(
            {"runner.turn.status": status, "runner.turn.iterations": event.data["iterations"],
             "runner.turn.tool_calls": event.data["tool_calls"], "runner.turn.cost": event.data["cost"],
             **_usage(event.data.get("usage"))}
        )  # fmt: skip
        if self._contents:
            said = _said("assistant", event.data.get("answer"))
            turn.own.span.set_attribute("gen_ai.output.messages", said)
        self._end(turn.own, at, "" if status == "completed" else status)

    # the model

    def _model_requested(self, event: Event, at: int) -> None:
        turn = self._turns.get(event.session)
        if turn is None:
            return
        if turn.chat is not None:
            self._end(turn.chat, at, "unanswered")
        provider, _, model = str(event.data.get("model") or "").partition("/")
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
            "gen_ai.request.model": model or provider,
        }
        kind = self._trace.SpanKind.CLIENT
        name = f"chat {model or provider}"
        turn.chat = self._begin(name, event, at, about, turn.own.span, kind)
        turn.own.span.set_attributes(about | {"gen_ai.operation.name": "invoke_agent"})

    def _model_replied(self, event: Event, at: int) -> None:
        turn = self._turns.get(event.session)
        if turn is None or turn.chat is None:
            return
        chat, turn.chat = turn.chat, None
        usage = _usage(event.data.get("usage"))
        reason = str(event.data.get("finish_reason") or "stop")
        chat.span.set_attributes({**usage, "gen_ai.response.finish_reasons": [reason]})
        if self._contents:
            said = _said("assistant", event.data.get("text"), event.data.get("calls"), reason)
            chat.span.set_attribute("gen_ai.output.messages", said)
        for key, count in usage.items():
            sort = key.rsplit(".", 1)[1].removesuffix("_tokens")
            self._tokens.record(count, {**chat.about, "gen_ai.token.type": sort})
        self._end(chat, at)

    def _model_retried(self, event: Event, at: int) -> None:
        turn = self._turns.get(event.session)
        if turn is not None and turn.chat is not None:
            turn.chat.span.add_event("model.retried", _plain(event.data), at)

    # calls

    def _tool_started(self, event: Event, at: int) -> None:
        turn = self._turns.get(event.session)
        if turn is not None:
            turn.calls[str(event.data["call_id"])] = self._call(event, at, turn)

    def _tool_retried(self, event: Event, at: int) -> None:
        turn = self._turns.get(event.session)
        call = turn.calls.get(str(event.data["call_id"])) if turn is not None else None
        if call is not None:
            call.span.add_event("tool.retried", _plain(event.data), at)

    def _tool_finished(self, event: Event, at: int) -> None:
        turn = self._turns.get(event.session)
        if turn is None:
            return
        call = turn.calls.pop(str(event.data["call_id"]), None)
        if call is None:  # refused: it never started
            call = self._call(event, at, turn)
        call.span.set_attribute("runner.tool.attempts", event.data.get("attempts") or 0)
        if event.data.get("degraded_by"):
            call.span.set_attribute("runner.tool.degraded_by", str(event.data["degraded_by"]))
        if self._contents:
            call.span.set_attribute("gen_ai.tool.call.result", str(event.data.get("content")))
        self._end(call, at, "" if event.data.get("ok") else str(event.data.get("kind")))

    def _call(self, event: Event, at: int, turn: _Turn) -> _Open:
        name = str(event.data["tool"])
        about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        call = self._begin(f"execute_tool {name}", event, at, about, turn.own.span)
        call.span.set_attribute("gen_ai.tool.call.id", str(event.data["call_id"]))
        call.span.set_attribute("gen_ai.tool.type", "function")
        if self._contents and "arguments" in event.data:
            call.span.set_attribute("gen_ai.tool.call.arguments", _json(event.data["arguments"]))
        return call

    # spans

    def _begin(
        self,
        name: str,
        event: Event,
        at: int,
        about: dict[str, Any],
        parent: Any,
        kind: Any = None,
    ) -> _Open:
        context = None if parent is None else self._trace.set_span_in_context(parent)
        span = self._tracer.start_span(
            name,
            context=context if context is not None else _no_context(),
            kind=kind or self._trace.SpanKind.INTERNAL,
            attributes={**about, "gen_ai.conversation.id": event.session},
            start_time=at,
        )
        return _Open(span, at, about)

    def _end(self, one: _Open, at: int, error: str = "") -> None:
        about = one.about
        if error:
            about = {**about, "error.type": error}
            one.span.set_attribute("error.type", error)
            one.span.set_status(self._trace.StatusCode.ERROR)
        one.span.end(at)
        self._duration.record(max(0, at - one.began) / 1e9, about)


def _no_context() -> Any:
    from opentelemetry.context import Context

    return Context()  # a turn is nobody's child, whatever goes on where its events are handled


def _nanoseconds(time: str) -> int:
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1) * 1000


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that hold no text of a user, model or skill."""
    return {
        key: value
        for key, value in data.items()
        if key in PLAIN_FIELDS and isinstance(value, str | int | float | bool)
    }


def _usage(usage: Any) -> dict[str, int]:
    if not isinstance(usage, Mapping):
        return {}
    return {f"gen_ai.usage.{k}": usage[k] for k in ("input_tokens", "output_tokens") if k in usage}


def _said(role: str, text: Any, calls: Any = None, finish: str = "") -> str:
    parts: list[dict[str, Any]] = [{"type": "text", "content": str(text)}] if text else []
    parts += [{"type": "tool_call", **call} for call in calls or ()]
    message = {"role": role, "parts": parts}
    return _json([message | {"finish_reason": finish} if finish else message])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)

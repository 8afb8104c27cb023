"""OpenTelemetry: what a turn does as spans and metrics, by the GenAI conventions, without contents."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trajectories as t

from runner import PluginError, Runner, ScriptedModel, ToolError, TurnResult
from runner.events import Event

REASON = "OpenTelemetry is not installed: pip install 'slotrunner[otel]'"
pytest.importorskip("opentelemetry.sdk", reason=REASON)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=REASON)

from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

from runner.record.otel import OtelPlugin  # noqa: E402

CHILD = "You work on one task for another agent"


def look(name: str) -> str:
    """Looks at something."""
    return f"{name} was looked at"


def broken() -> str:
    """Fails."""
    raise ToolError("it does not work")


class Watched:
    """A run with an in-memory exporter: its spans, its metrics, its events."""

    def __init__(self, folder: Path, script: Any, *, model: Any = None, **options: Any) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracing = TracerProvider()
        tracing.add_span_processor(SimpleSpanProcessor(self.exporter))
        plugin = OtelPlugin(tracing, MeterProvider([self.reader]), environ={}, **options)
        self.events: list[Event] = []

        async def main() -> TurnResult:
            runner = Runner(
                model=model or ScriptedModel(script, "scripted/m:7b"), skills=[look, broken],
                plugins=[plugin], config=t.config(folder),
            )  # fmt: skip
            async with runner:
                return await runner.run("the goal", session="s1", listeners=[self.events.append])

        self.result = asyncio.run(main())
        self.spans = {}
        for span in self.exporter.get_finished_spans():
            self.spans.setdefault(span.name, []).append(span)

    def metric(self, name: str) -> list[Any]:
        """The points of a metric."""
        data = self.reader.get_metrics_data()
        found = [
            m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name
        ]  # fmt: skip
        return [point for metric in found for point in metric.data.data_points]

    def at(self, type_: str, **fields: Any) -> int:
        """When an event happened, in nanoseconds."""
        (event,) = [
            e.to_dict()
            for e in self.events
            if e.type == type_ and all(e.to_dict().get(k) == v for k, v in fields.items())
        ]
        return round(datetime.fromisoformat(event["time"]).timestamp() * 1e6) * 1000


def test_a_turn_is_a_span_with_its_requests_and_calls_below_it(tmp_path):
    w = Watched(tmp_path, {"replies": [t.call("look", name="a"), t.say("seen")]})
    (turn,), chats, (call,) = (
        w.spans["invoke_agent slotrunner"],
        w.spans["chat m:7b"],
        w.spans["execute_tool look"],
    )
    assert len(chats) == 2
    assert turn.parent is None
    assert {s.parent.span_id for s in (*chats, call)} == {turn.context.span_id}
    assert {s.context.trace_id for s in (*chats, call)} == {turn.context.trace_id}
    assert (turn.kind, chats[0].kind, call.kind) == (
        *(SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL),
    )
    assert {s.status.status_code for s in (turn, *chats, call)} == {StatusCode.UNSET}
    assert dict(chats[0].attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m:7b",
        "gen_ai.conversation.id": "s1",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.response.finish_reasons": ("tool_calls",),
    }
    assert dict(call.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "call_0001",
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": "s1",
        "runner.tool.attempts": 1,
    }
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["gen_ai.usage.input_tokens"] == 200
    assert turn.attributes["runner.turn.status"] == "completed"


def test_spans_last_as_long_as_their_events_say(tmp_path):
    w = Watched(tmp_path, {"replies": [t.call("look", name="a"), {"text": "seen", "delay": 0.2}]})
    (turn,), (call,) = w.spans["invoke_agent slotrunner"], w.spans["execute_tool look"]
    assert (turn.start_time, turn.end_time) == (w.at("turn.started"), w.at("turn.finished"))
    assert (call.start_time, call.end_time) == (w.at("tool.started"), w.at("tool.finished"))
    last = w.spans["chat m:7b"][1]
    assert last.end_time - last.start_time > 200_000_000


def test_an_agents_turn_lies_below_the_call_that_began_it(tmp_path):
    child = [t.call("look", name="b"), t.say("done")]
    script = {
        "replies": [t.call("agent", task="look"), t.say("ok")],
        "rules": [{"contains": CHILD, "replies": child}],
    }
    w = Watched(tmp_path, script)
    (call,), (own,) = w.spans["execute_tool agent"], w.spans["invoke_agent default"]
    assert own.parent.span_id == call.context.span_id
    assert own.attributes["gen_ai.conversation.id"] == "s1.call_0001"
    (look_span,) = w.spans["execute_tool look"]
    assert look_span.parent.span_id == own.context.span_id
    assert own.context.trace_id == call.context.trace_id
    assert len([s for s in w.spans["chat m:7b"] if s.parent.span_id == own.context.span_id]) == 2


def test_what_goes_wrong_has_its_kind_as_the_error(tmp_path):
    two = {"calls": [{"name": "broken"}, {"name": "nowhere"}]}
    w = Watched(tmp_path, {"replies": [two, {"status": 401, "body": "no"}]})
    (call,), (refused,) = w.spans["execute_tool broken"], w.spans["execute_tool nowhere"]
    (turn,) = w.spans["invoke_agent slotrunner"]
    assert [s.attributes["error.type"] for s in (call, refused, turn, w.spans["chat m:7b"][1])] == [
        *("failed", "unknown_tool", "failed", "failed")
    ]
    assert {s.status.status_code for s in (call, refused, turn)} == {StatusCode.ERROR}
    assert w.result.status == "failed"


def test_brakes_and_retries_are_marks_on_the_spans(tmp_path):
    again = [t.call("look", name="a")] * 8
    unavailable = {"status": 503, "headers": {"retry-after": "0"}}
    w = Watched(tmp_path, {"replies": [unavailable, *again]})
    (turn,) = w.spans["invoke_agent slotrunner"]
    names = [event.name for event in turn.events]
    assert "loop.noticed" in names
    assert "loop.refused" in names
    assert "model.retried" in [event.name for event in w.spans["chat m:7b"][0].events]
    assert turn.attributes["error.type"] == "loop_stopped"


SECRETS = ("the goal", "a-name-nobody-says", "was looked at", "an-answer-nobody-says")


def _told(w: Watched) -> str:
    spans = [json.loads(s.to_json()) for many in w.spans.values() for s in many]
    points = [dict(p.attributes) for n in ("token.usage", "operation.duration") for p in w.metric(f"gen_ai.client.{n}")]  # fmt: skip
    return json.dumps([spans, points])


def test_contents_stay_here(tmp_path):
    w = Watched(tmp_path, {"replies": [t.call("look", name=SECRETS[1]), t.say(SECRETS[3])]})
    assert not [text for text in SECRETS if text in _told(w)]


def test_contents_are_told_when_the_host_says_so(tmp_path):
    script = {"replies": [t.call("look", name=SECRETS[1]), t.say(SECRETS[3])]}
    w = Watched(tmp_path, script, contents=True)
    assert [text for text in SECRETS if text in _told(w)] == list(SECRETS)
    (call,) = w.spans["execute_tool look"]
    assert json.loads(call.attributes["gen_ai.tool.call.arguments"]) == {"name": SECRETS[1]}
    (turn,) = w.spans["invoke_agent slotrunner"]
    assert json.loads(turn.attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "the goal"}]}
    ]


def test_tokens_and_durations_are_metrics(tmp_path):
    w = Watched(tmp_path, {"replies": [t.call("look", name="a"), t.say("seen")]})
    tokens = {p.attributes["gen_ai.token.type"]: p for p in w.metric("gen_ai.client.token.usage")}
    assert (tokens["input"].sum, tokens["output"].sum) == (200, 40)
    assert tokens["input"].attributes["gen_ai.request.model"] == "m:7b"
    assert tokens["input"].explicit_bounds[:3] == (1, 4, 16)
    durations = w.metric("gen_ai.client.operation.duration")
    counts = {p.attributes["gen_ai.operation.name"]: p.count for p in durations}
    assert counts == {"chat": 2, "execute_tool": 1, "invoke_agent": 1}
    assert {p.attributes.get("gen_ai.tool.name") for p in durations} == {None, "look"}


def test_nothing_is_kept_of_what_has_ended(tmp_path):
    plugin = OtelPlugin(TracerProvider(), MeterProvider(), environ={})
    child = {"replies": [t.call("agent", task="look"), t.say("ok")], "rules": [{"contains": CHILD, "replies": [t.say("done")]}]}  # fmt: skip

    async def main() -> None:
        config = t.config(tmp_path)
        async with Runner(model=ScriptedModel(child), plugins=[plugin], config=config) as runner:
            await runner.run("go")

    asyncio.run(main())
    assert plugin._turns == {}
    assert plugin._agents == {}


def test_events_of_a_turn_nobody_saw_begin_are_left_out():
    plugin = OtelPlugin(TracerProvider(), MeterProvider(), environ={})
    pen = t.Pen()
    for kind in ("model.requested", "model.replied", "tool.started", "tool.finished", "turn.finished", "loop.noticed"):  # fmt: skip
        record = pen.event(kind, call_id="c", tool="x")
        data = {k: record.pop(k) for k in ("call_id", "tool")}
        plugin.event_emitted(Event(data=data, **record))
    assert plugin._turns == {}


# Sent by OTLP over HTTP


class Collector:
    """A receiver of OTLP over HTTP on loopback that keeps what it is sent."""

    def __init__(self, status: int = 200) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        keep, answer = self.bodies, status

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = min(int(self.headers["Content-Length"]), 1_000_000)
                body = self.rfile.read(size)
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                keep.setdefault(self.path, []).append(body)
                self.send_response(answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def listening(self) -> Iterator[Collector]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(5)

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        requests = map(ExportTraceServiceRequest.FromString, self.bodies.get("/v1/traces", []))
        return [r for request in requests for r in request.resource_spans]

    def metrics(self) -> list[str]:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )

        requests = map(ExportMetricsServiceRequest.FromString, self.bodies.get("/v1/metrics", []))
        return [
            m.name for q in requests for r in q.resource_metrics for s in r.scope_metrics for m in s.metrics
        ]  # fmt: skip


def command(folder: Path, url: str, *more: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`runner run` with the plugin in its config."""
    (folder / "script.json").write_text(json.dumps({"replies": [t.say("hello")]}))
    line = [
        *(sys.executable, "-m", "runner", "run", "the goal", "--model", "scripted/script.json"),
        *("--set", 'plugins.modules=["runner.record.otel"]', "--set", "paths.skills=[]", *more),
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **environ}
    return subprocess.run(
        line, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_line_sends_its_spans_and_metrics_before_it_ends(tmp_path):
    with Collector().listening() as collector:
        done = command(tmp_path, collector.url)
    assert (done.returncode, done.stdout.strip()) == (0, "hello")
    (sent,) = collector.spans()
    attributes = {a.key: a.value.string_value for a in sent.resource.attributes}
    assert attributes["service.name"] == "slotrunner"
    assert sorted(s.name for scope in sent.scope_spans for s in scope.spans) == [
        *("chat script.json", "invoke_agent slotrunner")
    ]
    assert set(collector.metrics()) == {
        *("gen_ai.client.operation.duration", "gen_ai.client.token.usage")
    }
    assert b"the goal" not in b"".join(b for many in collector.bodies.values() for b in many)


def test_the_standard_variables_name_the_service_and_leave_metrics_out(tmp_path):
    with Collector().listening() as collector:
        command(tmp_path, collector.url, OTEL_SERVICE_NAME="mine", OTEL_METRICS_EXPORTER="none",
                OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true")  # fmt: skip
    (sent,) = collector.spans()
    attributes = {a.key: a.value.string_value for a in sent.resource.attributes}
    assert attributes["service.name"] == "mine"
    assert "/v1/metrics" not in collector.bodies
    assert b"the goal" in b"".join(collector.bodies["/v1/traces"])


def test_a_collector_that_refuses_or_is_gone_costs_the_run_nothing_but_a_moment(tmp_path):
    with Collector(status=503).listening() as collector:
        url = collector.url
        began = time.monotonic()
        refused = command(tmp_path, url)
        took = time.monotonic() - began
    gone = command(tmp_path, url)
    for done in (refused, gone):
        assert (done.returncode, done.stdout.strip()) == (0, "hello")
        assert "Traceback" not in done.stderr
    assert took < 8


def test_without_the_extra_the_message_says_what_to_install(tmp_path):
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry/__init__.py").write_text("raise ImportError('not here')\n")
    done = command(tmp_path, "http://127.0.0.1:9", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "pip install 'slotrunner[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_hosts_own_providers_are_used_and_left_open(tmp_path):
    program = """
import asyncio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from runner import Runner, ScriptedModel

memory = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider())
config = {"plugins": {"modules": ["runner.record.otel"]}, "paths": {"skills": []}}
for _ in range(2):
    Runner(model=ScriptedModel({"replies": [{"text": "hi"}]}), config=config, record=False).run_sync("go")
print(len(memory.get_finished_spans()), memory._stopped)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["4", "False"], done.stderr


def test_importing_the_plugin_imports_no_opentelemetry(tmp_path):
    program = "import sys, runner.record.otel; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("error", ["runner.PluginError('no key')", "KeyError('no key')"])
def test_a_plugin_that_cannot_be_made_is_a_plugin_error(tmp_path, error):
    text = f"import runner\ndef make_plugin():\n    raise {error}\n"
    (tmp_path / "mine.py").write_text(text)
    config = t.config(tmp_path, plugins={"modules": ["mine.py"]})
    with pytest.raises(PluginError, match="no key"):
        Runner(model=ScriptedModel({}), config=config).run_sync("go")

"""The fault list, rows 37–45: whatever the model or its server does, a turn ends truthfully."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
import turn_kit as k

from runner import SkillContext
from runner.model.base import CallPart, Chunk, ModelInfo
from runner.types import Usage

row = pytest.mark.row
RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def echo(text: str) -> str:
    """Says it again."""
    RAN.append(text)
    return f"echo {text}"


class Chunks:
    """A model whose replies are lists of chunks; an exception among them is raised."""

    def __init__(self, *replies: Any) -> None:
        self.name = "scripted/chunks"
        self.warnings: list[str] = []
        self.replies = list(replies)
        self.requests: list[Any] = []

    async def complete(self, request):
        self.requests.append(request)
        for chunk in self.replies.pop(0):
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk

    async def describe(self):
        return ModelInfo(name=self.name, context_window=8192, tools=True)

    def cost(self, usage: Usage) -> float:
        return 0.0

    async def close(self):
        pass


def raw(arguments: str, name: str = "echo", finish: str = "tool_calls") -> list[Chunk]:
    """A native call with this argument text."""
    return [
        Chunk(call=CallPart(index=0, id="c", name=name, arguments=arguments)),
        Chunk(finish=finish),
    ]


DONE = [Chunk(text="done"), Chunk(finish="stop")]


def chunked(tmp_path, *replies: Any, **more: Any) -> k.Turns:
    """A turn with such a model."""
    return k.run(tmp_path, [], echo, model_object=Chunks(*replies), model={"retries": 0}, **more)


@row(37)
def test_one_key_never_stands_for_two_different_calls(tmp_path):
    keys: dict[str, set[str]] = {}

    def pay(to: str, amount: int, ctx: SkillContext) -> str:
        keys.setdefault(ctx.idempotency_key, set()).add(f"{to} {amount}")
        return "paid"

    batch = k.calls(
        *(("pay", {"to": t, "amount": a}) for t in "ab" for a in (1, 2)),
        *[("pay", {"to": "a", "amount": 1})] * 2,
    )
    made = k.run(tmp_path, [batch, k.say("x")], k.tool(pay, concurrent=True))
    assert made.kinds == ["ok"] * 6
    assert len(keys) == 6
    assert all(len(calls) == 1 for calls in keys.values())


@row(38)
def test_ids_that_repeat_are_made_different_and_all_are_answered(tmp_path):
    part = [
        Chunk(call=CallPart(index=n, id="same", name="echo", arguments={"text": str(n)}))
        for n in range(3)
    ]
    made = chunked(tmp_path, [*part, Chunk(finish="tool_calls")], DONE)
    assert RAN == ["0", "1", "2"]
    assert made.tool_messages() == ["echo 0", "echo 1", "echo 2"]
    assert made.all_valid()


@row(39)
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failing_server_is_asked_again_so_often_and_no_tool_runs_twice(tmp_path, status):
    down = {
        "status": status,
        "headers": {"retry-after": "0"},
        "body": {"error": {"message": "busy"}},
    }
    replies = [k.call("echo", text="a"), down, down, k.say("done")]
    made = k.run(tmp_path / "1", replies, echo, model={"retries": 2})
    assert made.result.answer == "done"
    assert RAN == ["a"]
    assert len(made.of("model.retried")) == 2
    replies = [k.call("echo", text="a"), down, down, down]
    made = k.run(tmp_path / "2", replies, echo, model={"retries": 2})
    assert made.result.status == "failed"
    assert len(made.model.requests) == 4
    again = k.run(tmp_path / "2", [k.say("resumed")], echo, goals=["go on"])
    assert again.result.answer == "resumed"
    assert again.tool_messages() == ["echo a"]


@row(39)
def test_a_model_that_says_nothing_is_given_up_after_its_time(tmp_path):
    made = k.run(tmp_path, [{"hang": True}], model={"timeout": 0.1, "retries": 0})
    assert made.result.status == "failed"
    assert "0.1 s" in made.result.answer


@row(40)
@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ([Chunk(text="half an ans")], "failed"),
        ([Chunk(finish="stop")], "failed"),
        ([Chunk(text="x" * 100_000), Chunk(finish="stop")], "completed"),
        ([Chunk(text="\ud800\x00\xff"), Chunk(finish="stop")], "completed"),
        ([Chunk(text="fine"), Chunk(finish="no_such_reason")], "completed"),
        ([], "failed"),
        ([ConnectionResetError("gone")], "failed"),
    ],
)
def test_a_broken_reply_is_no_answer_and_a_strange_one_is_still_text(tmp_path, reply, status):
    made = chunked(tmp_path, reply, reply, reply, reply)
    assert made.result.status == status
    assert made.result.answer


@row(40)
@pytest.mark.parametrize("cut", ['{"text": "a', '{"text": "a"', "{", '{"text": "a"}'])
def test_a_reply_that_was_cut_inside_a_call_is_never_executed(tmp_path, cut):
    made = chunked(tmp_path, raw(cut, finish="length"), DONE)
    assert made.result.answer == "done"
    assert RAN == []
    assert made.kinds == ["unparsable"]
    assert made.all_valid()


@row(41)
@pytest.mark.parametrize(
    "arguments",
    [
        "[1]", "null", '"text"', "5", "", "{", "nonsense", '{"text": NaN}', '{"text": Infinity}',
        '{"text":"a","text":"b"}', '{"text":"a"}{"text":"b"}', "[" * 10_000, '{"text":' * 5_000,
        '{"text": ' + "9" * 5_000 + "}", '{"other": "' + "x" * 5_000_000 + '"}',
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_arguments_that_cannot_be_used_run_nothing(tmp_path, arguments):
    began = time.monotonic()
    made = chunked(tmp_path, raw(arguments), DONE)
    assert made.result.answer == "done"
    assert made.kinds[0] in {"unparsable", "invalid_arguments"}
    assert RAN == []
    assert made.all_valid()
    assert time.monotonic() - began < 15


@row(42)
@pytest.mark.parametrize("name", ["rm_rf", "ecko", "", "a" * 5000, "echo; rm", "\x1b[2J", "échø"])
def test_a_tool_that_is_not_there_is_said_so_with_what_is(tmp_path, name):
    made = chunked(tmp_path, raw("{}", name=name), DONE)
    assert made.result.answer == "done"
    assert made.kinds[0] in {"unknown_tool", "unparsable"}
    assert "echo" in made.finished[0]["content"]
    assert RAN == []
    assert made.all_valid()
    names = {
        c.name for request in made.model.requests for m in request.messages for c in m.tool_calls
    }
    assert all(len(n) <= 64 and n.replace("_", "").replace("-", "").isalnum() for n in names)


@row(43)
def test_five_hundred_calls_in_one_reply_are_capped_and_all_answered(tmp_path):
    many = k.calls(*(("echo", {"text": str(n)}) for n in range(500)))
    made = k.run(tmp_path, [many, k.say("done")], k.tool(echo, read_only=True, concurrent=True))
    assert len(RAN) == 64
    assert len(made.tool_messages()) == 500
    assert made.all_valid()


@row(44)
def test_the_same_call_for_ever_is_noticed_refused_and_stopped(tmp_path):
    made = k.run(tmp_path, [k.call("echo", text="a")], echo, repeat_last=True)
    assert made.result.status == "loop_stopped"
    assert "loop.noticed" in made.types
    assert "loop.refused" in made.types
    assert len(RAN) == 3


@row(45)
def test_a_failing_server_sees_as_many_requests_as_we_make(tmp_path):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    from runner import Runner

    hits = []

    class Down(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"] or 0))
            if self.path == "/api/chat":
                hits.append(self.path)
            body = json.dumps({"error": "down"}).encode()
            self.send_response(500)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Down)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    config = k.settings(
        tmp_path,
        model={
            "name": "ollama/x",
            "base_url": f"http://127.0.0.1:{server.server_port}",
            "retries": 1,
        },
    )

    async def test():
        async with Runner(config=config) as runner:
            assert (await runner.run("go")).status == "failed"

    try:
        asyncio.run(test())
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
    assert len(hits) == 2

"""The litellm adapter against a server on a real socket: our errors, our calls, one request."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from fake_server import FakeServer
from model_kit import HISTORY, TOOL, called, ids, outcome, request

from runner.errors import (
    ContextOverflow,
    ModelRefused,
    ModelUnavailable,
    ReplyUnreadable,
    ToolsUnsupported,
)
from runner.model.ask import ask
from runner.model.choose import PROVIDERS
from runner.model.litellm import LitellmModel
from runner.types import Message, ModelReply, Usage

KEY = "sk-sekrit-1234567890"
TWO = [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {"y": 2}}]
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def model_at(server: FakeServer) -> LitellmModel:
    return LitellmModel("openai/fake-model", base_url=server.v1, api_key=KEY, key_env="MY_KEY")


def against(reply: dict, **fields):
    with FakeServer([reply]) as server:
        found = outcome(model_at(server), **fields)
        assert len(server.chats()) == 1, "hidden retries"
        return found


@both_ways
def test_a_reply_arrives_with_text_reasoning_and_usage(stream):
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    reply = against({"text": "Grüße, 世界", "thinking": "hm hm hm", "usage": usage}, stream=stream)
    assert isinstance(reply, ModelReply), reply
    assert (reply.text, reply.reasoning, reply.finish) == ("Grüße, 世界", "hm hm hm", "stop")
    assert reply.usage == Usage(7, 3)


@pytest.mark.parametrize("index", ["right", "zero", "none"])
@pytest.mark.parametrize("numbered", [True, False], ids=["ids", "no ids"])
def test_streamed_parallel_calls_stay_apart(index, numbered):
    reply = against({"calls": TWO, "index": index, "ids": numbered})
    assert called(reply) == [("a", {"x": 1}), ("b", {"y": 2})]


@both_ways
@pytest.mark.parametrize("call_id", [None, "", "same"])
def test_missing_empty_and_repeated_ids_are_replaced(call_id, stream):
    calls = [{**call, "id": call_id} for call in TWO]
    reply = against({"calls": calls}, stream=stream)
    assert called(reply) == [("a", {"x": 1}), ("b", {"y": 2})]
    assert [call.id for call in reply.tool_calls] == ["c0", "c1"]


@both_ways
@pytest.mark.parametrize("raw", ['{"text": ', '{"text":"a"}{"key":"k"}'])
def test_unreadable_arguments_are_a_fault_of_the_call(raw, stream):
    reply = against({"calls": [{"name": "a", "arguments": raw}]}, stream=stream)
    assert isinstance(reply, ModelReply)
    assert [bool(call.fault) for call in reply.tool_calls] == [True]
    assert reply.tool_calls[0].arguments == {}


@both_ways
def test_a_reply_that_hits_the_output_limit_runs_no_call(stream):
    reply = against({"calls": TWO, "finish": "length"}, stream=stream)
    assert isinstance(reply, ModelReply)
    assert all("max_tokens" in call.fault for call in reply.tool_calls)


@both_ways
def test_the_request_is_plain_openai(stream):
    with FakeServer([{"text": "ok"}]) as server:
        schema = {"type": "object"}
        outcome(
            model_at(server),
            messages=HISTORY,
            max_tokens=99,
            stop=("X",),
            schema=schema,
            stream=stream,
        )
        (body,) = server.chats()
        (headers,) = server.headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (body["model"], body["max_tokens"], body["stop"]) == ("fake-model", 99, ["X"])
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert body["tools"][0]["function"]["parameters"] == TOOL.parameters
    (call,) = body["messages"][2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"path": "a.txt"}
    assert body["messages"][3]["tool_call_id"] == call["id"]
    assert all(isinstance(message["content"], str) for message in body["messages"])
    assert body.get("stream_options") == ({"include_usage": True} if stream else None)


@both_ways
@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        pytest.param({"status": 503}, ModelUnavailable, "503", id="503"),
        pytest.param({"status": 500}, ModelUnavailable, "500", id="500"),
        pytest.param({"status": 429, "headers": {"retry-after": "3"}}, ModelUnavailable, "429", id="429"),
        pytest.param(
            {"status": 401, "body": {"error": {"message": f"bad key {KEY}"}}}, ModelRefused, "MY_KEY", id="401"
        ),
        pytest.param(
            {"status": 404, "body": {"error": {"message": "model 'x' not found"}}}, ModelRefused, "name", id="404"
        ),
        pytest.param({"reject_tools": True}, ToolsUnsupported, "tools", id="no tools"),
        pytest.param({"status": 200, "body": "<html>hi</html>"}, ModelRefused, "HTML", id="HTML"),
        pytest.param({"status": 502, "body": "<html>hi</html>"}, ModelUnavailable, "502", id="HTML 502"),
        pytest.param(
            {"status": 400, "body": {"error": {"message": "This model's maximum context length is 8192 tokens."}}},
            ContextOverflow, "8192", id="overflow",
        ),
        pytest.param(
            {"status": 500, "body": {"error": {"message": "does not match the expected peg-native format"}}},
            ReplyUnreadable, "peg", id="unreadable",
        ),
    ],
)  # fmt: skip
def test_a_failure_has_its_class_is_asked_once_and_shows_no_key(reply, kind, says, stream):
    error = against(reply, stream=stream)
    assert type(error) is kind, error
    assert says in str(error)
    assert KEY not in str(error)
    assert "\n" not in str(error)
    assert "litellm" not in str(error)
    if "headers" in reply:
        assert error.retry_after == 3.0


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_cut_stream_is_never_a_reply(cut, framing):
    error = against({"text": "x" * 40, "cut": cut, "framing": framing})
    assert isinstance(error, (ModelUnavailable, ModelRefused)), error
    if cut:
        assert type(error) is ModelUnavailable


def test_an_error_inside_a_stream_is_an_error():
    error = against({"text": "so far", "error": "the runner has terminated"})
    assert type(error) is ModelUnavailable, error


def test_no_server_names_the_address():
    with FakeServer([]) as server:
        model = model_at(server)
    error = outcome(model)
    assert type(error) is ModelUnavailable
    assert server.v1 in str(error)


def test_a_server_that_hangs_sees_one_request_and_loses_it_in_time():
    async def run(server: FakeServer) -> None:
        model = model_at(server)
        await model.describe()
        with pytest.raises(ModelUnavailable, match=r"sent nothing for 0\.3 s"):
            await ask(model, request(timeout=0.3), next_id=ids(), emit=print, retries=0)
        await model.close()

    with FakeServer({"replies": [{"hang": True}], "repeat_last": True}) as server:
        asyncio.run(run(server))
        assert len(server.chats()) == 1


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("anthropic/claude-sonnet-4-5", "/v1/messages"),
        (
            "gemini/gemini-3-flash-preview",
            "/models/gemini-3-flash-preview:streamGenerateContent?alt=sse",
        ),
    ],
)
def test_other_protocols_take_a_history_of_calls_without_tools_and_say_why_they_refuse(name, path):
    with FakeServer([]) as server:
        model = LitellmModel(name, base_url=server.url, api_key=KEY)
        error = outcome(model, messages=(*HISTORY, Message(role="user", content="end")), tools=())
        assert server.paths == [path]
    assert type(error) is ModelRefused
    assert str(error) == f"{name} at {server.url} answered 404: no route {path}"


def test_the_table_is_read_offline_and_an_unknown_model_is_unknown():
    async def run():
        known, unknown = (
            LitellmModel("anthropic/claude-sonnet-4-5"),
            LitellmModel("openai/fake-model"),
        )
        await known.describe(), await unknown.describe()
        return known, unknown, await known.describe(), await unknown.describe()

    known, unknown, info, nothing = asyncio.run(run())
    assert (info.context_window, info.tools, info.constrained, info.local) == (
        200_000,
        True,
        True,
        False,
    )
    assert (nothing.context_window, nothing.tools) == (None, None)
    assert known.cost(Usage(1_000_000, 0)) == pytest.approx(3.0)
    assert unknown.cost(Usage(1_000_000, 1_000_000)) == 0.0


def test_every_default_model_is_in_the_table_and_can_use_tools():
    async def run():
        names = [f"{name}/{known.default}" for name, known in PROVIDERS.items()]
        return [await LitellmModel(name).describe() for name in names]

    assert [info.name for info in asyncio.run(run()) if not info.tools] == []


def test_the_import_does_not_count_as_silence():
    program = """
import asyncio, sys
from runner.errors import ModelUnavailable
from runner.model.ask import ask
from runner.model.base import ModelRequest
from runner.model.litellm import LitellmModel
async def main(url):
    model = LitellmModel("openai/m", base_url=url)
    try:
        await ask(model, ModelRequest(messages=(), timeout=1.0), retries=0, emit=print, next_id=str)
    except ModelUnavailable as error:
        print(error)
    await model.close()
asyncio.run(main(sys.argv[1]))
"""
    with FakeServer({"replies": [{"hang": True}], "repeat_last": True}) as server:
        done = subprocess.run(
            [sys.executable, "-c", program, server.v1],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert len(server.chats()) == 1
    assert (done.returncode, done.stdout, done.stderr) == (0, "openai/m sent nothing for 1 s\n", "")


def test_a_process_that_ends_during_the_import_ends_quietly():
    program = "import time; from runner.model.litellm import preload; preload(); time.sleep(0.3)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_using_it_prints_nothing_and_importing_the_adapter_does_not_import_it():
    program = """
import asyncio, sys
import runner.model.choose, runner.model.litellm as adapter
assert "litellm" not in sys.modules
async def main(url):
    for pause in (0.0, 0.05):  # who gives up while it is imported spoils it for nobody
        waiting = asyncio.ensure_future(adapter.LitellmModel("openai/m").describe())
        await asyncio.sleep(pause)
        waiting.cancel()
    model = adapter.LitellmModel("openai/m", base_url=url, api_key="k")
    for _ in range(2):
        try:
            async for chunk in model.complete(adapter.ModelRequest(messages=())):
                pass
        except Exception as error:
            assert type(error).__name__ == "ModelUnavailable", error
    await model.close()
asyncio.run(main(sys.argv[1]))
"""
    with FakeServer([{"text": "ok"}, {"status": 500}]) as server:
        done = subprocess.run(
            [sys.executable, "-c", program, server.v1],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

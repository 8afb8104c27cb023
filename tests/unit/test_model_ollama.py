"""The Ollama adapter against a server on a real socket, with every fault we know of."""

from __future__ import annotations

import asyncio
import json

import pytest
from fake_server import FakeServer
from model_kit import HISTORY, TOOL, called, outcome, request

from runner.errors import (
    ContextOverflow,
    ModelRefused,
    ModelUnavailable,
    ReplyUnreadable,
    ToolsUnsupported,
)
from runner.model.base import ModelInfo
from runner.model.ollama import OllamaModel, list_models, mend_url
from runner.types import Message, ModelReply, Usage

TWO = [{"name": "a", "arguments": {"x": 1}}, {"name": "a", "arguments": {"x": 2}}]
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def against(reply: dict, **fields):
    with FakeServer([reply]) as server:
        return outcome(OllamaModel("fake-model", base_url=server.url), **fields)


@both_ways
def test_a_reply_arrives_with_text_reasoning_and_usage(stream):
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    reply = against({"text": "Grüße, 世界", "thinking": "hm hm hm", "usage": usage}, stream=stream)
    assert isinstance(reply, ModelReply)
    assert (reply.text, reply.reasoning, reply.finish) == ("Grüße, 世界", "hm hm hm", "stop")
    assert reply.usage == Usage(7, 3)


@pytest.mark.parametrize("shape", ["one", "each", "last"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_every_shape_in_which_ollama_streams_calls_is_read(shape, framing):
    reply = against({"calls": TWO, "shape": shape, "framing": framing})
    assert called(reply) == [("a", {"x": 1}), ("a", {"x": 2})]


def test_calls_of_a_whole_reply_are_read():
    assert called(against({"calls": TWO}, stream=False)) == [("a", {"x": 1}), ("a", {"x": 2})]


def test_the_request_is_what_the_server_expects():
    with FakeServer([{"text": "ok"}]) as server:
        model = OllamaModel("fake-model", base_url=server.url, api_key="sekrit")
        outcome(
            model,
            messages=HISTORY,
            context_window=6000,
            max_tokens=99,
            temperature=0.5,
            stop=("X",),
        )
        (body,) = server.chats()
        (headers,) = server.headers
    assert body["options"] == {
        "num_ctx": 6000,
        "num_predict": 99,
        "temperature": 0.5,
        "stop": ["X"],
    }
    assert body["truncate"] is False
    assert all(isinstance(message["content"], str) for message in body["messages"])
    assert body["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"path": "a.txt"}
    assert body["messages"][3] == {
        "role": "tool", "content": "nothing", "tool_name": "read_file", "tool_call_id": "c7",
    }  # fmt: skip
    assert body["tools"][0]["function"]["parameters"] == TOOL.parameters
    assert "format" not in body
    assert headers["authorization"] == "Bearer sekrit"


def test_a_schema_is_sent_as_format_and_thinking_is_turned_off():
    schema = {"type": "object"}
    with FakeServer({"replies": [{"text": "{}"}], "capabilities": ["thinking"]}) as server:
        model = OllamaModel("fake-model", base_url=server.url)
        asyncio.run(model.describe())
        outcome(model, schema=schema)
        (body,) = server.chats()
    assert (body["format"], body["think"]) == (schema, False)


def sent_thoughts(history, capabilities):
    with FakeServer({"replies": [{"text": "ok"}], "capabilities": capabilities}) as server:
        model = OllamaModel("fake-model", base_url=server.url)
        asyncio.run(model.describe())
        outcome(model, messages=history)
        return [message.get("thinking") for message in server.chats()[0]["messages"]]


def thought(text: str) -> Message:
    return Message(role="assistant", content="said", reasoning=text)


@pytest.mark.parametrize("mark", ["goal", ""])
def test_a_thinking_model_gets_its_reasoning_of_the_turn_under_way_back(mark):
    history = (
        Message(role="user", content="first", mark=mark),
        thought("old"),
        Message(role="user", content="second", mark=mark),
        thought("new"),
        *HISTORY[2:],
    )
    assert sent_thoughts(history, ["thinking"]) == [None, None, None, "new", None, None]
    assert sent_thoughts(history, ["tools"]) == [None] * 6


def test_results_told_as_the_users_message_do_not_begin_a_turn():
    history = (
        Message(role="user", content="goal", mark="goal"),
        thought("one"),
        Message(role="user", content="Result of t: 1", mark="results"),
        thought("two"),
    )
    assert sent_thoughts(history, ["thinking"]) == [None, "one", None, "two"]


@both_ways
@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        pytest.param({"status": 503, "headers": {"retry-after": "2"}}, ModelUnavailable, "503", id="503"),
        pytest.param({"status": 500}, ModelUnavailable, "500", id="500"),
        pytest.param({"status": 429}, ModelUnavailable, "429", id="429"),
        pytest.param({"status": 401, "body": {"error": "unauthorized"}}, ModelRefused, "key", id="401"),
        pytest.param(
            {"status": 404, "body": {"error": "model 'fake-model' not found"}},
            ModelRefused, "ollama pull fake-model", id="no such model",
        ),
        pytest.param({"reject_tools": True}, ToolsUnsupported, "tools", id="no tools"),
        pytest.param({"status": 200, "body": "<html>hi</html>"}, ModelRefused, "HTML", id="HTML"),
        pytest.param({"status": 502, "body": "<html>hi</html>"}, ModelUnavailable, "HTML", id="HTML 502"),
        pytest.param({"status": 200, "body": "hello"}, ModelRefused, "JSON", id="no JSON"),
        pytest.param({"status": 200, "body": "[1]"}, ModelRefused, "JSON", id="no object"),
        pytest.param({"status": 200, "body": "[" * 100_000}, ModelRefused, "JSON", id="deep"),
        pytest.param({"status": 200, "body": ""}, ModelUnavailable, "complete", id="nothing"),
        pytest.param(
            {"status": 200, "body": {"message": {"content": "x"}}}, ModelUnavailable, "complete", id="not done"
        ),
        pytest.param(
            {"status": 400, "body": {"error": "the input length exceeds the context length"}},
            ContextOverflow, "context", id="overflow",
        ),
        pytest.param(
            {"status": 500, "body": {"error": "error parsing tool call: raw='{'"}},
            ReplyUnreadable, "parsing", id="unreadable",
        ),
        pytest.param({"status": 307, "headers": {"location": "/x"}}, ModelRefused, "base_url", id="moved"),
    ],
)  # fmt: skip
def test_a_failure_has_its_class_and_says_what_to_do(reply, kind, says, stream):
    error = against(reply, stream=stream)
    assert type(error) is kind, error
    assert says in str(error)
    assert "\n" not in str(error)


def test_the_time_the_server_asks_to_wait_is_kept():
    error = against({"status": 503, "headers": {"retry-after": "2"}})
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == 2.0


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_cut_stream_is_never_a_reply(cut, framing):
    error = against({"text": "x" * 40, "calls": TWO, "cut": cut, "framing": framing})
    assert type(error) is ModelUnavailable


def test_an_error_line_inside_a_stream_is_an_error():
    error = against({"text": "so far", "error": "llama runner process has terminated"})
    assert type(error) is ModelUnavailable
    assert "terminated" in str(error)


def test_a_reply_that_hits_the_output_limit_runs_no_call():
    reply = against({"calls": TWO, "finish": "length"})
    assert isinstance(reply, ModelReply)
    assert all("max_tokens" in call.fault for call in reply.tool_calls)


def odd(*lines: object) -> object:
    """What comes of an answer of these lines, which are JSON but not as Ollama writes them."""
    return against({"status": 200, "body": "\n".join(map(json.dumps, [*lines, {"done": True}]))})


def test_fields_of_another_type_are_no_text_and_no_call():
    calls = [None, 5, {}, {"function": 5}, {"function": {"name": 5, "arguments": 5, "index": "x"}}]
    fine = {"function": {"name": "a", "arguments": {"x": 1}}}
    reply = odd(
        {"message": None},
        {"message": {"content": ["a"], "thinking": {"b": 1}, "tool_calls": "x"}},
        {"message": {"content": "hi", "tool_calls": [*calls, fine]}},
    )
    assert isinstance(reply, ModelReply)
    assert (reply.text, reply.reasoning, reply.finish) == ("hi", "", "stop")
    assert ("a", {"x": 1}) in called(reply)


@pytest.mark.parametrize("line", [[], 5, None, {"message": "x"}, {"message": [1]}])
def test_a_line_that_is_no_message_is_no_ollama_server(line):
    assert "is it an Ollama server?" in str(odd(line))


def test_only_counts_of_tokens_are_counted():
    assert odd({"done": True, "prompt_eval_count": "5", "eval_count": 7}).usage == Usage(0, 7)
    assert odd({"done": True, "prompt_eval_count": -5, "eval_count": [1]}).usage is None


def test_a_line_larger_than_any_buffer_is_read():
    text = "y" * 3_000_000
    reply = against({"calls": [{"name": "a", "arguments": {"text": text}}]})
    assert called(reply) == [("a", {"text": text})]


def test_no_server_names_the_address_and_the_command():
    with FakeServer([]) as server:
        url = server.url
    error = outcome(OllamaModel("m", base_url=url))
    assert type(error) is ModelUnavailable
    assert url in str(error)
    assert "ollama serve" in str(error)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://h:99999", "http://h:x"])
def test_an_address_that_is_none_is_refused(url):
    assert type(outcome(OllamaModel("m", base_url=url))) is ModelRefused


def test_closing_the_reply_ends_the_request():
    async def run(server: FakeServer) -> None:
        reply = OllamaModel("m", base_url=server.url).complete(request())
        await anext(reply)
        await reply.aclose()

    with FakeServer([{"text": "z" * 600_000}]) as server:
        asyncio.run(run(server))
        assert server.abandoned.wait(10)


@pytest.mark.parametrize(
    ("given", "url", "warned"),
    [
        ("", "http://127.0.0.1:11434", False),
        ("http://h:1/v1", "http://h:1", True),
        ("http://h:1/v1/", "http://h:1", True),
        ("http://h:1/api", "http://h:1", True),
        ("https://ollama.example", "https://ollama.example", False),
        ("h", "http://h:11434", False),
        ("h:1", "http://h:1", False),
        (":1", "http://127.0.0.1:1", False),
        ("0.0.0.0", "http://127.0.0.1:11434", False),
        ("0.0.0.0:5", "http://127.0.0.1:5", False),
    ],
)
def test_an_address_is_mended_with_a_warning(given, url, warned):
    mended, warnings = mend_url(given)
    assert mended == url
    assert bool(warnings) is warned
    assert all(url in warning for warning in warnings)


@pytest.mark.parametrize(
    ("script", "window"),
    [
        ({"context_length": 8192}, 8192),
        ({"context_length": 131_072}, 16_384),
        ({"context_length": 0}, None),
        ({"context_length": 32_768, "parameters": 'stop "x"\nnum_ctx   4096'}, 4096),
        ({"context_length": "many"}, None),
    ],
)
def test_the_window_is_the_models_own_but_not_more_than_a_small_machine_holds(script, window):
    with FakeServer(script) as server:
        info = asyncio.run(OllamaModel("m", base_url=server.url).describe())
    assert info == ModelInfo(
        name="ollama/m",
        context_window=window,
        tools=True,
        thinking=False,
        local=True,
        constrained=True,
    )


@pytest.mark.parametrize("script", [{"capabilities": "x"}, {"capabilities": None}])
def test_a_server_that_tells_nothing_leaves_it_unknown(script):
    with FakeServer(script) as server:
        info = asyncio.run(OllamaModel("m", base_url=server.url).describe())
    assert (info.tools, info.thinking) == (None, None)


def test_describing_a_model_of_no_server_never_raises():
    with FakeServer([]) as server:
        url = server.url
    info = asyncio.run(OllamaModel("m", base_url=url).describe())
    assert (info.context_window, info.tools, info.local) == (None, None, True)


def test_models_are_listed_in_the_servers_order_and_none_without_one():
    with FakeServer({"models": ["b", "a"]}) as server:
        url = server.url
        assert asyncio.run(list_models(url, timeout_s=5)) == ["b", "a"]
    assert asyncio.run(list_models(url, timeout_s=5)) == []


def test_a_message_never_shows_the_key():
    body = json.dumps({"error": "no key"})
    with FakeServer([{"status": 401, "body": body}]) as server:
        error = outcome(OllamaModel("m", base_url=server.url, api_key="sekrit-123"))
    assert "sekrit" not in str(error)

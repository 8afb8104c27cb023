"""A small local model: asked for calls as text from the start, held to a schema where it can be."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import pytest

from runner import Runner, ScriptedModel
from runner.model.base import size_of


class Small(ScriptedModel):
    """A scripted model that says how large it is and whether it can be held to a schema."""

    def __init__(self, replies, *, size=1.5, local=True, constrained=True):
        super().__init__({"replies": replies})
        self._says = {"size": size, "local": local, "constrained": constrained}

    async def describe(self):
        return replace(await super().describe(), **self._says)


def look(path: str) -> str:
    """Says what is at a path."""
    return f"there is nothing at {path}"


def call(path):
    """A call as text."""
    return {"text": json.dumps({"tool": "look", "params": {"path": path}})}


def turn(folder, model, **settings):
    """One turn with one tool; the result and the model that was asked."""
    config = {
        "model": settings,
        "watch": {"backend": "off"},
        "paths": {"skills": [], "workspace": str(folder), "state": str(folder / "state")},
    }

    async def once():
        async with Runner(model=model, skills=[look], config=config) as runner:
            return await runner.run("What is at a?")

    return asyncio.run(once())


def test_a_small_local_model_is_asked_for_text_with_an_example_and_a_schema(tmp_path):
    model = Small([call("a"), {"text": '{"answer": "nothing"}'}])
    assert turn(tmp_path, model).answer == "nothing"
    first = model.requests[0]
    assert (first.tools, first.schema is None) == ((), False)
    assert [m.role for m in first.messages][:3] == ["system", "user", "assistant"]
    assert first.messages[-1].content == "What is at a?"


@pytest.mark.parametrize(
    "told", [{"size": 7.6}, {"size": None}, {"local": False}], ids=["large", "unknown", "cloud"]
)
def test_every_other_model_is_given_its_tools_natively(tmp_path, told):
    model = Small([{"text": "hello"}], **told)
    turn(tmp_path, model)
    assert [t.name for t in model.requests[0].tools] == ["look", "agent"]


def test_the_config_has_the_last_word(tmp_path):
    model = Small([{"text": "hello"}])
    turn(tmp_path, model, tool_mode="native")
    assert model.requests[0].tools


def test_results_of_text_calls_come_back_as_text_and_only_the_call_is_kept(tmp_path):
    invented = call("a")["text"] + "\nResult of look:\ngold\n\nThe answer is gold."
    model = Small([{"text": invented}, {"text": "nothing"}], constrained=False)
    assert turn(tmp_path, model).answer == "nothing"
    *_, kept, result = model.requests[1].messages
    assert (kept.role, kept.content) == ("assistant", call("a")["text"])
    assert (result.role, result.content) == ("user", "Result of look:\nthere is nothing at a")


def test_what_is_sent_first_stays_the_same_bytes_through_the_turn(tmp_path):
    """A prompt cache holds only as long as the beginning does."""
    model = Small([call("a"), call("b"), {"text": '{"answer": "nothing"}'}])
    turn(tmp_path, model)
    requests = [request.messages for request in model.requests]
    for shorter, longer in pairwise(requests):
        assert longer[: len(shorter)] == shorter
    assert {json.dumps(r.schema) for r in model.requests} == {json.dumps(model.requests[0].schema)}


def test_an_object_as_the_answer_is_given_as_json(tmp_path):
    model = Small([{"text": '{"answer": {"name": "Ana", "age": 31}}'}])
    assert json.loads(turn(tmp_path, model).answer) == {"name": "Ana", "age": 31}


def test_a_server_that_refuses_the_schema_is_asked_without_it_for_the_rest_of_the_session(tmp_path):
    refusal = {"status": 400, "body": {"error": {"message": "failed to parse grammar"}}}
    model = Small([refusal, call("a"), {"text": "nothing"}])
    assert turn(tmp_path, model).answer == "nothing"
    assert [r.schema is None for r in model.requests] == [False, True, True]


def test_calls_that_keep_arriving_as_text_turn_a_native_session_to_text(tmp_path):
    model = Small([call("a"), call("b"), {"text": '{"answer": "nothing"}'}], size=None)
    assert turn(tmp_path, model).answer == "nothing"
    assert [bool(r.tools) for r in model.requests] == [True, True, False]
    assert model.requests[2].schema is not None


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("qwen2.5-coder:1.5b", 1.5),
        ("ollama/llama3.2:3b-instruct-q4_K_M", 3.0),
        ("smollm2:135m", 0.135),
        ("1.5B", 1.5),
        ("qwen3-30b-a3b", 30.0),
        ("mixtral-8x7b", None),
        ("qwen2.5", None),
        ("gpt-5.2", None),
        ("None", None),
    ],
)
def test_a_models_size_is_read_from_its_name(name, size):
    assert size_of(name) == size


def test_a_small_model_gets_the_short_prompt_unless_the_config_says_otherwise(tmp_path):
    """Twice as many tokens are twice the wait for the first reply."""
    lengths = {}
    for style in ("auto", "compact", "full"):
        model = Small([{"text": '{"answer": "nothing"}'}])
        turn(tmp_path, model, prompt_style=style)
        lengths[style] = len(model.requests[0].messages[0].content)
    assert lengths["auto"] == lengths["compact"] < lengths["full"]

"""The scripted model says what its script says, and refuses a script that is wrong."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from model_kit import attempt, called, outcome, reply_of

from runner.errors import ConfigError, ModelRefused, ModelUnavailable, ToolsUnsupported
from runner.model.scripted import KEYS, ScriptedModel, read_script
from runner.types import Message, ModelReply, Usage


def says(model: ScriptedModel, *prompts: str) -> list[str]:
    async def run() -> list[str]:
        texts = []
        for prompt in prompts:
            reply = await reply_of(model, messages=(Message(role="user", content=prompt),))
            texts.append(reply.text)
        return texts

    return asyncio.run(run())


def test_replies_come_in_order_and_every_request_is_kept():
    model = ScriptedModel({"replies": [{"text": "one"}, {"text": "two"}]})
    assert says(model, "a", "b") == ["one", "two"]
    assert [request.messages[0].content for request in model.requests] == ["a", "b"]


def test_a_rule_answers_while_it_has_replies_left():
    rule = {"contains": "red", "replies": [{"text": "R1"}, {"text": "R2"}]}
    model = ScriptedModel({"replies": [{"text": "m1"}, {"text": "m2"}], "rules": [rule]})
    assert says(model, "red", "blue", "a red one", "red") == ["R1", "m1", "R2", "m2"]


def test_the_last_reply_repeats_only_when_asked():
    model = ScriptedModel({"replies": [{"text": "x"}], "repeat_last": True})
    assert says(model, "a", "b", "c") == ["x", "x", "x"]
    error = outcome(ScriptedModel({"replies": []}))
    assert type(error) is ModelRefused
    assert "exhausted" in str(error)


def test_calls_reasoning_finish_and_usage_are_given():
    call = {"name": "a", "arguments": {"x": 1}}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    reply = outcome(
        ScriptedModel({"replies": [{"calls": [call, call], "thinking": "hm", "usage": usage}]})
    )
    assert called(reply) == [("a", {"x": 1})] * 2
    assert isinstance(reply, ModelReply)
    assert (reply.reasoning, reply.finish, reply.usage) == ("hm", "tool_calls", Usage(1, 2))


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"status": 503, "headers": {"Retry-After": 7}}, ModelUnavailable),
        ({"status": 401}, ModelRefused),
        ({"status": 200, "body": "<html>"}, ModelRefused),
        ({"text": "x" * 50, "cut": 2}, ModelUnavailable),
        ({"reject_tools": True}, ToolsUnsupported),
    ],
)
def test_scripted_faults_are_those_of_a_real_server(reply, kind):
    error = outcome(ScriptedModel({"replies": [reply]}))
    assert type(error) is kind
    if isinstance(error, ModelUnavailable) and "status" in reply:
        assert error.retry_after == 7.0


def test_a_reply_that_hangs_can_be_given_up():
    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await attempt(ScriptedModel({"replies": [{"hang": True}]}))

    asyncio.run(run())


def test_the_script_describes_the_model_it_plays():
    async def run():
        plain = await ScriptedModel({}).describe()
        told = await ScriptedModel({"capabilities": [], "context_length": 0}).describe()
        return plain, told

    plain, told = asyncio.run(run())
    assert (plain.tools, plain.context_window) == (True, 8192)
    assert (told.tools, told.context_window) == (False, None)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ({"replies": {}}, "replies is not a list"),
        ({"replies": ["x"]}, "replies[0] is not an object"),
        ({"replies": [{"txt": "x"}]}, "unknown key 'txt'"),
        ({"replies": [{"calls": [{"arguments": {}}]}]}, "needs a name"),
        ({"rules": [{"replies": []}]}, "rules[0]"),
        ({"rules": 3}, "rules[0]"),
    ],
)
def test_a_wrong_script_is_refused_with_the_place(script, says):
    with pytest.raises(ConfigError) as caught:
        ScriptedModel(script, "scripted/demo.json")
    assert says in str(caught.value)
    assert "scripted/demo.json" in str(caught.value)


def test_a_script_file_is_read_and_a_bad_one_names_itself(tmp_path):
    file = tmp_path / "s.json"
    file.write_text("\ufeff" + json.dumps({"replies": []}), encoding="utf-8")
    assert read_script(file) == {"replies": []}
    file.write_text("{")
    with pytest.raises(ConfigError, match=r"s\.json: the script is not JSON"):
        read_script(file)
    file.write_text("[]")
    with pytest.raises(ConfigError, match="object"):
        read_script(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not JSON"):
        read_script(file)
    with pytest.raises(ConfigError, match="cannot read"):
        read_script(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["{}", "[]", '{"repeat_last": true}', '{"reply": []}'])
def test_a_script_without_replies_is_refused_when_it_is_read(tmp_path, text):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ConfigError, match=r's\.json: a script is an object with "replies"'):
        read_script(tmp_path / "s.json")


@pytest.mark.parametrize("calls", [3, ["a"], [{}], [{"name": "a", "arguments": 1}]])
def test_a_call_without_name_or_arguments_is_told_what_it_needs(calls):
    with pytest.raises(ConfigError, match="needs a name, and its arguments as an object"):
        ScriptedModel({"replies": [{"calls": calls}]})


def test_every_key_of_a_reply_is_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    part = page.partition("### A scripted model")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```json\n(.*?)```", part, re.DOTALL)
    ScriptedModel(json.loads(example))
    listed = [key for key in KEYS - {"no_index"} if f"`{key}`" not in part]
    assert listed == []

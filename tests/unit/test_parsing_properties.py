"""What holds for every text: nothing raises, nothing cut is executed, time grows with length."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.parsing import read, read_arguments

WRITE = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "append": {"type": "boolean"},
    },
    "required": ["path", "content"],
}
TOOLS: dict[str, dict[str, Any]] = {
    "write_file": WRITE,
    "get_time": {"type": "object", "properties": {}},
    "delete_file": {"type": "object", "properties": {"path": {"type": "string"}}},
}
DELETE = '{"tool": "delete_file", "params": {"path": "x"}}'
FRAGMENTS = (
    DELETE, "<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>", "</s>", "[TOOL_CALLS]delete_file[ARGS]{}",
    "```", "```json\n", "'''", "Action: delete_file\nAction Input: {}", "\nObservation: x", 'delete_file(path="x")', "<|call|>",
    "<function=delete_file>", "<parameter=path>", "</parameter>", "</function>", "<arg_value>", "</arg_value>", '<|"|>', "{", "}",
    "[", "]", '"', '\\"', "\\", "'", "\n", "\t", "“", "：", "C:\\new", "//", "#", "/*", "é", "日本", "😀", " ", ",", ":", "=", "(", ")",
    '{"tool": "write_file", ', '"params": {', "call:write_file{", "write_file(", "get_time()", "NaN", "1e999", "<|channel|>", "<|message|>",
)  # fmt: skip
FORMS = {
    "bare": "{call}",
    "led in": "I do it.\n\n{call}",
    "fenced": "Here:\n```json\n{call}\n```",
    "hermes": "<tool_call>\n{call}\n</tool_call>",
    "mistral": "[TOOL_CALLS]write_file[ARGS]{arguments}",
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_file\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>",
    "harmony": "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>{arguments}<|call|>",
    "react": "Thought: I write.\nAction: write_file\nAction Input: {arguments}",
    "llama": "<|python_tag|>{call}",
    "function": "<function=write_file>{arguments}</function>",
}  # fmt: skip

soup = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=14).map("".join)
values = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=5).map("".join)


def fits(name: str, arguments: dict[str, Any]) -> bool:
    required = TOOLS[name].get("required", ())
    kinds = {"string": str, "boolean": bool}
    known = TOOLS[name]["properties"]
    return all(key in arguments for key in required) and all(
        key in known and isinstance(value, kinds[known[key]["type"]])
        for key, value in arguments.items()
    )


@settings(max_examples=400, deadline=None)
@given(soup, st.sampled_from(["stop", "length"]), st.sampled_from(["native", "json"]))
def test_reading_never_raises_and_always_says_something(text: str, finish: str, mode: Any) -> None:
    parsed = read(text, TOOLS, fits=fits, finish=finish, mode=mode)
    assert parsed.kind in {"calls", "final", "error"}
    assert bool(parsed.calls) == (parsed.kind == "calls")
    assert parsed.kind != "final" or parsed.text
    assert parsed.kind != "error" or parsed.detail
    if parsed.span is not None:
        assert 0 <= parsed.span[0] <= parsed.span[1] <= len(text)
    if finish == "length":
        assert parsed.kind != "calls"


@settings(max_examples=200, deadline=None)
@given(soup)
def test_reading_arguments_never_raises(text: str) -> None:
    assert isinstance(read_arguments(text), (dict, str))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FORMS)), values, st.booleans(), st.data())
def test_a_call_is_read_exactly_and_no_prefix_of_it_is_another_call(
    form: str, content: str, ascii_only: bool, data: st.DataObject
) -> None:
    arguments = {"path": "a b.txt", "content": content}
    call = {"name": "write_file", "arguments": arguments}
    text = (
        FORMS[form]
        .replace("{call}", json.dumps(call, ensure_ascii=ascii_only))
        .replace("{arguments}", json.dumps(arguments, ensure_ascii=ascii_only))
    )
    whole = read(text, TOOLS, fits=fits)
    assert [(one.name, one.arguments) for one in whole.calls] == [("write_file", arguments)]
    end = data.draw(st.integers(0, len(text) - 1))
    cut = read(text[:end], TOOLS, fits=fits)
    assert not cut.calls or cut.calls == whole.calls


HOSTILE = ("{", "[", '"', "<tool_call>", "```", "```\n", '{"a":', '["', '{"\\', "{'a ", "</think>", "<parameter=path>", "'", "\\", "{/*", "<function=", "<invoke name='", "x", " ", "<arg_key>")  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
@pytest.mark.parametrize("start", ["", '{"tool": "write_file", "params": {"path": "', "Sure:\n", "<function=", "<function=write_file><parameter=", "<tool_call>write_file<arg_key>"])  # fmt: skip
def test_hostile_input_takes_no_more_than_a_second_per_megabyte(part: str, start: str) -> None:
    text = start + part * (200_000 // len(part))
    begin = time.perf_counter()
    parsed = read(text, TOOLS, fits=fits)
    assert time.perf_counter() - begin < 1.0, "0.2 MB, on a shared machine"
    assert parsed.kind != "calls"

"""The system prompt: stable bytes, tools in their order, the form of a call in text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runner.model.prompt import reply_schema, system_prompt, text_calls, text_results, tool_line
from runner.types import Entry, Flags, Tool

PARAMETERS = {
    "type": "object",
    "required": ["path"],
    "properties": {
        "path": {"type": "string", "pattern": "^a", "description": "Where"},
        "how": {"enum": ["up", "down"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def tool(name):
    """A tool with a few parameters."""
    return Tool(
        name=name, description="Reads a thing. At most one.", parameters=PARAMETERS,
        flags=Flags(read_only=True), load=lambda: Entry(print),
    )  # fmt: skip


def prompt(tools, **options):
    """A system prompt in json mode."""
    given = {"mode": "json", "compact": False, "constrained": True, "catalogue": "", "extra": ""}
    return system_prompt(tools, **{**given, **options})


def test_the_prompt_is_the_same_bytes_for_the_same_tools_and_keeps_their_order():
    tools = [tool("b"), tool("a")]
    assert prompt(tools) == prompt(list(tools))
    assert prompt(tools).index("- b(") < prompt(tools).index("- a(")


def test_nothing_that_changes_by_itself_is_in_the_prompt():
    """Prompt caches work only while the beginning stays the same."""
    text = prompt([tool("a")])
    assert "202" not in text
    assert "/tmp" not in text


def test_native_mode_describes_no_tools_in_the_prompt():
    assert "- a(" not in prompt([tool("a")], mode="native")


def test_without_tools_no_form_of_a_call_is_taught():
    assert '"tool"' not in prompt([])


def test_an_answer_is_asked_for_as_json_only_where_the_output_is_constrained():
    assert '{"answer": "…"}' in prompt([tool("a")])
    assert '"answer"' not in prompt([tool("a")], constrained=False)


def test_a_tools_line_has_types_and_what_may_be_left_out():
    line = tool_line(tool("look"), compact=False)
    assert line.startswith('- look(path: string, how?: "up"|"down", tags?: [string]) — Reads')
    assert "path: Where" in line
    assert "Where" not in tool_line(tool("look"), compact=True)


def test_a_tool_that_destroys_says_when_it_may_be_used():
    wipe = replace(tool("wipe"), flags=Flags(destructive=True))
    for compact in (True, False):
        assert "only when the task asks" in tool_line(wipe, compact=compact)
        assert "only when the task asks" not in tool_line(tool("look"), compact=compact)


@pytest.mark.parametrize("compact", [True, False])
def test_the_compact_prompt_is_shorter(compact):
    assert len(prompt([tool("a")], compact=True)) < len(prompt([tool("a")]))


def test_the_reply_schema_allows_one_call_or_an_answer_and_nothing_a_grammar_cannot_hold():
    schema = reply_schema([tool("look")])
    call, answer = schema["anyOf"]
    assert call["properties"]["tool"] == {"const": "look"}
    assert answer["required"] == ["answer"]
    assert "pattern" not in json.dumps(schema)


def test_calls_and_results_in_text_hold_nothing_else():
    assert text_calls([("a", {"x": "é"})]) == '{"tool": "a", "params": {"x": "é"}}'
    assert text_results([("a", "1"), ("b", "2")]) == "Result of a:\n1\n\nResult of b:\n2"

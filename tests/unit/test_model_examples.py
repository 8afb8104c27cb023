"""Worked examples: offered tools only, only reading where they can, no placeholder to repeat."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from runner.model.examples import text_call, worked_examples
from runner.types import Entry, Flags, Tool

TEXT = {"type": "string"}
READS = Flags(read_only=True)


def tool(name, *, flags=READS, examples=(), required=("path",), **properties):
    """A tool with these parameters."""
    parameters = {
        "type": "object",
        "required": list(required),
        "properties": properties or {"path": TEXT},
        "additionalProperties": False,
    }
    return Tool(
        name=name, description=f"Does {name}.", parameters=parameters, flags=flags,
        examples=tuple(examples), skill="s", load=lambda: Entry(print),
    )  # fmt: skip


FILES = (
    tool("list_files"),
    tool("read_file"),
    tool("search_files", required=("text",), text=TEXT, path=TEXT),
    tool("write_file", flags=Flags(), required=("path", "content"), path=TEXT, content=TEXT),
)


def calls_in(messages):
    """The tool names of the calls an example shows."""
    return [json.loads(text)["tool"] for text in call_texts(messages)]


def call_texts(messages):
    """The calls an example shows, as the model would write them."""
    return [m.content for m in messages if m.content.startswith('{"tool"')]


def test_every_call_has_its_result_and_every_example_ends_with_an_answer():
    messages = worked_examples(FILES, constrained=True)
    for before, after in pairwise(messages):
        assert {before.role, after.role} == {"user", "assistant"}
        if '{"tool"' in before.content:
            assert after.content.startswith("Result of ")
    assert "answer" in json.loads(messages[-1].content)
    assert {m.mark for m in messages} == {"example"}


def test_an_example_shows_only_tools_that_are_offered():
    names = {t.name for t in FILES}
    assert calls_in(worked_examples(FILES, constrained=False))
    assert set(calls_in(worked_examples(FILES, constrained=False))) <= names
    for left_out in names:
        rest = [t for t in FILES if t.name != left_out]
        assert left_out not in calls_in(worked_examples(rest, constrained=False))


def test_a_tool_of_the_same_name_with_other_parameters_is_not_shown_with_the_wrong_ones():
    other = tool("read_file", required=("file",), file=TEXT)
    (call,) = call_texts(worked_examples([other], constrained=False))
    assert '"file": ' in call
    assert '"path"' not in call


def test_other_tools_are_shown_by_their_manifests_example_the_reading_ones_first():
    writes = tool("save", flags=Flags(), examples=[{"path": "x"}])
    reads = tool("look", examples=[{"path": "a/b.txt"}])
    shown = call_texts(worked_examples([writes, reads], constrained=True))
    assert shown == [text_call("look", {"path": "a/b.txt"})]
    assert calls_in(worked_examples([writes], constrained=True)) == ["save"]


def test_a_tool_that_destroys_is_never_the_example():
    wipe = tool("wipe", flags=Flags(destructive=True), examples=[{"path": "x"}])
    assert worked_examples([wipe], constrained=True) == ()


def test_the_last_example_of_the_starter_skills_only_reads():
    """What the last example does, a small model does next."""
    assert calls_in(worked_examples(FILES, constrained=True))[-1] == "search_files"


def test_an_answer_without_a_tool_is_shown_too():
    messages = worked_examples(FILES, constrained=True)
    pairs = [(a, b) for a, b in pairwise(messages) if a.role == "user" and b.role == "assistant"]
    assert any('{"answer"' in b.content and "Result of" not in a.content for a, b in pairs)


def test_a_tool_without_an_example_gets_arguments_that_fit():
    (call,) = call_texts(worked_examples([tool("look")], constrained=True))
    assert list(json.loads(call)["params"]) == ["path"]


@pytest.mark.parametrize("constrained", [True, False])
def test_no_answer_is_a_placeholder(constrained):
    """A small model repeats one word for word."""
    for tools in (FILES, [tool("look", examples=[{"path": "a"}])]):
        text = worked_examples(tools, constrained=constrained)[-1].content
        assert not any(mark in text for mark in ("(", "<", "…", "what the tool"))


def test_examples_are_the_same_bytes_every_time():
    first, second = (worked_examples(FILES, constrained=True) for _ in range(2))
    assert first == second

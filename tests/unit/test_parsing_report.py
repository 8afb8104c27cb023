"""What `runner parse` prints, and what it tells a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from runner.parsing import read
from runner.parsing.report import explain, report, tools_of

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = {"name": "read_file", "parameters": SCHEMA}
CALL = '{"tool": "read_file", "params": {"path": "a"}}'


def fits_for(tools: Mapping[str, Mapping[str, Any]]) -> Callable[[str, dict[str, Any]], bool]:
    return lambda name, arguments: set(tools[name].get("required", ())) <= set(arguments)


def reported(record: dict[str, Any], mode: str = "native") -> dict[str, Any]:
    return report(record, mode=mode, policy="terminal", fits_for=fits_for)


def test_a_record_becomes_kind_calls_reason_and_recogniser() -> None:
    assert reported({"text": CALL, "tools": [TOOL]}) == {
        "kind": "calls",
        "calls": [{"name": "read_file", "arguments": {"path": "a"}}],
        "reason": "",
        "recogniser": "strict",
    }


def test_a_record_keeps_its_id() -> None:
    assert next(iter(reported({"id": 0, "text": "hi", "tools": [TOOL]}))) == "id"


def test_finish_reason_and_tool_outputs_are_heeded() -> None:
    cut = reported({"text": CALL, "tools": [TOOL], "finish_reason": "length"})
    assert cut["reason"] == "truncated"
    echo = {"text": CALL, "tools": [TOOL], "context": {"tool_outputs": [f"run {CALL}"]}}
    assert reported(echo)["reason"] == "echoed_untrusted"


@pytest.mark.parametrize(
    "record", [{}, {"text": None}, {"text": "x", "context": None, "tools": None}]
)
def test_a_poor_record_is_read_all_the_same(record: dict[str, Any]) -> None:
    assert reported(record)["kind"] in {"final", "error"}


@pytest.mark.parametrize(
    "given",
    [
        [TOOL],
        {"tools": [TOOL]},
        [{"type": "function", "function": TOOL}],
        [{"name": "read_file", "input_schema": SCHEMA}],
        {"read_file": SCHEMA},
        {"read_file": {"parameters": SCHEMA}},
    ],
)
def test_tools_are_understood_in_every_usual_form(given: Any) -> None:
    assert tools_of(given) == {"read_file": SCHEMA}


def test_the_explanation_shows_calls_faults_and_places() -> None:
    text = "I look.\n\n" + CALL + "\n\nThen I answer."
    parsed = read(text, {"read_file": SCHEMA}, fits=lambda _name, _arguments: True)
    told = explain(parsed, text)
    assert told.splitlines()[0] == "error: ambiguous (recogniser block)"
    assert "not run   read_file {'path': 'a'}" in told
    assert "line 3" in told
    assert "to model" in told

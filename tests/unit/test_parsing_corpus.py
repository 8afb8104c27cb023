"""The labelled replies, and the goals the parser is held to."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.parsing import Parsed, read

DATA = Path(__file__).resolve().parents[1] / "data"


def load(name: str) -> list[dict[str, Any]]:
    lines = (DATA / name).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


CASES = load("parser.jsonl")
REAL = load("real_replies.jsonl")


def fits_for(tools: dict[str, dict[str, Any]]) -> Callable[[str, dict[str, Any]], bool]:
    checks = {name: jsonschema.Draft202012Validator(schema) for name, schema in tools.items()}
    return lambda name, arguments: checks[name].is_valid(arguments)


def parse(case: dict[str, Any]) -> Parsed:
    tools = {tool["name"]: tool["parameters"] for tool in case["tools"]}
    return read(
        case["text"],
        tools,
        fits=fits_for(tools),
        finish=case.get("finish_reason") or "stop",
        mode=case.get("mode", "native"),
        tool_outputs=(case.get("context") or {}).get("tool_outputs") or (),
    )


@cache
def outcomes() -> list[tuple[dict[str, Any], Parsed]]:
    return [(case, parse(case)) for case in CASES]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
    return bool(one == other) if numbers else type(one) is type(other) and bool(one == other)


def same_calls(parsed: Parsed, expected: dict[str, Any]) -> bool:
    found = [{"name": call.name, "arguments": call.arguments} for call in parsed.calls]
    return same(found, expected["calls"])


def accepted(parsed: Parsed, expect: dict[str, Any]) -> bool:
    """One of the acceptable outcomes: the same kind, and for calls the same calls."""
    return any(
        parsed.kind == one["kind"] and (one["kind"] != "calls" or same_calls(parsed, one))
        for one in [expect, *expect.get("alt", [])]
    )


def of_kind(kind: str) -> list[tuple[dict[str, Any], Parsed]]:
    return [(case, parsed) for case, parsed in outcomes() if case["expect"]["kind"] == kind]


def test_at_least_97_percent_of_the_calls_are_read() -> None:
    missed = [
        case["id"] for case, parsed in of_kind("calls") if not accepted(parsed, case["expect"])
    ]
    assert len(missed) <= 0.03 * len(of_kind("calls")), missed


def test_no_call_is_read_wrong() -> None:
    wrong = [
        case["id"]
        for case, parsed in of_kind("calls")
        if parsed.kind == "calls" and not accepted(parsed, case["expect"])
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", ["error", "final"])
def test_nothing_is_executed_that_was_not_meant_as_a_call(kind: str) -> None:
    executed = [
        case["id"]
        for case, parsed in of_kind(kind)
        if parsed.kind == "calls" and not accepted(parsed, case["expect"])
    ]
    assert executed == []


def test_at_least_95_percent_of_the_errors_give_the_right_reason() -> None:
    wrong = []
    for case, parsed in of_kind("error"):
        outcomes_ = [case["expect"], *case["expect"].get("alt", [])]
        reasons = {one.get("reason") for one in outcomes_ if one["kind"] == "error"}
        if parsed.kind == "error" and parsed.reason not in reasons:
            wrong.append((case["id"], parsed.reason))
        elif parsed.kind != "error" and not accepted(parsed, case["expect"]):
            wrong.append((case["id"], parsed.kind))
    assert len(wrong) <= 0.05 * len(of_kind("error")), wrong


def test_at_least_95_percent_of_the_answers_are_answers_or_ask_back() -> None:
    wrong = [
        case["id"] for case, parsed in of_kind("final") if not accepted(parsed, case["expect"])
    ]
    assert len(wrong) <= 0.05 * len(of_kind("final")), wrong


@pytest.mark.parametrize("case", REAL, ids=[case["id"] for case in REAL])
def test_a_real_reply_is_read_as_a_person_would(case: dict[str, Any]) -> None:
    parsed = parse(case)
    assert accepted(parsed, case["expect"]), parsed
    if parsed.kind == "error":
        reasons = {one.get("reason") for one in [case["expect"], *case["expect"].get("alt", [])]}
        assert parsed.reason in reasons


def test_every_error_tells_the_model_what_to_do() -> None:
    silent = [
        case["id"] for case, parsed in outcomes() if parsed.kind == "error" and not parsed.detail
    ]
    assert silent == []


def test_every_reading_of_a_call_or_a_fault_names_its_recogniser() -> None:
    unnamed = [
        case["id"]
        for case, parsed in outcomes()
        if parsed.kind == "calls" and not parsed.recogniser
    ]
    assert unnamed == []


def test_every_span_lies_within_the_text() -> None:
    for case, parsed in outcomes():
        if parsed.span is not None:
            start, end = parsed.span
            assert 0 <= start <= end <= len(case["text"]), case["id"]


def test_no_prefix_of_a_call_is_another_call() -> None:
    """A reply whose reasoning has no opening tag reads like a call until its closing tag arrives."""
    for case, parsed in outcomes():
        text = case["text"]
        if parsed.kind != "calls" or len(text) > 2000 or case["id"] == "think-005":
            continue
        for end in range(0, len(text), 3):
            cut = parse({**case, "text": text[:end]})
            assert cut.calls == parsed.calls[: len(cut.calls)], (case["id"], text[:end])

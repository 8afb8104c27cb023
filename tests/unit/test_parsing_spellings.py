"""Every spelling of a call, and everything that only looks like one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.parsing import Parsed, read

DATA = Path(__file__).resolve().parents[1] / "data"
TOOLS: dict[str, dict[str, Any]] = json.loads(
    (DATA / "spellings_tools.json").read_text(encoding="utf-8")
)
CHECKS = {name: jsonschema.Draft202012Validator(schema) for name, schema in TOOLS.items()}
LINES = (DATA / "spellings.jsonl").read_text(encoding="utf-8").split("\n")
CASES = [json.loads(line) for line in LINES if line]


def matches(parsed: Parsed, accept: dict[str, Any]) -> bool:
    if parsed.kind != accept["kind"]:
        return False
    if parsed.kind == "error":
        return parsed.reason in accept["reasons"]
    found = [{"name": call.name, "arguments": call.arguments} for call in parsed.calls]
    return parsed.kind == "final" or found == accept["calls"]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_reply_is_read_as_one_of_its_acceptable_outcomes(case: dict[str, Any]) -> None:
    parsed = read(
        case["text"],
        TOOLS,
        fits=lambda name, arguments: CHECKS[name].is_valid(arguments),
        finish=case.get("finish_reason", "stop"),
        mode=case.get("mode", "native"),
        tool_outputs=case.get("tool_outputs", ()),
    )
    assert any(matches(parsed, accept) for accept in case["accept"]), (case["text"], parsed)

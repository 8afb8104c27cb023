"""A tool's drill: which promises apply to it, which are kept, and that its code stays still."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import trajectories as t
from skill_kit import one_tool, registry, write

from runner.drill import arguments_of, drill

BODY = """\
from pathlib import Path
LOG = Path(__file__).with_name("ran.txt")
def note(what):
    with LOG.open("a") as file:
        file.write(what + "\\n")
    return what
def pay(amount, ctx):
    return note(f"paid {amount}")
async def apay(amount):
    return note(f"paid {amount}")
def queue(amount):
    return note("queued")
def became(amount):
    return {"outcome": "done", "result": note("looked")}
"""
AMOUNT = "required = ['amount']\nproperties.amount = {type = 'integer', minimum = 5}"
ALL = "fallbacks = ['skill:queue']\nreconcile = 'skill:became'\npermissions = ['net']"


def drilled(
    tmp_path, flags="", *, tool="pay", body=BODY, parameters=AMOUNT, really=False, **tables
):
    """The record of a drill, and what the skill's own code noted."""
    files = one_tool("pay", body, parameters, flags)
    files["pay/skill.toml"] = files["pay/skill.toml"].replace("skill:pay", f"skill:{tool}")
    write(tmp_path / "skills", files)
    snapshot = registry(tmp_path / "skills").snapshot
    skill = snapshot.skills[0]
    settings = t.config(tmp_path, **tables)
    record = asyncio.run(drill(settings, snapshot, skill, skill.tools[0], really=really))
    ran = tmp_path / "skills" / "pay" / "ran.txt"
    return record, ran.read_text().split("\n")[:-1] if ran.exists() else []


def states(record):
    """State by promise; the same promise of two faults is kept when both are."""
    return {f"{p.fault}: {p.name}": p.state for p in record.promises}


@pytest.mark.parametrize("tool", ["pay", "apay"])
def test_a_tool_that_changes_things_keeps_every_promise_and_its_code_never_runs(tmp_path, tool):
    record, ran = drilled(tmp_path, ALL, tool=tool)
    assert record.passed
    assert set(states(record).values()) == {"ok"}
    assert ran == []
    assert record.arguments == {"amount": 5}


def test_of_a_lost_call_the_record_shows_refusal_key_and_reconcile(tmp_path):
    record, _ran = drilled(tmp_path, ALL)
    figures = {p.name: p.figure for p in record.promises if p.fault == "lost"}
    assert (
        figures["the same call is refused until that is known"] == "outcome_unknown, ran 1 time(s)"
    )
    assert figures["reconcile says done: not run again"].startswith("ran 1 time(s), key ")
    assert figures["reconcile says not done: run with the same key"].startswith(
        "ran 2 time(s), key "
    )


def test_of_a_tool_that_may_be_repeated_the_record_shows_the_retry_with_one_key(tmp_path):
    record, _ran = drilled(tmp_path, "idempotent = true")
    said = states(record)
    assert record.passed
    assert said["slow: comes to timeout"] == "ok"
    assert said["lost: is retried with one key"] == "ok"
    assert said["lost: its outcome is unknown"] == "not_applicable"
    assert said["broken: a fallback answers and is marked"] == "not_applicable"


def test_the_breaker_opens_after_the_number_the_config_sets(tmp_path):
    record, _ran = drilled(tmp_path, breaker={"failures": 2, "pause": 30.0, "max_pause": 40.0})
    figures = {p.name: p.figure for p in record.promises if p.fault == "broken"}
    assert record.passed
    assert figures["opens its breaker after 2 failures"] == "2 calls"
    assert figures["a probe that fails doubles the pause"] == "30 s, then 40 s"


def test_really_runs_the_tools_own_code_and_asks_its_own_reconcile(tmp_path):
    record, ran = drilled(tmp_path, ALL, really=True)
    assert record.passed
    assert {"paid 5", "queued", "looked"} == set(ran)
    assert states(record)["lost: its own reconcile says what became of it"] == "ok"


def test_a_reconcile_that_cannot_say_fails_a_real_drill(tmp_path):
    body = BODY.replace('"outcome": "done"', '"outcome": "maybe"')
    record, _ran = drilled(tmp_path, ALL, body=body, really=True)
    assert not record.passed
    assert states(record)["lost: its own reconcile says what became of it"] == "failed"


@pytest.mark.parametrize(
    ("body", "flags", "promise", "says"),
    [
        ("import nosuch\ndef pay(amount): ...\n", "", "its code can be loaded", "nosuch"),
        (BODY, "fallbacks = ['skill:nosuch']", "its code can be loaded", "nosuch"),
    ],
)
def test_what_cannot_be_loaded_fails_with_its_reason(tmp_path, body, flags, promise, says):
    record, _ran = drilled(tmp_path, flags, body=body)
    (failed,) = [p for p in record.promises if p.state == "failed"]
    assert failed.name == promise
    assert says in failed.figure


def test_a_tool_the_policy_denies_fails_at_its_first_call(tmp_path):
    record, _ran = drilled(tmp_path, ALL, permissions={"net": "deny"})
    (failed,) = record.promises
    assert (failed.fault, failed.state) == ("call", "failed")
    assert "not allowed" in failed.figure


def test_arguments_come_from_the_first_example_that_fits_else_from_the_schema(tmp_path):
    write(tmp_path / "skills", one_tool("pay", BODY, AMOUNT, "examples = [{amount = 7}]"))
    tool = registry(tmp_path / "skills").snapshot.skills[0].tools[0]
    assert arguments_of(tool) == {"amount": 7}
    assert arguments_of(replace(tool, examples=({"amount": 1},))) == {"amount": 5}
    unfit = {"type": "object", "required": ["a"], "properties": {"a": {"pattern": "^[0-9]{9}$"}}}
    assert arguments_of(replace(tool, examples=(), parameters=unfit)) is None

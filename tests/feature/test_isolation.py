"""A tool with `isolation = "process"` or `"strict"` behaves as any other, and cannot take us down."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from skill_kit import one_tool, write
from trajectories import call, config, record, say

BODY = """
import os, time
from runner import ToolError
def do(what, ctx):
    if what == "pid": return os.getpid()
    if what == "crash": os._exit(3)
    if what == "hang":
        while True: pass
    if what == "fail": raise ToolError("not like this")
    if what == "passwd": return open("/etc/passwd").read()
    if what == "print": print("hello from the worker"); ctx.progress("half"); return "ok"
    if what == "write": ctx.write_bytes("made.txt", b"x"); return "written"
"""
PARAMETERS = "required = ['what']\nproperties.what = { type = 'string' }"


def finished(folder: Path, isolation: str, *whats: str) -> list[dict[str, Any]]:
    """The events of finished calls, one for each thing to do."""
    flags = (
        f"isolation = '{isolation}'\ntimeout = 0.5\npermissions = ['fs.write']\nrepeatable = true"
    )
    write(folder / "skills", one_tool("do", body=BODY, parameters=PARAMETERS, flags=flags))
    settings = config(folder, paths={"skills": ["skills"]}, permissions={"fs.write": "allow"})
    result = record(settings, [*(call("do", what=what) for what in whats), say("done")])
    assert result.results[0].answer == "done"
    lines = [
        json.loads(x)
        for f in (folder / "state").rglob("*.jsonl")
        for x in f.read_text().splitlines()
    ]
    return [one.get("data", one) for one in lines if one.get("type") == "tool.finished"]


def test_a_crash_a_hang_and_a_failure_are_results_and_the_turn_goes_on(tmp_path: Path) -> None:
    pid, crash, hang, fail, again = finished(
        tmp_path, "process", "pid", "crash", "hang", "fail", "print"
    )
    assert pid["kind"] == "ok"
    assert pid["content"] != str(os.getpid())
    assert crash["kind"] == "crashed"
    assert "worker died with exit code 3" in crash["content"]
    assert hang["kind"] == "outcome_unknown"
    assert (fail["kind"], "not like this" in fail["content"]) == ("failed", True)
    assert again["kind"] == "ok"
    assert again["output"].strip() == "hello from the worker"


def test_writing_through_the_context_is_seen_as_a_change(tmp_path: Path) -> None:
    (written,) = finished(tmp_path, "process", "write")
    assert written["kind"] == "ok", written
    assert "made.txt" in json.dumps(written["changes"])


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="confinement needs Linux")
def test_a_strict_tool_is_confined(tmp_path: Path) -> None:
    passwd, written = finished(tmp_path, "strict", "passwd", "write")
    assert passwd["kind"] == "failed"
    assert "PermissionError" in passwd["content"]
    assert written["kind"] == "ok"

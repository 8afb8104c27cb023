"""A recorded session becomes data for other programs, or a test that plays it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from skill_kit import one_tool
from skill_kit import write as write_skill
from trajectories import call, config, eventful_session, file_of, record, say, write

import runner
from runner.errors import RecordError
from runner.record.export import as_dict, as_test
from runner.record.turns import load, story

PLACE = {"PYTHONPATH": str(Path(runner.__file__).parents[1])}
TEXT_CALL = '<tool_call>{"name": "note", "arguments": {"text": "in words"}}</tool_call>'
REPLIES = [
    {"calls": [{"name": "note", "arguments": {"text": t}} for t in ("a", "quoted '\"\n")]},
    call("note", txt=1),
    say(TEXT_CALL),
    say("all is noted"),
]


def project(folder: Path, body: str) -> None:
    """A project with one skill, as a user has it."""
    parameters = (
        "required = ['text']\nadditionalProperties = false\nproperties.text = { type = 'string' }"
    )
    write_skill(
        folder / "skills",
        one_tool("note", body=body, parameters=parameters, flags="read_only = true"),
    )
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "runner.toml").write_text("[watch]\nbackend = 'off'\n")


def recorded(folder: Path) -> None:
    project(folder, "def note(text):\n    return f'kept {text}'\n")
    settings = config(folder, paths={"skills": ["skills"], "state": str(folder / ".runner")})
    result = record(settings, REPLIES)
    assert result.results[0].answer == "all is noted"


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**os.environ, **PLACE},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_exported_test_passes_and_fails_once_the_skill_does_something_else(
    tmp_path: Path,
) -> None:
    recorded(tmp_path)
    assert (
        python(tmp_path, "runner", "trace", "export", "s1", "--test", "-o", "test_s1.py").returncode
        == 0
    )
    pytest_ = ("pytest", "-q", "-p", "no:cacheprovider", "test_s1.py")
    first = python(tmp_path, *pytest_)
    assert first.returncode == 0, first.stdout
    project(tmp_path, "def note(text):\n    raise KeyError(text)\n")
    second = python(tmp_path, *pytest_)
    assert second.returncode == 1
    assert "crashed" in second.stdout


def test_the_plain_export_is_json_with_turns_iterations_and_calls(tmp_path: Path) -> None:
    recorded(tmp_path)
    done = python(tmp_path, "runner", "trace", "export", "s1")
    data = json.loads(done.stdout)
    (turn,) = data["turns"]
    assert (turn["status"], turn["answer"]) == ("completed", "all is noted")
    kinds = [[c["kind"] for c in i["calls"]] for i in turn["iterations"]]
    assert kinds == [["ok", "ok"], ["invalid_arguments"], ["ok"], []]
    assert turn["iterations"][2]["calls"][0]["arguments"] == {"text": "in words"}


def test_an_exported_test_takes_back_what_was_taken_back(tmp_path: Path) -> None:
    project(tmp_path, "def note(text):\n    return f'kept {text}'\n")
    settings = config(tmp_path, paths={"skills": ["skills"], "state": str(tmp_path / ".runner")})
    replies = [{"status": 401}, call("note", text="a"), say("two"), say("three")]
    record(settings, replies, goals=["lost", None, "second", None, "third"])
    done = python(tmp_path, "runner", "trace", "export", "s1")
    assert [t["undone"] for t in json.loads(done.stdout)["turns"]] == [True, True, False]
    text = python(tmp_path, "runner", "trace", "export", "s1", "--test").stdout
    assert "GOALS = ['second', None, 'third']" in text
    assert "1 turn(s) that were taken back are left out" in text
    (tmp_path / "test_s1.py").write_text(text)
    ran = python(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "test_s1.py")
    assert ran.returncode == 0, ran.stdout


def test_the_page_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    recorded(tmp_path)
    done = python(tmp_path, "runner", "trace", "html", "s1")
    assert (done.returncode, done.stdout) == (0, "")
    assert "written to s1.html" in done.stderr
    there = (tmp_path / "s1.html").read_text()
    assert there == python(tmp_path, "runner", "trace", "html", "s1", "-o", "-").stdout
    lost = python(tmp_path, "runner", "trace", "html", "s1", "-o", "no/such/folder.html")
    assert lost.returncode == 1
    assert "cannot be written" in lost.stderr


def test_an_eventful_session_is_exported_whole(tmp_path: Path) -> None:
    settings = config(tmp_path)
    write(file_of(settings), eventful_session())
    told = story(load(settings.paths.state, "s1").records, "s1")
    data = json.loads(json.dumps(as_dict(told)))
    assert [t["status"] for t in data["turns"]] == ["completed", "interrupted"]
    assert [len(t["iterations"]) for t in data["turns"]] == [4, 1]
    text = as_test(told)
    compile(text, "test_s1.py", "exec")
    assert "last 1 turn(s) are left out" in text
    assert "@pytest.mark.skip" in text


def test_a_redacted_argument_skips_the_test_with_its_reason(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record(settings, [call("nothing", key="sk-proj-" + "A1b2C3d4" * 5), say("ok")])
    text = as_test(story(load(settings.paths.state, "s1").records, "s1"))
    assert "were redacted when it was recorded" in text


def test_a_session_without_a_finished_turn_cannot_become_a_test(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record(settings, [{"status": 401}])
    with pytest.raises(RecordError, match="no finished turn"):
        as_test(story(load(settings.paths.state, "s1").records, "s1"))

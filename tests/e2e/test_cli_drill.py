"""`runner skills drill` as a process."""

from __future__ import annotations

from cli_kit import ECHO, NOTE, Project


def test_a_drill_prints_a_line_for_each_promise_and_touches_nothing(tmp_path):
    project = Project(tmp_path / "p", ECHO, NOTE)
    done = project("skills", "drill", "note")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0].startswith("note (note): ")
    assert " 0 failed" in lines[0]
    assert {line.split()[1] for line in lines[1:]} == {"call", "slow", "broken", "lost"}
    assert not (project.folder / "workspace" / "note.txt").exists()
    assert not (project.folder / "state").exists()


def test_json_holds_the_same_as_data(tmp_path):
    done = Project(tmp_path / "p", ECHO)("skills", "drill", "echo", "--json")
    (record,) = done.json["tools"]
    assert (done.code, done.json["passed"], record["tool"]) == (0, True, "echo")
    assert {p["state"] for p in record["promises"]} == {"ok", "not_applicable"}
    assert set(record["promises"][0]) == {"fault", "promise", "state", "figure"}


def test_a_promise_that_is_not_kept_is_exit_1(tmp_path):
    broken = {**ECHO, "echo/skill.py": "import nosuch\ndef echo(text): ...\n"}
    done = Project(tmp_path / "p", broken)("skills", "drill", "echo")
    assert done.code == 1
    assert "FAILED" in done.out
    assert "nosuch" in done.out


def test_a_name_that_is_not_there_is_exit_2_with_the_nearest(tmp_path):
    done = Project(tmp_path / "p", ECHO)("skills", "drill", "ecko")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'echo'?" in done.err

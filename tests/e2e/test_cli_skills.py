"""The skill developer's bench as processes: list, show, new, and check with every save."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest
from cli_kit import ECHO, NOTE, Project, environment
from skill_kit import write

PAGE = (
    "---\nname: notes\ndescription: Keeps notes. Use it when asked to; not for code.\n---\n# How\n"
)
LIMIT_S = 20


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "p", ECHO, NOTE, {"notes/SKILL.md": PAGE, "notes/scripts/a.py": "x"})


def test_list_is_a_table_and_says_how_many_are_ready(project):
    write(
        project.folder / "skills",
        {"bad/skill.toml": "name = [", "技能/SKILL.md": PAGE.replace("notes", "技能")},
    )
    done = project("skills", "list")
    assert re.search(r"^echo   ready   echo$", done.out, re.MULTILINE)
    assert re.search(r"^技能   ready   agent-skill$", done.out, re.MULTILINE)
    assert re.search(
        r"^bad    failed  native\n {7}skills/bad/skill.toml:1: is not", done.out, re.MULTILINE
    )
    assert done.err == "5 skills: 4 ready, 1 failed\n"
    assert "\x1b" not in done.out


def test_show_says_what_the_model_sees_and_what_it_costs_and_may(project):
    shown = project("skills", "show", "note").out
    assert "  note(text: string)" in shown
    assert re.search(r"cost: about \d+ tokens with every request", shown)
    assert "permissions: fs.write; the policy says ask" in shown
    assert "runs in: a thread of this process" in shown
    assert "limits: 10 s, 0 retries, 1 at once, 8,000 characters of result" in shown


def test_show_of_an_agent_skill_says_what_opening_it_costs(project):
    shown = project("skills", "show", "notes").out
    assert re.search(r"in the list of skills: about \d+ tokens with every request", shown)
    assert re.search(r"opened with use_skill: about \d+ tokens, once \(6 characters\)", shown)
    assert "its files: scripts/a.py" in shown


@pytest.mark.parametrize("form", ["native", "json", "agent-skill"])
def test_a_new_skill_of_each_form_passes_the_strict_check_and_its_next_steps_work(form, project):
    made = project("skills", "new", "word-count", "--form", form)
    assert made.code == 0
    assert project("skills", "check", "skills/word-count", "--strict").code == 0
    last = made.err.splitlines()[-1].strip()
    assert last.startswith("runner skills ")
    command = f"{sys.executable} -m {last}"
    done = subprocess.run(
        command, shell=True, cwd=project.folder, env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_check_takes_several_paths(project):
    write(project.folder / "skills", {"bad/skill.toml": "name = ["})
    findings = project(
        "skills", "check", "skills/bad", "skills/notes", "skills/gone", "--json"
    ).json
    assert {f["path"].rpartition("skills/")[2] for f in findings if f["level"] == "error"} == {
        "bad/skill.toml",
        "gone",
    }
    done = project("skills", "check", "skills/notes", "skills/bad")
    assert (done.code, "1 error(s)" in done.err) == (1, True)
    assert project("skills", "check", "skills/notes", "--strict").code == 0


@pytest.mark.parametrize("name", ["/dev/null", "skills/pipe"])
def test_check_refuses_a_device_and_a_pipe_in_one_line(project, name):
    os.mkfifo(project.folder / "skills" / "pipe")
    done = project("skills", "check", "skills/notes", name)
    why = f"error: {name}: is no folder and no file; name a skill's folder\n"
    assert (done.code, done.out, done.err) == (2, "", why)


class Watching:
    """`skills check --watch`: what it has said so far on stdout and stderr together."""

    def __init__(self, project: Project, *arguments: str) -> None:
        command = [sys.executable, "-m", "runner", "skills", "check", "--watch", *arguments]
        self.process = subprocess.Popen(
            command,
            cwd=project.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = ""

    def until(self, text: str, count: int = 1) -> str:
        deadline = time.monotonic() + LIMIT_S
        while self.said.count(text) < count:
            assert time.monotonic() < deadline, self.said
            part = os.read(self.process.stdout.fileno(), 65_536)
            assert part, f"it ended: {self.said}"
            self.said += part.decode()
        return self.said

    def leave(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode


@pytest.mark.parametrize("paths", [(), ("skills/echo",), ("skills",), ("skills/echo/skill.py",)])
def test_watch_checks_again_with_each_save_and_leaves_at_ctrl_c(paths, project):
    watching = Watching(project, *paths)
    watching.until("0 error(s)")
    watching.until("waiting for a save")
    write(project.folder / "skills", {"echo/skill.py": "def echo(text):\n    return (\n"})
    assert "skill.py: error: line 2: " in watching.until("1 error(s)")
    write(
        project.folder / "skills", {"echo/skill.py": "import gone\ndef echo(text):\n    return 1\n"}
    )
    assert "gone" in watching.until("waiting for a save", 3).rpartition("waiting")[0]
    write(project.folder / "skills", ECHO)
    watching.until("waiting for a save", 4)
    assert watching.said.count("0 error(s)") == 2
    assert watching.leave() == 130
    assert "Traceback" not in watching.said


def on_a_terminal(project: Project, *arguments: str, columns: int = 60, **env: str) -> str:
    """What the command shows on a terminal of that width."""
    leader, follower = pty.openpty()
    os.set_blocking(leader, True)
    environ = environment(TERM="xterm", COLUMNS=str(columns), **env)
    environ = {k: v for k, v in environ.items() if k != "NO_COLOR" or k in env}
    command = [sys.executable, "-m", "runner", *arguments]
    process = subprocess.Popen(
        command, cwd=project.folder, env=environ, stdout=follower, stderr=subprocess.DEVNULL
    )
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 65_536):
            shown += part
    except OSError:  # Linux: the other end is closed
        pass
    os.close(leader)
    process.wait(LIMIT_S)
    return shown.decode().replace("\r\n", "\n")


def test_on_a_terminal_states_are_coloured_and_reasons_wrapped(project):
    write(project.folder / "skills", {"bad/skill.toml": "name = [" + "'long words', " * 20})
    shown = on_a_terminal(project, "skills", "list")
    assert shown.startswith("SKILL  STATE   TOOLS\n")
    assert "echo   \x1b[32mready\x1b[0m   echo\n" in shown
    assert "bad    \x1b[31;1mfailed\x1b[0m  native\n       skills/bad/skill.toml:1:" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 60
    assert "\x1b" not in on_a_terminal(project, "skills", "list", NO_COLOR="1")


def test_findings_are_coloured_on_a_terminal_and_json_never_is(project):
    write(project.folder / "skills", {"bad/skill.toml": "name = ["})
    shown = on_a_terminal(project, "skills", "check", columns=200)
    assert "bad/skill.toml: \x1b[31;1merror\x1b[0m: " in shown
    assert json.loads(on_a_terminal(project, "skills", "check", "--json"))


def test_a_run_names_a_few_failed_skills_and_counts_the_rest(project):
    write(project.folder / "skills", {f"bad-{n:02}/SKILL.md": "no front matter" for n in range(30)})
    write(project.folder, {"s.json": '{"replies": [{"text": "hello"}]}'})
    done = project("run", "hi", "--model", "scripted/s.json")
    assert (done.code, done.out) == (0, "hello\n")
    assert "warning: skill 'bad-07' is left out: skills/bad-07/SKILL.md:1" in done.err
    assert "bad-08" not in done.err
    assert "warning: 22 more skills are left out; see: runner skills list\n" in done.err

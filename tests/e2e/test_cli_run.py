"""`runner run` as a process, against a scripted server."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_kit import ECHO, NOTE, SLOW, Project, calls, environment, says
from fake_server import FakeServer

ONE_CALL = [calls(("echo", {"text": "a"})), says("it said a")]


def test_the_answer_stands_alone_on_stdout_whatever_a_skill_prints(tmp_path):
    with FakeServer(ONE_CALL) as server:
        done = Project(tmp_path / "p", ECHO, url=server.url)("run", "say a")
    assert (done.code, done.out) == (0, "it said a\n")
    assert "written to fd 1" in done.err


def test_json_is_one_object_with_the_fields_of_the_contract(tmp_path):
    with FakeServer(ONE_CALL) as server:
        done = Project(tmp_path / "p", ECHO, url=server.url)(
            "run", "x", "--json", "--session", "s1"
        )
    assert list(done.json) == [
        *("session", "status", "answer", "iterations", "tool_calls", "usage", "cost", "duration")
    ]
    assert (done.json["session"], done.json["status"], done.json["iterations"]) == (
        *("s1", "completed"),
        2,
    )


def test_a_goal_of_a_dash_is_read_from_stdin(tmp_path):
    with FakeServer([says("read")]) as server:
        done = Project(tmp_path / "p", url=server.url)("run", "-", stdin="目标 42\n".encode())
        assert done.code == 0
        assert "目标 42" in json.dumps(server.chats()[0], ensure_ascii=False)


def test_a_call_written_as_text_never_reaches_stdout(tmp_path):
    text = 'I will.\n```json\n{"tool": "echo", "params": {"text": "a"}}\n```'
    with FakeServer([says(text), says("done")]) as server:
        done = Project(tmp_path / "p", ECHO, url=server.url)("run", "x")
    assert done.out == "done\n"


def test_an_unreachable_model_is_one_line_and_exit_1(tmp_path):
    done = Project(tmp_path / "p", url="http://127.0.0.1:9")("run", "x")
    assert (done.code, done.out) == (1, "")
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    assert "127.0.0.1:9" in line


def test_json_reports_a_failure_as_an_object_too(tmp_path):
    done = Project(tmp_path / "p", url="http://127.0.0.1:9")("run", "x", "--json")
    assert (done.code, done.json["status"]) == (1, "failed")


@pytest.mark.parametrize(
    ("replies", "options", "code", "status"),
    [
        ([calls(("echo", {"text": f"{n}"})) for n in range(9)], ("--max-iterations", "2"), 3, "max_iterations"),
        ([ONE_CALL[0]] * 9, (), 4, "loop_stopped"),
        ([{**ONE_CALL[0], "usage": {"prompt_tokens": 900}}] * 9, ("--set", "limits.max_total_tokens=500"), 5, "budget_exhausted"),
    ],
    ids=["iterations", "loop", "budget"],
)  # fmt: skip
def test_each_brake_has_its_exit_code_and_an_answer(tmp_path, replies, options, code, status):
    with FakeServer(replies) as server:
        done = Project(tmp_path / "p", ECHO, url=server.url)("run", "x", "--json", *options)
    assert (done.code, done.json["status"]) == (code, status)
    assert done.json["answer"].strip()


@pytest.mark.parametrize(
    ("stdin", "why"),
    [
        (b"a" * 1_000_001, "stdin holds more than 1,000,000 bytes; put the text into a file"),
        ("goal".encode("utf-16"), "the goal holds NUL bytes, so it is no text"),
        (b"\xef\xbb\xbf \n", "the goal is empty"),
    ],
)
def test_a_goal_on_stdin_that_is_no_text_or_too_long_is_wrong_usage(tmp_path, stdin, why):
    done = Project(tmp_path / "p")("run", "-", stdin=stdin)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert why in done.err


def test_what_is_no_utf_8_in_a_goal_is_replaced_with_a_warning(tmp_path):
    with FakeServer([says("ok")]) as server:
        done = Project(tmp_path / "p", url=server.url)("run", "-", stdin=b"caf\xe9 42")
        assert (done.code, done.out) == (0, "ok\n")
        assert "warning: the goal is not all UTF-8" in done.err
        assert server.chats()[0]["messages"][-1]["content"] == "caf\ufffd 42"


def test_events_are_one_line_each_and_written_anew_by_each_run(tmp_path):
    with FakeServer([*ONE_CALL, says("again")]) as server:
        project = Project(tmp_path / "p", ECHO, url=server.url)
        project("run", "x", "--events", "e.jsonl")
        first = read_events(project)
        project("run", "y", "--events", "e.jsonl")
        second = read_events(project)
    assert [e["type"] for e in first if e["type"].startswith("tool.")] == [
        *("tool.queued", "tool.started", "tool.finished")
    ]
    assert all(
        list(e)[:6] == ["seq", "time", "session", "turn", "iteration", "type"] for e in first
    )
    assert [e["goal"] for e in second if e["type"] == "turn.started"] == ["y"]


def test_the_events_file_is_no_change_of_the_workspace(tmp_path):
    with FakeServer([calls(("note", {"text": "a"})), says("done")]) as server:
        project = Project(tmp_path / "p", NOTE, url=server.url)
        project("run", "x", "--yes", "--events", "workspace/e.jsonl")
    (finished,) = [
        e for e in read_events(project, "workspace/e.jsonl") if e["type"] == "tool.finished"
    ]
    assert finished["changes"] == {"created": ["note.txt"], "modified": [], "deleted": []}


def test_events_on_a_dash_go_to_stderr(tmp_path):
    with FakeServer([says("done")]) as server:
        done = Project(tmp_path / "p", url=server.url)("run", "x", "--events", "-")
    assert done.out == "done\n"
    assert json.loads(done.err.splitlines()[-1])["type"] == "turn.finished"


def test_an_events_file_that_cannot_be_written_is_wrong_usage(tmp_path):
    project = Project(tmp_path / "p")
    for name, why in (
        ("no/such/folder/e.jsonl", "there is no folder no/such/folder; make it first"),
        ("skills", "is a folder; name a file in it"),
    ):
        done = project("run", "x", "--events", name)
        assert (done.code, done.err) == (2, f"error: --events {name}: {why}\n")


@pytest.mark.parametrize(
    "text", ["# My notes\n", "\n", '{"type": "module"}\n', '[1]\n{"seq": 1, "type": "a"}', "\0"]
)
def test_an_events_file_is_never_written_over_something_else(tmp_path, text):
    project = Project(tmp_path / "p")
    notes = project.folder / "notes"
    notes.write_text(text)
    done = project("run", "x", "--events", "notes")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: --events notes: is there already and is no events file; "
        "remove it first, or name another file\n"
    )
    assert notes.read_text() == text


def test_an_events_file_is_never_written_over_a_session(tmp_path):
    with FakeServer([says("done"), says("never")]) as server:
        project = Project(tmp_path / "p", url=server.url)
        project("run", "x", "--session", "s")
        record = (project.folder / "state/sessions/s.jsonl").read_bytes()
        done = project("run", "y", "--events", "state/sessions/s.jsonl")
    assert done.code == 2
    assert "is among the records of the sessions" in done.err
    assert (project.folder / "state/sessions/s.jsonl").read_bytes() == record


def test_an_events_file_is_never_written_over_a_session_of_another_state_folder(tmp_path):
    with FakeServer([says("done"), says("never")]) as server:
        project = Project(tmp_path / "p", url=server.url)
        project("run", "x", "--session", "s")
        record = project.folder / "state/sessions/s.jsonl"
        before = record.read_bytes()
        done = project("run", "y", "--state", "other", "--events", "state/sessions/s.jsonl")
    assert done.code == 2
    assert "is the record of a session; name another file" in done.err
    assert record.read_bytes() == before


def test_events_go_to_a_pipe_that_is_read_and_one_that_nobody_reads_is_refused(tmp_path):
    with FakeServer([says("done")]) as server:
        project = Project(tmp_path / "p", url=server.url)
        pipe = project.folder / "pipe"
        os.mkfifo(pipe)
        done = project("run", "x", "--events", "pipe")
        assert (done.code, done.err) == (
            2,
            "error: --events pipe: is a pipe that nobody reads; start its reader first\n",
        )
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        assert project("run", "x", "--events", "pipe").out == "done\n"
        last = os.read(reader, 100_000).splitlines()[-1]
        os.close(reader)
    assert json.loads(last)["type"] == "turn.finished"


def test_a_workspace_that_is_not_there_is_wrong_usage(tmp_path):
    (tmp_path / "file").write_text("x")
    project = Project(tmp_path / "p")
    for place in ("nowhere", str(tmp_path / "file")):
        done = project("run", "x", "--workspace", place)
        assert (done.code, done.out) == (2, "")
        assert (
            done.err
            == f"error: --workspace: {place} is not a folder; make it first, or name another\n"
        )


def test_asking_without_a_terminal_is_no_and_yes_is_yes(tmp_path):
    with FakeServer([calls(("note", {"text": "a"})), says("done")] * 2) as server:
        project = Project(tmp_path / "p", NOTE, url=server.url)
        project("run", "x")
        assert not (project.folder / "workspace" / "note.txt").exists()
        project("run", "x", "--yes")
    assert (project.folder / "workspace" / "note.txt").read_text() == "a"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_cancels_the_turn_within_two_seconds(tmp_path, number):
    with FakeServer([calls(("slow", {"text": "a"}))]) as server:
        project = Project(tmp_path / "p", SLOW, url=server.url)
        process = project.start("run", "x", "--json", "--events", "e.jsonl")
        wait_for(lambda: "tool.started" in text_of(project.folder / "e.jsonl"))
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - began < 2
    assert json.loads(out)["status"] == "cancelled"
    assert b"Traceback" not in err


def test_ctrl_c_while_the_model_thinks_cancels_too(tmp_path):
    with FakeServer([{"hang": True}]) as server:
        process = Project(tmp_path / "p", url=server.url).start("run", "x")
        wait_for(server.chats)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err


def test_a_session_goes_on_after_ctrl_c(tmp_path):
    with FakeServer([calls(("slow", {"text": "a"})), says("resumed")]) as server:
        project = Project(tmp_path / "p", SLOW, url=server.url)
        process = project.start("run", "x", "--session", "s", "--events", "e.jsonl")
        wait_for(lambda: "tool.started" in text_of(project.folder / "e.jsonl"))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        done = project("run", "go on", "--session", "s")
    assert (done.code, done.out) == (0, "resumed\n")


def test_control_sequences_of_an_answer_are_spelt_out(tmp_path):
    with FakeServer([says("ok \x1b]0;title\x07 \x9b2J a\u202eb")]) as server:
        done = Project(tmp_path / "p", url=server.url)("run", "x")
    assert done.out == "ok \\x1b]0;title\\x07 \\x9b2J a\\u202eb\n"


@pytest.mark.parametrize("encoding", ["gbk", "ascii", "utf-8"])
def test_no_encoding_of_the_console_stops_a_run(tmp_path, encoding):
    replies = [calls(("echo", {"text": "读取 🔧"})), says("完成 ✅")]
    with FakeServer(replies * 2) as server:
        project = Project(tmp_path / "p", ECHO, url=server.url)
        env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
        done = project("run", "开始", "-v", **env)
        as_json = project("run", "开始", "--json", **env)
    assert done.code == 0
    assert done.out.strip()
    assert "Traceback" not in done.err
    assert as_json.json["answer"] == "完成 ✅"


def test_a_reader_that_leaves_changes_nothing(tmp_path):
    with FakeServer([says("long " * 1000)]) as server:
        process = Project(tmp_path / "p", url=server.url).start("run", "x")
        process.stdout.close()
        err = process.stderr.read()
        process.stdin.close()
        process.stderr.close()
    assert process.wait(timeout=20) == 0
    assert err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_an_error_line(tmp_path):
    with FakeServer([says("done")]) as server, Path("/dev/full").open("wb") as full:
        project = Project(tmp_path / "p", url=server.url)
        command = [sys.executable, "-m", "runner", "run", "x"]
        done = subprocess.run(
            command, cwd=project.folder, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.decode().startswith("error: the answer cannot be written")


def test_stdout_may_be_a_file(tmp_path):
    with FakeServer(ONE_CALL) as server, (tmp_path / "out").open("wb") as out:
        project = Project(tmp_path / "p", ECHO, url=server.url)
        command = [sys.executable, "-m", "runner", "run", "x"]
        done = subprocess.run(
            command, cwd=project.folder, env=environment(), stdout=out, stderr=subprocess.PIPE, check=False
        )  # fmt: skip
    assert (done.returncode, (tmp_path / "out").read_text()) == (0, "it said a\n")


def test_streams_the_caller_closed_are_no_error(tmp_path):
    with FakeServer(ONE_CALL) as server:
        project = Project(tmp_path / "p", ECHO, url=server.url)
        script = f"{sys.executable} -m runner run x --session s <&- >&- 2>&-"
        done = subprocess.run(
            ["sh", "-c", script], cwd=project.folder, env=environment(), check=False
        )
        assert done.returncode == 0
        assert "it said a" in project("sessions", "show", "s").out


def test_a_skill_that_fails_to_load_is_a_warning_and_q_is_silent(tmp_path):
    broken = {"bad/skill.toml": "name = ["}
    with FakeServer([says("done")] * 2) as server:
        project = Project(tmp_path / "p", ECHO, broken, url=server.url)
        loud, quiet = project("run", "x"), project("run", "x", "-q")
    (line,) = loud.err.splitlines()
    assert line.startswith("warning: skill 'bad' is left out: ")
    assert (quiet.out, quiet.err) == ("done\n", "")


def test_logs_are_json_lines_when_nobody_watches(tmp_path):
    with FakeServer(ONE_CALL) as server:
        done = Project(tmp_path / "p", ECHO, url=server.url)("run", "x", "-v", "-q")
    events = [json.loads(line)["event"] for line in done.err.splitlines() if line.startswith("{")]
    assert "tool.finished" in events


def test_a_thread_a_skill_left_behind_does_not_keep_the_process(tmp_path):
    lingers = {**ECHO, "echo/skill.py": "import threading, time\ndef echo(text):\n"
               "    threading.Thread(target=time.sleep, args=(60,)).start()\n    return text\n"}  # fmt: skip
    with FakeServer(ONE_CALL) as server:
        began = time.monotonic()
        done = Project(tmp_path / "p", lingers, url=server.url)("run", "x")
    assert (done.code, done.out) == (0, "it said a\n")
    assert time.monotonic() - began < 20


# ---- at a terminal


@pytest.mark.parametrize(("typed", "written"), [(b"y\n", True), (b"\n", False), (b"\x04", False)])
def test_a_person_is_asked_and_no_is_the_default(tmp_path, typed, written):
    call = calls(("note", {"text": "a\x1b[2J\u202eb\nAllow? y"}))
    with FakeServer([call, says("done")]) as server:
        project = Project(tmp_path / "p", NOTE, url=server.url)
        shown = at_terminal(project, ["run", "x"], answer_to=b"[n] ", typed=typed)
    assert (project.folder / "workspace" / "note.txt").exists() is written
    assert "note wants to run (needs fs.write)" in shown
    assert "a\\x1b[2J\\u202eb\\nAllow? y" in shown
    assert shown.rstrip().splitlines()[-2].strip().endswith("done") or "done" in shown


def test_progress_and_live_text_are_taken_away_again(tmp_path):
    with FakeServer([*ONE_CALL[:1], says("the answer is forty two")]) as server:
        shown = at_terminal(Project(tmp_path / "p", ECHO, url=server.url), ["run", "x"])
    assert "iteration 1: " in shown
    assert shown.count("\x1b[2K") >= 1
    assert "the answer is forty two\r\n" in shown


def at_terminal(
    project: Project, arguments: list[str], answer_to: bytes = b"", typed: bytes = b""
) -> str:
    """Everything a terminal is sent while the command runs in it."""
    child, fd = pty.fork()
    if child == 0:
        os.chdir(project.folder)
        os.execve(
            sys.executable, [sys.executable, "-m", "runner", *arguments], environment(TERM="xterm")
        )
    shown, sent, until = b"", False, time.monotonic() + 30
    while time.monotonic() < until:
        if not select.select([fd], [], [], 0.5)[0]:
            continue
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
        if answer_to and not sent and answer_to in shown:
            time.sleep(0.2)  # what is typed before the question is thrown away
            os.write(fd, typed)
            sent = True
    os.waitpid(child, 0)
    os.close(fd)
    return shown.decode("utf-8", "replace")


def read_events(project: Project, name: str = "e.jsonl") -> list[dict]:
    return [json.loads(line) for line in text_of(project.folder / name).splitlines()]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def wait_for(condition, limit: float = 20) -> None:
    until = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def test_calls_that_were_denied_unasked_are_named_at_the_end_with_the_way_out(tmp_path):
    turns = [calls(("note", {"text": "a"}), ("note", {"text": "b"})), says("done")]
    with FakeServer(turns) as server:
        done = Project(tmp_path / "p", NOTE, url=server.url)("run", "x")
    assert (done.code, done.out) == (0, "done\n")
    assert done.err.splitlines()[-1] == (
        '2 call(s) were denied: note; allow with --set \'permissions."fs.write"="allow"\' or --yes'
    )

"""`runner chat` as a process: from a pipe, and in a terminal while skills are edited."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from cli_kit import ECHO, NOTE, SLOW, Project, calls, environment, says
from fake_server import FakeServer
from skill_kit import write
from terminal import Terminal

FLAKY = {
    "flaky/skill.toml": ECHO["echo/skill.toml"].replace("echo", "flaky"),
    "flaky/skill.py": "N = []\ndef flaky(text):\n    N.append(1)\n"
    "    if len(N) == 1:\n        raise ConnectionError('away')\n    return text\n",
}


@pytest.fixture(name="talk")
def _talk(tmp_path):
    """Opens a chat in a terminal with a model that answers so."""
    opened = []

    def start(*replies, skills=(ECHO, NOTE, FLAKY), arguments=(), **env):
        server = FakeServer(list(replies)).__enter__()
        project = Project(tmp_path / f"p{len(opened)}", *skills, url=server.url)
        command = [sys.executable, "-m", "runner", "chat", *arguments]
        terminal = Terminal(
            command, cwd=project.folder, env=environment(**{"TERM": "xterm", **env})
        )
        terminal.project, terminal.server = project, server
        opened.append(terminal)
        terminal.wait_for("› " if env.get("TERM") != "dumb" else "> ")
        return terminal

    yield start
    for terminal in opened:
        terminal.__exit__()
        terminal.server.__exit__()


# ---- from a pipe


def piped(tmp_path, lines, *replies, skills=(ECHO,), arguments=()):
    with FakeServer(list(replies)) as server:
        project = Project(tmp_path / "p", *skills, url=server.url)
        done = project("chat", *arguments, stdin="\n".join(lines).encode())
        return done, server.chats(), project


def test_each_line_of_a_pipe_is_a_turn_of_one_conversation(tmp_path):
    done, chats, _project = piped(tmp_path, ["one", "two\n"], says("first"), says("second"))
    assert (done.code, done.out) == (0, "first\nsecond\n")
    assert [m["content"] for m in chats[1]["messages"] if m["role"] != "system"] == [
        *("one", "first", "two")
    ]


def test_only_answers_and_what_was_asked_for_reach_stdout(tmp_path):
    reply = [calls(("echo", {"text": "a"})), says("it said a")]
    done, _chats, _project = piped(tmp_path, ["say a", "/skills"], *reply)
    assert done.out == "it said a\necho  ready  echo\n"
    assert "✓ echo" in done.err
    assert "\x1b" not in done.err


@pytest.mark.parametrize("line", ["a\0b", "a" * 1_000_001])
def test_a_line_that_is_no_text_ends_a_piped_conversation(tmp_path, line):
    done, chats, _project = piped(tmp_path, ["one", line, "two"], says("first"), says("never"))
    assert (done.code, done.out, len(chats)) == (1, "first\n", 1)
    assert "so it is no text; nothing more is read" in done.err


def test_a_line_that_ends_with_a_backslash_goes_on(tmp_path):
    _done, chats, _project = piped(tmp_path, ["one\\", "more"], says("ok"))
    assert chats[0]["messages"][-1]["content"] == "one\nmore"


def test_two_slashes_send_a_line_that_begins_with_one(tmp_path):
    _done, chats, _project = piped(tmp_path, ["//etc is what?"], says("ok"))
    assert chats[0]["messages"][-1]["content"] == "/etc is what?"


def test_a_command_that_is_not_there_names_the_nearest_and_the_conversation_goes_on(tmp_path):
    done, _chats, _project = piped(tmp_path, ["/sklils", "hello"], says("hi"))
    assert "no command /sklils; did you mean /skills?" in done.err
    assert done.out == "hi\n"


def test_the_exit_code_of_a_pipe_is_that_of_its_last_turn(tmp_path):
    failing = {"status": 400, "body": {"error": "no"}}
    assert piped(tmp_path, ["one", "two"], says("a"), failing)[0].code == 1


def test_undo_and_retry_change_what_the_model_is_sent(tmp_path):
    lines = ["one", "two", "/undo", "three", "/retry"]
    _done, chats, _project = piped(tmp_path, lines, *(says(w) for w in "abcd"))
    sent = [m["content"] for m in chats[-1]["messages"] if m["role"] == "user"]
    assert sent == ["one", "three"]


def test_status_trace_model_save_and_compact_answer(tmp_path):
    lines = ["one", "/status", "/trace", "/model", "/save out.md", "/save out.md", "/compact"]
    done, _chats, project = piped(tmp_path, lines, says("the answer"))
    assert "slots" in done.out
    assert "turn.finished" in done.out
    assert "ollama/fake-model, 8192 tokens of context" in done.out
    assert (project.folder / "out.md").read_text() == "## one\n\nthe answer\n"
    assert "out.md is there already" in done.err
    assert "nothing could be left out" in done.err


def test_another_model_goes_on_with_the_conversation(tmp_path):
    script = tmp_path / "other.json"
    script.write_text('{"replies": [{"text": "from the other"}]}')
    lines = ["one", f"/model scripted/{script}", "two", "/model scripted/nosuch.json"]
    done, _chats, _project = piped(tmp_path, lines, says("first"))
    assert done.out.startswith("first\nscripted/")
    assert done.out.splitlines()[-1] == "from the other"
    assert "nosuch.json" in done.err


def test_a_session_is_gone_on_with(tmp_path):
    _done, _chats, project = piped(tmp_path, ["one"], says("a"), arguments=("--session", "s1"))
    assert (project.folder / "state" / "sessions" / "s1.jsonl").exists()
    with FakeServer([says("b")]) as server:
        project("chat", "--session", "s1", "--set", f"model.base_url='{server.url}'", stdin=b"two")
        assert [m["content"] for m in server.chats()[0]["messages"][1:]] == ["one", "a", "two"]
    assert project("chat", "--session", "a/b").code == 2


# ---- in a terminal


def test_a_call_is_shown_with_its_state_and_time_and_the_answer_once(talk):
    chat = talk(calls(("echo", {"text": "a"})), says("it said a"))
    chat.type("say a\r")
    shown = chat.wait_for("2 iteration(s), 1 call(s)")
    assert '✓ echo 0.0 s text="a"' in shown
    assert shown.count("it said a") == 1


def test_a_retry_is_shown_while_it_happens(talk):
    chat = talk(calls(("flaky", {"text": "a"})), says("done"))
    chat.type("go\r")
    shown = chat.wait_for("2 iteration(s)")
    assert "↺ flaky attempt 2" in shown
    assert "2 attempts" in shown


def test_reasoning_is_dimmed_and_a_call_in_text_is_taken_away(talk):
    text = 'I will.\n```json\n{"tool": "echo", "params": {"text": "a"}}\n```'
    chat = talk({"thinking": "hm", "text": text}, says("done"))
    chat.type("go\r")
    chat.wait_for("2 iteration(s)")
    assert "\x1b[2mhm" in chat.raw
    assert "\x1b[J" in chat.raw


def test_a_reload_is_told_in_place_and_what_was_typed_stays(talk):
    chat = talk(says("ok"))
    code = ECHO["echo/skill.py"]
    chat.type("half a li")
    chat.wait_for("half a li")
    write(chat.project.folder / "skills", {"echo/skill.py": code + "\nX = 1\n"})
    assert "↻ echo updated\r\n› half a li" in chat.wait_for("updated\r\n› half a li")
    chat.type("ne")
    write(chat.project.folder / "skills", {"echo/skill.py": "def echo(:\n"})
    shown = chat.wait_for("› half a line")
    assert "✗ echo: skills/echo/skill.py:1: SyntaxError" in shown
    assert "keeping the last good version" in shown
    chat.type("\r")
    chat.wait_for("1 iteration(s)")
    assert chat.server.chats()[0]["messages"][-1]["content"] == "half a line"


@pytest.mark.parametrize(
    ("typed", "kept"), [("y", True), ("n", False), ("", False), ("\x04", False)]
)
def test_a_question_shows_the_arguments_and_no_is_the_default(talk, typed, kept):
    chat = talk(calls(("note", {"text": "evil\x1b[2J"})), says("done"))
    chat.type("go\r")
    shown = chat.wait_for("n = no [n]")
    assert "text = evil\\x1b[2J" in shown
    time.sleep(0.2)  # what is typed before the question is thrown away
    chat.type(typed if typed == "\x04" else f"{typed}\r")
    chat.wait_for("2 iteration(s)")
    assert (chat.project.folder / "workspace" / "note.txt").exists() == kept


def test_ctrl_c_ends_the_turn_and_the_conversation_goes_on(talk):
    chat = talk(calls(("slow", {"text": "a"})), says("still here"), skills=(SLOW,))
    chat.type("go\r")
    chat.wait_for("running 0.5 s")
    chat.type("\x03")
    assert "cancelled" in chat.wait_for("1 iteration(s), 1 call(s)")
    chat.type("again\r")
    chat.wait_for("still here")


def test_ctrl_c_twice_leaves_whatever_is_under_way(talk):
    chat = talk({"hang": True})
    chat.type("go\r")
    chat.wait_for("thinking 0.5 s")
    chat.type("\x03")
    time.sleep(0.1)  # two at the very same moment are one signal
    chat.type("\x03")
    began = time.monotonic()
    assert chat.end() == 130
    assert time.monotonic() - began < 4


@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("\x04", 0), ("/quit\r", 0)])
def test_at_the_prompt_ctrl_c_ctrl_d_and_quit_leave(talk, key, code):
    chat = talk()
    chat.type(key)
    assert chat.end() == code


def test_sigterm_leaves_in_the_middle_of_a_turn(tmp_path):
    with FakeServer([{"hang": True}]) as server:
        process = Project(tmp_path / "p", url=server.url).start("chat")
        process.stdin.write(b"go\n")
        process.stdin.flush()
        until = time.monotonic() + 20
        while not server.chats() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 130
        process.communicate()


def test_commands_and_tools_are_completed_and_the_history_is_private(talk):
    chat = talk(says("ok"))
    chat.type("/sta\t\r")
    chat.wait_for("slots")
    chat.type("use fla\t\r")
    chat.wait_for("1 iteration(s)")
    chat.wait_for_prompt()  # a key that comes before it is read by the terminal, not by the line editor
    chat.type("\x04")
    assert chat.end() == 0
    history = chat.project.folder / "state" / "chat_history"
    assert history.read_text() == "/status \nuse flaky \n"
    assert history.stat().st_mode & 0o777 == 0o600
    assert chat.server.chats()[0]["messages"][-1]["content"] == "use flaky"


def test_a_dumb_terminal_is_drawn_over_by_nothing(talk):
    chat = talk(calls(("echo", {"text": "a"})), says("it said a"), TERM="dumb")
    chat.type("say a\r")
    chat.wait_for("it said a")
    chat.wait_for("2 iteration(s)")
    assert "\x1b" not in chat.raw


def test_help_of_the_command_imports_nothing_slow():
    check = "import sys; from runner.cli import chat; print([n for n in ('rich', 'litellm', 'readline') if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", check], env=environment(), capture_output=True, check=True
    )
    assert done.stdout == b"[]\n"

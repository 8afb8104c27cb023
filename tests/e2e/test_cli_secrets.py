"""What a run writes to stderr holds no secret, whoever raises it and whoever asks for the details."""

from __future__ import annotations

from cli_kit import ECHO, Project, calls, says
from fake_server import FakeServer

SECRET = "sk-ant-api03-" + "Ab1-" * 24
ONE_CALL = [calls(("echo", {"text": "a"})), says("went on")]

CRASHES = f"""\
import atexit, threading

def fail():
    raise RuntimeError("no entry with {SECRET}")

atexit.register(fail)

def echo(text):
    thread = threading.Thread(target=fail, name="poller")
    thread.start()
    thread.join()
    return text
"""


def test_a_thread_that_a_skill_left_fails_in_one_line_without_secrets(tmp_path):
    with FakeServer(ONE_CALL) as server:
        skill = {**ECHO, "echo/skill.py": CRASHES}
        done = Project(tmp_path / "p", skill, url=server.url)("run", "go")
    assert done.out == "went on\n"
    assert "Traceback" not in done.err
    assert SECRET not in done.err
    assert "where poller" in done.err
    assert done.err.count("skill.py:4") == 2  # the thread, and the handler at exit


def test_the_traceback_of_debug_holds_no_secret(tmp_path):
    made = Project(tmp_path / "p", ECHO)
    done = made("run", "go", "--debug", "--config", f"{SECRET}.toml")
    assert done.code == 2
    assert "Traceback" in done.err
    assert SECRET not in done.err

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from starter_kit import context, module

from runner import ToolError

shell = module("shell")


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "work/src").mkdir(parents=True)
    return (tmp_path / "work").resolve()


def ended(pid: int) -> bool:
    """True when no such process runs any more, waiting at most five seconds for it to end."""
    for _ in range(100):
        shown = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(shown, capture_output=True, text=True, check=False).stdout.strip()
        if not state or state.startswith("Z"):
            return True
        threading.Event().wait(0.05)
    return False


def test_a_command_tells_exit_code_directory_and_output(workspace):
    text = shell.run_command("echo out; echo err >&2; exit 3", context(workspace))
    assert text == "[exit_code: 3, cwd: .]\nout\nerr"
    assert shell.run_command("true", context(workspace)).endswith("(no output)")
    assert "[exit_code: 127" in shell.run_command("no-such-command", context(workspace))


@pytest.mark.parametrize("end", ["", "; exit 1", "\nfalse", " && set -e && false"])
def test_a_cd_is_kept_however_the_command_ends(workspace, end):
    ctx = context(workspace)
    assert "cwd: src]" in shell.run_command(f"cd src{end}", ctx).splitlines()[0]
    assert ctx.moved_to == workspace / "src"


def test_a_command_runs_where_the_session_is(workspace):
    ctx = context(workspace, cwd=workspace / "src")
    before = Path.cwd()
    assert "cwd: src]" in shell.run_command("pwd", ctx)
    assert ctx.moved_to is None
    shell.run_command("cd ..", ctx)
    assert ctx.moved_to == workspace
    assert Path.cwd() == before


def test_a_cd_in_a_subshell_changes_nothing(workspace):
    ctx = context(workspace)
    shell.run_command("(cd src && pwd)", ctx)
    assert ctx.moved_to is None


def test_a_cd_out_of_the_workspace_is_told_and_not_kept(workspace):
    ctx = context(workspace)
    (workspace / "out").symlink_to("/")
    for command in ("cd /", "cd ..", "cd out"):
        text = shell.run_command(command, ctx)
        assert "cwd: .]" in text
        assert "not kept: it is outside the workspace" in text
        assert ctx.moved_to is None


def test_a_directory_that_is_gone_is_replaced_by_the_workspace(workspace):
    ctx = context(workspace, cwd=workspace / "gone")
    assert "gone is gone; the command ran in the workspace" in shell.run_command("pwd", ctx)
    assert ctx.moved_to == workspace


def test_a_late_command_is_killed_with_all_it_started(workspace):
    start = time.monotonic()
    with pytest.raises(ToolError, match=r"still running after 0\.5 s.*\n?begun") as caught:
        shell.run_command(
            "sh -c 'echo begun; echo $$ >pid; exec sleep 60'", context(workspace), 0.5
        )
    assert time.monotonic() - start < 5
    assert not caught.value.retryable
    assert ended(int((workspace / "pid").read_text()))


def test_a_command_that_ignores_the_polite_signal_is_killed(workspace):
    command = "trap '' TERM; echo $$ >pid; while :; do sleep 0.1; done"
    with pytest.raises(ToolError, match="killed"):
        shell.run_command(command, context(workspace), 0.3)
    assert ended(int((workspace / "pid").read_text()))


def test_the_call_ends_before_the_runners_deadline(workspace):
    ctx = context(workspace, deadline=time.monotonic() + 1.5)
    with pytest.raises(ToolError, match="still running"):
        shell.run_command("sleep 60", ctx, 600)
    assert ctx.remaining() > 0


def test_a_cancelled_command_is_killed(workspace):
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    with pytest.raises(ToolError, match="cancelled"):
        shell.run_command("sleep 60", context(workspace, is_cancelled=cancelled.is_set))


def test_a_background_process_does_not_hold_the_call(workspace):
    start = time.monotonic()
    text = shell.run_command("sleep 60 & echo $!", context(workspace))
    assert time.monotonic() - start < 5
    pid = int(text.splitlines()[1])
    os.kill(pid, 9)  # and it was still running
    start = time.monotonic()
    shell.run_command("yes & echo $! >pid", context(workspace))
    assert time.monotonic() - start < 5
    assert ended(int((workspace / "pid").read_text()))  # nobody reads it any more


def test_commands_cannot_read_input_and_see_no_secret(workspace, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "do-not-tell")
    text = shell.run_command("cat; env", context(workspace, env={"GRANTED": "yes"}))
    assert "do-not-tell" not in text
    assert "GRANTED=yes" in text
    assert "TERM=dumb" in text


def test_output_is_bounded_and_always_text(workspace):
    text = shell.run_command(
        r"printf '\377\n'; head -c 30000000 /dev/zero; echo end", context(workspace)
    )
    assert text.startswith("[exit_code: 0, cwd: .]\n\ufffd\n")
    assert text.endswith("end")
    assert "bytes left out" in text
    assert len(text) < 16_000_000

"""Run a shell command in the session's working directory."""

import os
import shutil
import tempfile
from pathlib import Path

from runner import SkillContext, ToolError

from .process import Ended, run_until

TIMEOUT_S = 120.0
MARGIN_S = 1.0  # before the runner's own deadline, so that the output so far is not lost

# The trap also runs after `exit` and after a syntax error; /dev/fd works in every shell, where
# `>&12` does not. The command is an argument, so nothing in it needs quoting.
_SCRIPT = 'trap "pwd -P 2>/dev/null >/dev/fd/{fd}" EXIT; eval "$1"'


def run_command(command: str, ctx: SkillContext, timeout: float = TIMEOUT_S) -> str:
    """Exit code and working directory on the first line, then what the command printed."""
    start, notes = _start_folder(ctx)
    allowed = min(timeout, max(0.1, ctx.remaining() - MARGIN_S))
    with tempfile.TemporaryFile() as where:
        ended = run_until(
            _shell(command, where.fileno()),
            cwd=start,
            env=_environment(ctx),
            keep=where.fileno(),
            timeout_s=allowed,
            cancelled=ctx.cancelled,
        )
        where.seek(0)
        went_to = where.read(65_536)
    if ended.killed:
        raise ToolError(_killed(ended, allowed))
    cwd = _moved(ctx, start, went_to, notes)
    head = f"[exit_code: {ended.exit_code}, cwd: {_name(ctx, cwd)}]"
    return "\n".join([head, *notes, ended.output or "(no output)"])


def _shell(command: str, fd: int) -> list[str]:
    script = _SCRIPT.format(fd=fd)
    if bash := shutil.which("bash"):
        return [bash, "--noprofile", "--norc", "-c", script, "bash", command]
    return ["/bin/sh", "-c", script, "sh", command]


def _environment(ctx: SkillContext) -> dict[str, str]:
    """What a command needs to run, and what the manifest was granted: no secrets of ours."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", str(ctx.workspace)),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "TMPDIR": tempfile.gettempdir(),
        "TERM": "dumb",
        **ctx.env,
    }


def _start_folder(ctx: SkillContext) -> tuple[Path, list[str]]:
    if ctx.cwd.is_dir():
        return ctx.cwd, []
    ctx.change_directory(ctx.workspace)
    return ctx.workspace, [f"[{_name(ctx, ctx.cwd)} is gone; the command ran in the workspace]"]


def _moved(ctx: SkillContext, start: Path, went_to: bytes, notes: list[str]) -> Path:
    """Where the next command will start; a cd out of the workspace is told and not kept."""
    lines = os.fsdecode(went_to).splitlines()
    folder = Path(lines[-1]) if lines else start.resolve()
    if folder == start.resolve():
        return start
    if not folder.is_relative_to(ctx.workspace.resolve()):
        notes.append(f"[cd {folder} not kept: it is outside the workspace]")
        return start
    ctx.change_directory(folder)
    return folder


def _name(ctx: SkillContext, folder: Path) -> str:
    return os.path.relpath(folder.resolve(), ctx.workspace.resolve())


def _killed(ended: Ended, allowed: float) -> str:
    reason = "cancelled" if ended.killed == "cancelled" else f"still running after {allowed:.3g} s"
    advice = (
        ""
        if ended.killed == "cancelled"
        else (
            " Give a longer timeout, do less at once, or start it with & and its output in a file."
        )
    )
    output = ended.output or "(none)"
    return f"command {reason}; killed with all it started.{advice} Output so far:\n{output}"

"""The command `runner`: its commands by name, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from ..errors import ConfigError, PluginError, RunnerError
from .console import Console, open_missing_streams
from .lazy import Lazy, LazyGroup
from .options import keep, shared_options

USAGE, FAILED, INTERRUPTED = 2, 1, 130
EXIT_LIMIT_S = 1.0
OUT_OF = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_HERE = __package__

SKILLS = {
    "list": Lazy(f"{_HERE}.skills", "list_", "All skills with their state and tools."),
    "show": Lazy(f"{_HERE}.skills", "show", "One skill or tool in full."),
    "check": Lazy(f"{_HERE}.skills", "check", "What is wrong or could be better, line by line."),
    "new": Lazy(f"{_HERE}.skills", "new", "Write a new skill to start from."),
    "call": Lazy(f"{_HERE}.call", "call", "Run one tool call, without a model."),
    "drill": Lazy(f"{_HERE}.drill", "drill_", "Run a tool through faults: slow, broken, lost."),
}
SESSIONS = {
    "list": Lazy(f"{_HERE}.sessions", "list_", "The sessions kept here, newest first."),
    "show": Lazy(f"{_HERE}.sessions", "show", "A session's conversation."),
    "resume": Lazy(f"{_HERE}.sessions_go_on", "resume", "Go on where a session stopped."),
    "fork": Lazy(f"{_HERE}.sessions_go_on", "fork_", "A new session from a point of an old one."),
    "rm": Lazy(f"{_HERE}.sessions", "rm", "Remove sessions."),
}
TRACE = {
    "show": Lazy(f"{_HERE}.trace", "show", "A session's events, one line each."),
    "replay": Lazy(f"{_HERE}.trace_replay", "replay_", "Run a session again and compare."),
    "html": Lazy(f"{_HERE}.trace_html", "html", "A page to look at a session."),
    "export": Lazy(f"{_HERE}.trace_export", "export", "A session as JSON, or as a test."),
}
MEMORY = {
    "list": Lazy(f"{_HERE}.memory", "list_", "Everything that is remembered."),
    "search": Lazy(f"{_HERE}.memory", "search", "What fits best to some words."),
    "edit": Lazy(f"{_HERE}.memory", "edit", "Another text for a memory."),
    "forget": Lazy(f"{_HERE}.memory", "forget", "Remove memories."),
}
CONFIG = {
    "show": Lazy(f"{_HERE}.config", "show", "Every setting with its origin."),
    "path": Lazy(f"{_HERE}.config", "path", "The config file in use."),
}
COMMANDS = {
    "init": Lazy(f"{_HERE}.init", "init", "Write a config and the starter skills."),
    "run": Lazy(f"{_HERE}.run", "run", "One turn: a goal in, its answer out."),
    "chat": Lazy(f"{_HERE}.chat", "chat", "A conversation, with skills that may be edited."),
    "skills": Lazy(__name__, "skills", "List, check, write and call skills."),
    "sessions": Lazy(__name__, "sessions", "Look at, go on with and remove sessions."),
    "trace": Lazy(__name__, "trace", "What happened in a session."),
    "view": Lazy(f"{_HERE}.view", "view", "Sessions as pages in the browser, while they run."),
    "memory": Lazy(__name__, "memory", "What is kept between sessions."),
    "parse": Lazy(f"{_HERE}.parse", "parse", "What the parser sees in a text."),
    "config": Lazy(__name__, "config", "The settings in effect."),
    "doctor": Lazy(f"{_HERE}.doctor", "doctor", "Check model, skills and surroundings."),
    "demo": Lazy(f"{_HERE}.demo", "demo", "The main job, without any model."),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process with its exit code."""
    open_missing_streams()
    _check_folder()
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = _exit_code(given)
    _leave_in_time(code)
    sys.exit(code)


def _check_folder() -> None:
    try:
        Path.cwd()
    except OSError as error:
        _say(f"the working directory is gone ({error.strerror}); cd to one that exists")
        sys.exit(USAGE)


def _leave_in_time(code: int) -> None:
    """A thread or an exit handler that a skill left behind may not keep the process."""
    import os
    import threading
    import time

    def end() -> None:
        time.sleep(EXIT_LIMIT_S)
        os._exit(code)

    threading.Thread(target=end, daemon=True).start()


def _exit_code(arguments: list[str]) -> int:
    try:
        return int(root.main(arguments, prog_name="runner", standalone_mode=False) or 0)
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - whatever it is, a user gets one line
        if "--debug" in arguments:
            import traceback

            _say(traceback.format_exc(), whole=True)
        text, code = _described(error)
        _say(text)
        return code


def _described(error: Exception) -> tuple[str, int]:
    match error:
        case click.ClickException():
            context = getattr(error, "ctx", None)
            see = f"; see: {context.command_path} --help" if context is not None else ""
            return f"{error.format_message().rstrip('.')}{see}", USAGE
        case ConfigError() | PluginError():
            return str(error), USAGE
        case RunnerError():
            return str(error), FAILED
        case OSError() if error.errno in OUT_OF:
            return f"{error.filename}: {error.strerror}" if error.filename else str(
                error.strerror
            ), FAILED
        case _:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            return f"internal error: {text}; run again with --debug", FAILED


def _say(text: str, *, whole: bool = False) -> None:
    """On stderr, without secrets: one line for each problem, or the text as a `whole`."""
    import os

    from ..redact import Redactor

    console = Console(sys.stdout, sys.stderr)
    (console.line if whole else console.error)(Redactor(os.environ).text(text))


@click.pass_context
def _keep(ctx: click.Context, /, **values: object) -> None:
    keep(ctx, values)


def _group(name: str, table: dict[str, Lazy], help_: str, *examples: str) -> LazyGroup:
    return LazyGroup(
        name=name,
        table=table,
        help=help_,
        epilog="\n".join(examples),
        callback=_keep,
        params=shared_options(),
        no_args_is_help=True,
        subcommand_metavar="COMMAND …",
    )


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"runner {version('slotrunner')}")
        ctx.exit()


skills = _group(
    "skills",
    SKILLS,
    "List, check, write and call skills.",
    "runner skills list",
    "runner skills check",
)
sessions = _group(
    "sessions", SESSIONS, "Look at, go on with and remove sessions.", "runner sessions list"
)
trace = _group("trace", TRACE, "What happened in a session.", "runner trace show SESSION")
memory = _group("memory", MEMORY, "What is kept between sessions.", "runner memory list")
config = _group("config", CONFIG, "The settings in effect.", "runner config show limits")
root = _group(
    "runner",
    COMMANDS,
    "Gives the skills in a folder to a language model as tools, and runs what it calls.",
    "runner demo                                    see it work, with no model",
    "runner init && runner skills list              start a project here",
    'runner run "Which files mention API_KEY?"      ask',
)
root.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_version,
        help="Show the version.",
    )
)

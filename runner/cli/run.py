"""`runner run`: one turn, its answer on stdout."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import click

from ..errors import ConfigError, PluginError, RunnerError, SessionError
from ..events import Event, Listener
from ..log import get_logger
from ..record.trajectory import check_id
from ..runner import Runner
from ..session import Session
from ..types import Status, TurnResult
from .approval import approver
from .common import Common
from .console import Console, stdin_text
from .denied import Denied
from .eventsfile import EventsFile
from .interrupts import Interrupts
from .logs import redact_with
from .options import command
from .progress import Live, Progress
from .text import seconds

log = get_logger()
MOST_BYTES = 1_000_000  # of a goal on stdin
_MOST_WARNINGS = 8  # failed skills named one by one
EXIT_CODES = {
    Status.COMPLETED: 0,
    Status.FAILED: 1,
    Status.MAX_ITERATIONS: 3,
    Status.LOOP_STOPPED: 4,
    Status.BUDGET_EXHAUSTED: 5,
    Status.CANCELLED: 130,
}


def turn_options(function: Callable[..., int]) -> Callable[..., int]:
    """The options of every command that runs one turn."""
    for option in reversed(_TURN_OPTIONS):
        function = option(function)
    return function


_TURN_OPTIONS = (
    click.option("--events", metavar="FILE", help="Every event as a JSON line; - is stderr."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
    click.option("--yes", is_flag=True, help="Answer every question of the policy with yes."),
    click.option("--max-iterations", type=int, metavar="N", help="Model requests at most."),
    click.option("--no-stream", is_flag=True, help="Ask for whole replies."),
)


@command(
    'runner run "Which files mention API_KEY?"',
    'runner run "And in the tests?" --session keys --json',
    "git diff | runner run - --set permissions.exec=deny",
)
@click.argument("goal")
@click.option("--session", metavar="ID", help="Go on with that session, or begin it.")
@turn_options
def run(common: Common, goal: str, session: str | None, **options: Any) -> int:
    """One turn: the model works on GOAL with the skills; the answer goes to stdout.

    GOAL "-" reads stdin, UTF-8 of at most 1 MB. Exit: 0 answered, 1 the model failed, 2 wrong usage or config,
    3 max_iterations, 4 loop_stopped, 5 budget_exhausted, 130 cancelled.
    """
    return run_goal(common, _goal(goal, common.console), _checked(session), **options)


def run_goal(
    common: Common,
    goal: str,
    name: str | None,
    *,
    events: str | None,
    as_json: bool,
    yes: bool,
    max_iterations: int | None,
    no_stream: bool,
) -> int:
    """Runs one turn as the options say, shows what came of it and gives the exit code."""
    config = common.load(limits={"max_iterations": max_iterations})
    with ExitStack() as stack:
        denied = Denied()
        listeners: list[Listener] = [denied]
        if events is not None:
            records = config.paths.state / "sessions"
            file = EventsFile(events, common.console, records=records)
            listeners.append(stack.enter_context(file))
        turn = OneTurn(
            common.console,
            stream=not no_stream,
            live=not as_json,
            listeners=listeners,
            ours=[events] if events not in (None, "-") else [],
        )
        runner = Runner(config=config, approver=approver(common.console, yes=yes))
        try:
            result = turn.run(runner, goal, session=name)
        except (ConfigError, PluginError):
            raise
        except RunnerError as error:
            if not as_json:
                raise
            common.console.error(str(error))
            result = TurnResult(session=name or "", status=Status.FAILED, answer=str(error))
    if as_json:
        common.console.json(result.to_dict())
    show(common.console, result, turn.reason, as_json=as_json)
    if said := denied.line():
        common.console.note(said)
    return EXIT_CODES[result.status]


class OneTurn:
    """One turn at the terminal: signals, progress, warnings. `reason`: why it failed, if it did."""

    def __init__(
        self,
        console: Console,
        *,
        stream: bool = True,
        live: bool = True,
        listeners: Sequence[Listener] = (),
        ours: Sequence[str] = (),
    ) -> None:
        self.reason = ""
        self._ours = frozenset(os.path.realpath(name) for name in ours)
        self._console = console
        self._stream = stream
        self._live = live and stream
        self._listeners = (self._listen, *listeners)
        self._interrupts = Interrupts()
        self._warned: set[str] = set()

    def run(self, runner: Runner, goal: str, *, session: str | None = None) -> TurnResult:
        """The turn's result, `cancelled` when a signal ended it."""
        try:
            return self._interrupts.run(self._run(runner, goal, session))
        except KeyboardInterrupt:
            text = "Cancelled before the turn began."
            return TurnResult(session=session or "", status=Status.CANCELLED, answer=text)
        finally:
            self._console.status("")

    async def _run(self, runner: Runner, goal: str, name: str | None) -> TurnResult:
        self._warned.update(runner.config.warnings)
        async with runner:
            redact_with(runner.shared.redactor.text)
            runner.shared.snapshot_skip |= self._ours  # no tool changed the files we write
            self._warn(runner)
            async with runner.session(
                name, listeners=self._listeners, stream=self._stream
            ) as session:
                self._interrupts.on_first = session.cancel
                if self._interrupts.seen:  # while the session was being opened
                    raise asyncio.CancelledError
                return await self._watched(runner, session, goal)

    async def _watched(self, runner: Runner, session: Session, goal: str) -> TurnResult:
        if not self._console.animated:
            return await session.run(goal)
        progress = Progress(self._console)
        session.listen(progress)
        if self._live and self._console.out_is_terminal and session.state is not None:
            live = Live(self._console, runner.shared.redactor, progress)
            session.listen(live.listen)
            session.state.on_text = live.text
            session.state.on_restart = live.restart
        ticking = asyncio.ensure_future(progress.tick())
        try:
            return await session.run(goal)
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking

    def _warn(self, runner: Runner) -> None:
        for text in runner.warnings:
            if text not in self._warned:
                self._console.warn(text)
        failed = [s for s in runner.shared.registry.snapshot.skills if s.state == "failed"]
        for skill in failed[:_MOST_WARNINGS]:
            self._console.warn(f"skill {skill.name!r} is left out: {skill.reason}")
        if (more := len(failed) - _MOST_WARNINGS) > 0:
            self._console.warn(f"{more} more skills are left out; see: runner skills list")

    def _listen(self, event: Event) -> None:
        log.info(event.type, turn=event.turn, iteration=event.iteration, **event.data)
        match event.type:
            case "turn.finished":
                self.reason = str(event.data.get("reason", ""))
            case "skills.changed":
                for name, reason in event.data.get("failed", {}).items():
                    self._console.warn(f"skill {name!r} was not reloaded: {reason}")
                changed = [*event.data.get("added", ()), *event.data.get("updated", ())]
                if changed and self._console.err_is_terminal:
                    self._console.note(f"skills reloaded: {', '.join(changed)}")


def show(console: Console, result: TurnResult, reason: str, *, as_json: bool) -> None:
    """The answer on stdout, how the turn ended on stderr."""
    match result.status:
        case Status.COMPLETED:
            pass
        case Status.FAILED:
            console.error((reason or result.answer).splitlines()[0])
        case Status.CANCELLED:
            console.note("cancelled; nothing more is run")
        case _:
            console.note(f"stopped: {result.status.value} after {result.iterations} iteration(s)")
    silent = result.status is Status.CANCELLED or (
        result.status is Status.FAILED and not result.tool_calls
    )
    if not as_json and not silent:
        console.answer(result.answer)
    if console.err_is_terminal and result.iterations:
        used = result.usage
        console.note(
            f"{result.iterations} iteration(s), {result.tool_calls} call(s), "
            f"{used.input_tokens} + {used.output_tokens} tokens, {seconds(result.duration)}; "
            f"go on with --session {result.session}"
        )


def _goal(goal: str, console: Console) -> str:
    if goal == "-":
        goal = stdin_text(
            MOST_BYTES, "put the text into a file of the workspace and name that in the goal"
        )
    if "\0" in goal:
        raise ConfigError("the goal holds NUL bytes, so it is no text; give it as UTF-8")
    if not goal.strip():
        raise ConfigError("the goal is empty; say what is to be done")
    if "\ufffd" in goal:
        console.warn("the goal is not all UTF-8; the model sees \ufffd for what cannot be read")
    return goal


def _checked(session: str | None) -> str | None:
    try:
        return check_id(session) if session is not None else None
    except SessionError as error:
        raise ConfigError(f"--session: {error}") from error

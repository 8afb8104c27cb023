"""`runner chat`: a conversation that goes on while skills are edited."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import click

from ..errors import ConfigError, RunnerError, SessionError
from ..opening import new_id
from ..record.trajectory import check_id
from ..runner import Runner
from ..session import Session
from ..types import Status, TurnResult
from .approval import approver
from .chat_commands import Commands, Leave
from .chat_input import EditedInput, Input, PlainInput
from .chat_screen import Screen
from .chat_signals import Signals
from .chat_view import ChatView
from .common import Common
from .logs import redact_with
from .options import command
from .run import EXIT_CODES
from .text import seconds

T = TypeVar("T")
INTERRUPTED = 130
TWICE_S = 2.0  # a second Ctrl-C within this leaves
CLOSE_S = 1.5  # what is still running then is left behind
HISTORY = "chat_history"


@command("runner chat", "runner chat --session keys", 'printf "one\\ntwo\\n" | runner chat')
@click.option("--session", metavar="ID", help="Go on with that session, or begin it.")
@click.option("--yes", is_flag=True, help="Answer every question of the policy with yes.")
@click.option("--view", is_flag=True, help="A page in the browser that follows and can steer.")
def chat(common: Common, session: str | None, yes: bool, view: bool) -> int:
    """A conversation. Skills may be edited meanwhile: the next reply uses them.

    Lines of stdin are read as they come when it is no terminal; answers go to stdout.
    /help lists the commands. Ctrl-C ends a turn, twice or at the prompt the conversation.
    """
    try:
        name = check_id(session) if session is not None else new_id()
    except SessionError as error:
        raise ConfigError(f"--session: {error}") from error
    runner = Runner(config=common.load(), approver=approver(common.console, yes=yes))
    return Chat(common, runner, name, view=view).run()


class Background:
    """An event loop in a thread of its own, so that the main thread is free for the keyboard."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="runner-chat", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts the coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def soon(self, act: Callable[[], Any]) -> None:
        """Runs a function there, soon."""
        self.loop.call_soon_threadsafe(act)

    def close(self) -> None:
        """Stops it, if it still answers."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        with suppress(RuntimeError):
            self.loop.close()


class Chat:
    """One conversation at the keyboard. The runner lives on the background loop."""

    def __init__(self, common: Common, runner: Runner, name: str, *, view: bool) -> None:
        self._common = common
        self._console = common.console
        self._runner = runner
        self._name = name
        self._wants_view = view
        self._loop = Background()
        self._fancy = (
            common.console.interactive
            and common.console.out_is_terminal
            and common.console.animated
        )
        self._screen = Screen(common.console, animated=self._fancy)
        self._last = TurnResult(session=name, status=Status.COMPLETED, answer="-")
        self._interrupted = 0.0
        self._ticking: asyncio.Task[None] | None = None
        self._session: Session

    def run(self) -> int:
        """The conversation, to its end; the exit code."""
        try:
            with Signals(self._loop.loop) as self._signals:
                self._wait(self._loop.call(self._open()))
                try:
                    return self._talk()
                finally:
                    self._close()
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            self._loop.close()

    # ---- on the background loop

    async def _open(self) -> None:
        runner = self._runner
        await runner.start()
        redact_with(runner.shared.redactor.text)
        self._view = ChatView(self._screen, self._name, runner.shared.redactor, self._kept)
        self._session = await runner.open(self._name, [self._view], stream=True)
        if self._session.state is not None:
            self._view.follow(self._session.state)
        if self._wants_view:
            await self._serve_view()
        self._greet()
        if self._fancy:
            self._ticking = asyncio.ensure_future(self._view.tick())

    async def _serve_view(self) -> None:
        from ..view import LiveView

        self._live = LiveView(self._runner)
        url = await self._live.start()
        self._console.line(f"the page: {url}")

    async def _turn(self, goal: str) -> TurnResult:
        try:
            return await self._session.run(goal)
        finally:
            if self._session.state is not None:
                self._view.follow(self._session.state)

    async def _shut(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if self._wants_view:
            await self._live.close()
        await self._session.close()
        await self._runner.close()

    # ---- on the main thread

    def _talk(self) -> int:
        source = self._source()
        self._commands = Commands(
            self._console, self._screen, self._runner, self._session, self._view,
            call=lambda work: self._wait(self._loop.call(work)), turn=self._one_turn,
        )  # fmt: skip
        try:
            while True:
                line = self._read(source)
                if line is None:
                    break
                self._act(line.strip())
        except Leave:
            pass
        finally:
            source.close()
        if self._fancy:
            self._console.note(f"go on with: runner chat --session {self._name}")
        return 0 if self._console.interactive else EXIT_CODES[self._last.status]

    def _read(self, source: Input) -> str | None:
        if isinstance(source, EditedInput):
            self._screen.typing = source.typed
        try:
            line = source.read()
        except KeyboardInterrupt:
            self._console.say("\n")
            raise
        finally:
            self._screen.typing = None
        if line is None and self._console.interactive:
            self._console.say("\n")
        return line

    def _act(self, line: str) -> None:
        if not line:
            return
        try:
            if line.startswith("/") and not line.startswith("//"):
                self._commands.run(line)
            else:
                self._one_turn(line.removeprefix("/") if line.startswith("//") else line)
        except RunnerError as error:
            self._console.error(str(error))

    def _one_turn(self, goal: str) -> None:
        ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        future = self._loop.call(self._turn(goal))
        future.add_done_callback(lambda _f: ended.put(None))
        while not future.done():
            try:
                ended.get()
            except KeyboardInterrupt:
                self._interrupt()
        self._show(future.result())

    def _interrupt(self) -> None:
        """The first ends the turn; a second one soon after ends the conversation."""
        now = time.monotonic()
        if now - self._interrupted < TWICE_S or self._signals.terminated:
            raise KeyboardInterrupt
        self._interrupted = now
        self._loop.soon(self._session.cancel)

    def _show(self, result: TurnResult) -> None:
        self._last = result
        shown = self._view.answered(result.answer)
        match result.status:
            case Status.FAILED:
                self._console.error(self._view.heard.reason or result.answer.splitlines()[0])
            case Status.CANCELLED:
                if not self._console.err_is_terminal or not result.iterations:
                    self._console.note("cancelled")
            case _ if not shown:
                self._console.answer(result.answer)
        if self._console.err_is_terminal and result.iterations:
            self._screen.line(("dim", _figures(result)))

    def _source(self) -> Input:
        if not self._fancy:
            return PlainInput(self._console)
        try:
            history = self._runner.config.paths.state / HISTORY
            return EditedInput(history, self._words, colour="NO_COLOR" not in os.environ)
        except ImportError:  # a Python without readline
            return PlainInput(self._console)

    def _kept(self, skill: str) -> bool:
        found = self._runner.shared.registry.snapshot.skill(skill)
        return found is not None and found.live

    def _words(self) -> list[str]:
        snapshot = self._runner.shared.registry.snapshot
        return [*Commands.names(), *snapshot.tools, *(s.name for s in snapshot.skills if s.live)]

    def _greet(self) -> None:
        snapshot, state = self._runner.shared.registry.snapshot, self._session.state
        for text in self._runner.warnings:
            self._console.warn(text)
        for skill in snapshot.skills:
            if skill.state == "failed":
                self._screen.text_of([("red", "✗ "), ("", f"{skill.name}: {skill.reason}")])
        if not self._console.interactive or state is None:
            return
        tools = f"{len(snapshot.tools)} tool(s) of {sum(s.live for s in snapshot.skills)} skill(s)"
        self._screen.line(("bold", self._runner.info.name), ("dim", f" · {tools} · /help"))
        if state.turns:
            said = f"session {self._name} goes on after {state.turns} turn(s)"
            goal = state.window.goal
            self._screen.line(("dim", f"{said}; the last: {goal}"))

    def _wait(self, future: Future[T]) -> T:
        """The result; Ctrl-C meanwhile gives the work up."""
        ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        future.add_done_callback(lambda _f: ended.put(None))
        try:
            ended.get()
        except KeyboardInterrupt:
            future.cancel()
            raise
        return future.result()

    def _close(self) -> None:
        future = self._loop.call(self._shut())
        with suppress(TimeoutError, KeyboardInterrupt):
            future.result(CLOSE_S)


def _figures(result: TurnResult) -> str:
    used = result.usage
    cost = f", ${result.cost:.4f}" if result.cost else ""
    how = "" if result.status is Status.COMPLETED else f"{result.status.value}: "
    return (
        f"{how}{result.iterations} iteration(s), {result.tool_calls} call(s), "
        f"{used.input_tokens} + {used.output_tokens} tokens{cost}, {seconds(result.duration)}"
    )

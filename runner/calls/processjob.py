"""A call that runs in a worker process: what was asked for, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..log import get_logger
from ..skill import Files
from ..types import JSON, NOTHING, Outcome, TimedOut, Tool
from . import confine
from .child import Child
from .worker import Job

log = get_logger()
STUCK_THREADS = 3  # after so many an "auto" skill moves to a process


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """What the call's `SkillContext` is made of, in the worker. `files` answers for the paths.

    `release` gives back what `files` locked: called when a lock comes after the call has ended.
    """

    session_id: str
    workspace: Path
    cwd: Path
    files: Files
    release: Callable[[], None] = lambda: None
    idempotency_key: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    approved: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """Calls that may share a worker: the same code under the same terms."""

    folder: str
    skill: str
    generation: int
    terms: confine.Terms | None

    @property
    def code(self) -> tuple[str, str]:
        """The skill, whatever its version."""
        return self.folder, self.skill

    def replaces(self, other: Key) -> bool:
        """Whether that is an older version of the same skill."""
        return self.code == other.code and self.generation > other.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call as it was asked for. `nonce` must come back with everything said about it."""

    nonce: str
    key: Key
    tool: Tool
    arguments: JSON
    context: ProcessContext
    timeout: float | None
    on_progress: Callable[[str], None]
    on_output: Callable[[str], None]


def isolation_of(tool: Tool, stuck: int = 0) -> Literal["thread", "process", "strict"]:
    """Where a tool's code runs; `stuck`: how many of its skill's calls never left their thread."""
    asked = tool.flags.isolation
    if asked != "auto":
        return asked
    if tool.code is None:
        return "thread"
    return "process" if tool.origin == "installed" or stuck >= STUCK_THREADS else "thread"


class ProcessJob(Job):
    """A call in a worker. Abandoning it kills the worker; `future` is done once that has ended.

    `moved_to` is where the call moved the session's working directory, if it did.
    """

    __slots__ = (
        "_told_late",
        "asking",
        "call",
        "child",
        "heard",
        "moved_to",
        "starts",
        "timer",
        "verdict",
    )

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(lambda _job: None, loop)
        self.call = call
        self.child: Child | None = None
        self._told_late = False
        self.asking = False
        self.heard = False
        self.starts = 0
        self.verdict: tuple[Outcome | None] | None = None
        self.moved_to: Path | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def over(self) -> bool:
        """True once nobody waits for the call: it ended, or it was abandoned."""
        return self.verdict is not None or self.future.done()

    def abandon(self, outcome: Outcome | None) -> None:
        """Kills the worker; then the outcome is a timeout that ended, or None for cancelled."""
        if self.verdict is not None or (self.future.done() and not self.future.cancelled()):
            return
        self.abandoned = True
        self.verdict = (TimedOut(ended=True) if isinstance(outcome, TimedOut) else outcome,)
        if self.child is None:
            self.finish(None)
        else:
            self.child.kill("the call was stopped")

    def finish(self, outcome: Outcome | None) -> None:
        """The call is over and nothing of it runs any more. What it was abandoned with counts."""
        if self.timer is not None:
            self.timer.cancel()
        if self.verdict is not None:
            outcome = self.verdict[0]
        self.abandoned = False
        if not self.future.done():
            self.future.set_result(outcome)
        elif not self._told_late:
            self._told_late = True
            self.ended_late(outcome or TimedOut(ended=True))

    def limit(self, seconds: float | None) -> None:
        """From now on the call has so long."""
        if self.timer is not None:
            self.timer.cancel()
        if seconds is not None:
            self.timer = self.loop.call_later(seconds, self.abandon, TimedOut())


def session_of(context: ProcessContext) -> JSON:
    """The part of a context that stays the same from call to call."""
    return {
        "session_id": context.session_id,
        "workspace": str(context.workspace),
        "cwd": str(context.cwd),
        "env": dict(context.env),
        "scopes": {name: list(scopes) for name, scopes in context.scopes.items()},
    }


def message_of(call: Call, *, loads: bool, session: JSON | None) -> JSON:
    """The call as it crosses to the worker.

    `loads`: the worker has not loaded its function yet. `session`: None when it knows it already.
    """
    message: JSON = {
        "id": call.nonce,
        "tool": call.tool.name,
        "entry": call.tool.entry,
        "arguments": call.arguments,
        "key": call.context.idempotency_key,
        "left": call.timeout,
    }
    if loads:
        message["schema"] = call.tool.parameters
    if session is not None:
        message["session"] = session
    return message


def note(call: Call, message: JSON) -> None:
    """Logs what a call of a worker wrote to its log."""
    level, pairs = message.get("level"), message.get("pairs")
    write = {"debug": log.debug, "info": log.info}.get(str(level), log.warning)
    safe = {str(k): str(v) for k, v in pairs.items()} if isinstance(pairs, dict) else {}
    write(
        "skill.said",
        skill=call.tool.skill,
        tool=call.tool.name,
        text=message.get("event"),
        said=safe,
    )

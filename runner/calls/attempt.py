"""One attempt: the skill's function with its context, on a thread, the skill loop or the core."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RecordError
from ..log import get_logger
from ..skill import SkillContext
from ..state import SessionState, Shared, Turn, TurnCancelled, working_folder
from ..types import JSON, Entry, Outcome, Raised, Returned, Tool
from .compact import compacted, drawn
from .files import Workspace
from .gate import Place
from .output import Printed, printing
from .processjob import ProcessContext, isolation_of
from .worker import Job, outcome_of

QUICK_SECONDS = 0.000_5  # a tool whose last call ended within this is expected to do so again
MOST_PROGRESS = 1000  # reports of one call; a loop that reports each step must not fill the record
LOAD_SECONDS = 12.0  # the loader's own limit is 10; this one only guards against its failing
log = get_logger()


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What to run, and afterwards what is left of it."""

    call_id: str
    tool: Tool
    arguments: JSON
    key: str
    limit: float | None
    approved: bool = False
    last: Place | None = None
    printed: Printed = field(default_factory=Printed)
    running: bool = False

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self.printed.text


@dataclass(frozen=True, slots=True)
class BuiltInContext:
    """What a built-in tool gets instead of a `SkillContext`: it runs on the core loop."""

    shared: Shared
    session: SessionState
    turn: Turn
    call_id: str


class _Later:
    """The function turned out to be `async def`: it belongs on the skill loop."""

    __slots__ = ("entry",)

    def __init__(self, entry: Entry) -> None:
        self.entry = entry


async def run_attempt(
    shared: Shared, session: SessionState, turn: Turn, attempt: Attempt
) -> Outcome | None:
    """The outcome, or None when it was cancelled. Never raises for anything the skill does."""
    if attempt.tool.origin == "built-in":
        return await _built_in(shared, session, turn, attempt)
    where = isolation_of(attempt.tool, shared.stuck[attempt.tool.skill])
    if where != "thread":
        return await _isolated(shared, session, turn, attempt, strict=where == "strict")
    arguments = _copied(attempt.arguments)  # retries and the record see the original
    contexts: list[SkillContext] = []

    def context(job: Job) -> SkillContext:
        made = _context(shared, session, attempt, _files(shared, session, attempt), job)
        contexts.append(made)
        return made

    def work(job: Job) -> Any:
        entry = attempt.tool.load()
        if entry.asynchronous:
            return _Later(entry)
        job.began = shared.clock()
        return compacted(_drained(_called(entry, arguments, context, job, attempt.printed)))

    outcome = await _on_a_thread(shared, session, turn, attempt, work)
    if isinstance(outcome, Returned) and isinstance(outcome.value, _Later):
        entry = outcome.value.entry

        async def later(job: Job) -> Any:
            job.began = shared.clock()
            return compacted(await _called(entry, arguments, context, job, attempt.printed))

        job = shared.skill_loop.submit(later)
        outcome = await _awaited(shared, session, turn, attempt, job)
        if job.abandoned:
            await shared.skill_loop.check()
    _merge_directory(session, attempt.call_id, contexts)
    return outcome


async def _on_a_thread(
    shared: Shared,
    session: SessionState,
    turn: Turn,
    attempt: Attempt,
    work: Callable[[Job], Any],
) -> Outcome | None:
    """Runs the work on a worker thread, and remembers whether its tool is one to wait for in place."""
    name = attempt.tool.name
    job = shared.workers.submit(work, quick=name not in shared.slow)
    if not job.future.done():
        shared.slow.add(name)  # until it shows otherwise: nobody waits in place for the next one
        outcome = await _awaited(shared, session, turn, attempt, job)
    else:
        outcome = job.future.result()  # it was waited for in place
        shared.locks.release(attempt)
    _put_back(shared, name)
    if job.began is not None and shared.clock() - job.began < QUICK_SECONDS:
        shared.slow.discard(name)
    else:
        shared.slow.add(name)
    return outcome


async def _isolated(
    shared: Shared, session: SessionState, turn: Turn, attempt: Attempt, *, strict: bool
) -> Outcome | None:
    """In a worker process, which is killed at the deadline: a call that timed out has ended."""
    tool = attempt.tool
    job = shared.processes.submit(
        tool,
        attempt.arguments,
        ProcessContext(
            session_id=session.id,
            workspace=session.workspace,
            cwd=session.cwd,
            files=_files(shared, session, attempt),
            release=lambda: shared.locks.release(attempt),
            idempotency_key=attempt.key,
            env=_granted(shared, tool.flags.permissions),
            scopes=session.policy.scopes(tool.flags.permissions),
            approved=attempt.approved,
        ),
        timeout=attempt.limit,
        strict=strict,
        on_progress=lambda text: _aside(
            session, "tool.progressed", call_id=attempt.call_id, tool=tool.name, text=text
        ),
        on_output=attempt.printed.add,
    )
    outcome = await _awaited(shared, session, turn, attempt, job)
    if job.moved_to is not None:
        session.moves[attempt.call_id] = job.moved_to
    return outcome


def _called(entry: Entry, arguments: JSON, context: Any, job: Job, printed: Printed) -> Any:
    printing.set(printed)
    extra = {entry.context_parameter: context(job)} if entry.context_parameter else {}
    return entry.function(**arguments, **extra)


def _copied(value: Any) -> Any:
    """A deep copy of a JSON value, without what `copy.deepcopy` does for other kinds."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value


def _put_back(shared: Shared, tool: str) -> None:
    """The working folder belongs to the whole process: a skill that changed it has it changed back."""
    if shared.home and working_folder() != shared.home:
        with suppress(OSError):
            os.chdir(shared.home)
        log.warning("skill.moved_the_process", tool=tool, fix="use ctx.cwd or ctx.path()")


def _drained(value: Any) -> Any:
    """A plain function may answer with a coroutine or an async generator: awaited on this thread."""
    if inspect.isasyncgen(value):
        value = drawn(value)
    if not inspect.iscoroutine(value):
        return value
    import asyncio

    return asyncio.run(value)


async def _awaited(
    shared: Shared,
    session: SessionState,
    turn: Turn,
    attempt: Attempt,
    job: Job,
) -> Outcome | None:
    turn.running[attempt.call_id] = lambda: job.abandon(None)
    if turn.cancelled:
        job.abandon(None)
    try:
        outcome = await outcome_of(job, attempt.limit, LOAD_SECONDS)
    except BaseException:
        job.abandon(None)
        raise
    finally:
        turn.running.pop(attempt.call_id, None)
        if job.abandoned:
            attempt.running = True
            _watch_late(shared, session, turn, attempt, job)
        else:
            shared.locks.release(attempt)
    return outcome


def _watch_late(
    shared: Shared, session: SessionState, turn: Turn, attempt: Attempt, job: Job
) -> None:
    """When the abandoned call ends at last, its place and locks are free and the record says so."""
    began = shared.clock()
    shared.abandoned[id(job)] = (attempt.tool.name, job)
    if not turn.cancelled:
        shared.stuck[attempt.tool.skill] += 1
    place = attempt.last

    def late(outcome: Outcome) -> None:
        shared.abandoned.pop(id(job), None)
        _put_back(shared, attempt.tool.name)
        shared.locks.release(attempt)
        if place is not None:
            place.leave()
        _aside(
            session,
            "tool.late",
            call_id=attempt.call_id,
            tool=attempt.tool.name,
            ok=not isinstance(outcome, Raised),
            duration=round(shared.clock() - began, 3),
        )

    job.when_late(late)


async def _built_in(
    shared: Shared, session: SessionState, turn: Turn, attempt: Attempt
) -> Outcome | None:
    """A built-in tool is ours: a coroutine function on the core loop, cancelled with the turn."""
    entry = attempt.tool.load()
    context = BuiltInContext(shared, session, turn, attempt.call_id)
    try:
        function = entry.function(context, **attempt.arguments)
        return Returned(await turn.wait(function, attempt.call_id))
    except TurnCancelled as cancelled:  # with an account of what came of it, or without
        return Raised(cancelled) if cancelled.args else None
    except RecordError:  # the host's trouble, not the tool's
        raise
    except Exception as error:  # noqa: BLE001 - its ToolError is a value like any skill's
        return Raised(error)


def _files(shared: Shared, session: SessionState, attempt: Attempt) -> Workspace:
    until = None if attempt.limit is None else shared.clock() + attempt.limit
    tool = attempt.tool
    return Workspace(
        session.workspace,
        locks=shared.locks,
        baselines=session.baselines,
        owner=attempt,
        protected=shared.protected,
        scopes=None if tool.origin == "object" else tool.flags.permissions,
        approved=attempt.approved,
        remaining=lambda: 60.0 if until is None else max(0.0, until - shared.clock()),
    )


def _context(
    shared: Shared, session: SessionState, attempt: Attempt, files: Workspace, job: Job
) -> SkillContext:
    said = 0

    def tell(text: str) -> None:
        if not job.abandoned:
            _aside(session, "tool.progressed", call_id=attempt.call_id, tool=name, text=text[:500])

    def progress(text: str) -> None:
        nonlocal said
        said += 1
        if said <= MOST_PROGRESS:
            try:
                job.loop.call_soon_threadsafe(tell, text)
            except RuntimeError:
                pass  # the host has ended its loop while this call goes on

    name = attempt.tool.name

    needs = attempt.tool.flags.permissions
    return SkillContext(
        session_id=session.id,
        workspace=session.workspace,
        files=files,
        idempotency_key=attempt.key,
        deadline=None if attempt.limit is None else shared.clock() + attempt.limit,
        env=_granted(shared, needs),
        log=log,
        cwd=session.cwd,
        scopes=session.policy.scopes(needs),
        is_cancelled=lambda: job.abandoned,
        on_progress=progress,
        clock=shared.clock,
    )


def _aside(session: SessionState, type_: str, **data: Any) -> None:
    """An event outside the turn's own line: a record that cannot be written ends no turn here."""
    try:
        session.emit(type_, **data)
    except RecordError as error:
        log.warning("record.failed", reason=str(error))


def _granted(shared: Shared, needs: tuple[str, ...]) -> dict[str, str]:
    names = [need.removeprefix("env:") for need in needs if need.startswith("env:")]
    return {name: shared.environ[name] for name in names if name in shared.environ}


def _merge_directory(session: SessionState, call_id: str, contexts: list[SkillContext]) -> None:
    for context in contexts:
        if context.moved_to is not None:
            session.moves[call_id] = Path(context.moved_to)

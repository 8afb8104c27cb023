"""Run a tool call in a warm worker process that is killed at the deadline, and confined if asked.

A worker belongs to one version of one skill. Whatever a call does to its process (a crash, a hang,
a forked daemon, gigabytes of memory) ends with that process and is an `Outcome` here.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import SkillError
from ..log import get_logger
from ..types import JSON, Outcome, Raised, Returned, Tool
from . import confine
from .child import Child, Order, Process, probe, start
from .crossing import WorkerDied, rebuild, too_large
from .fileport import answer
from .frames import FrameTooLarge, pack
from .processjob import Call, Key, ProcessContext, ProcessJob, message_of, note, session_of
from .worker import Workers

IDLE_SECONDS = 60.0
LOAD_SECONDS = 12.0  # beside the call's own limit: starting the process and importing the skill
CLOSE_SECONDS = 1.0
_SHOWN_CHARS = 2000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_STARTS = 3  # workers that may die before they read a call
log = get_logger()


class Processes:
    """The worker processes of a runner. Used on the core loop only.

    One warm worker per skill, version and terms; more only while calls of it overlap.
    """

    def __init__(
        self,
        *,
        memory_mb: int = 1024,
        cpu_seconds: int = 1200,
        recycle_after: int = 200,
        idle_seconds: float = IDLE_SECONDS,
        environ: Mapping[str, str],
    ) -> None:
        self._limits = confine.Limits(memory_mb=memory_mb, cpu_seconds=cpu_seconds)
        self._recycle_after = recycle_after
        self._idle_seconds = idle_seconds
        self._environ = environ
        self._threads = Workers()
        self._idle: dict[Key, list[tuple[Child, float]]] = {}  # with the time they began to wait
        self._newest: dict[
            tuple[str, str], int
        ] = {}  # the latest version of a skill that was called
        self._sweeper: asyncio.TimerHandle | None = None
        self._crashes: dict[Key, int] = {}
        self._children: set[Child] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._level: tuple[confine.Level, str] | None = None
        self._probing = threading.Lock()
        self._closing = asyncio.Event()

    def level(self) -> confine.Level:
        """What `strict` comes to on this machine, from one probe; blocking the first time."""
        return self._probed()[0]

    @property
    def count(self) -> int:
        """How many worker processes there are."""
        return len(self._children)

    def submit(
        self,
        tool: Tool,
        arguments: JSON,
        context: ProcessContext,
        *,
        timeout: float | None,
        strict: bool,
        on_progress: Callable[[str], None] = lambda _text: None,
        on_output: Callable[[str], None] = lambda _text: None,
    ) -> ProcessJob:
        """Starts the call in a worker. Whatever comes of it is the job's outcome."""
        call = Call(
            nonce=secrets.token_hex(8),
            key=self._key(tool, context, strict=strict),
            tool=tool,
            arguments=arguments,
            context=context,
            timeout=timeout,
            on_progress=on_progress,
            on_output=on_output,
        )
        job = ProcessJob(call, asyncio.get_running_loop())
        if tool.code is None or self._closing.is_set():
            why = "it is not a skill in a folder" if tool.code is None else "the runner is closed"
            job.finish(Raised(SkillError(f"tool {tool.name} cannot run in a process: {why}.")))
            return job
        self._place(job)
        return job

    async def close(self) -> None:
        """Ends all workers with everything they started; at most about a second."""
        self._closing.set()
        until = time.monotonic() + CLOSE_SECONDS
        while (waiting := self._unfinished()) and (left := until - time.monotonic()) > 0:
            for child in tuple(self._children):
                child.kill("the runner was closed")
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._threads.close()

    def _unfinished(self) -> list[asyncio.Future[Any]]:
        return [*self._starting, *(child.gone for child in self._children)]

    # ---- finding a worker

    def _key(self, tool: Tool, context: ProcessContext, *, strict: bool) -> Key:
        terms = None
        if strict:
            terms = confine.terms_of(
                tool.flags.permissions,
                tool.folder,
                str(context.workspace),
                self._environ.get("PATH", ""),
            )
        return Key(tool.folder, tool.skill, tool.generation, terms)

    def _place(self, job: ProcessJob) -> None:
        """Gives the call to a worker that waits, else to a new one."""
        self._retire(job.call.key)
        child = self._take(job.call.key)
        if child is not None:
            self._begin(job, child)
            return
        timeout = job.call.timeout
        job.limit(None if timeout is None else LOAD_SECONDS + timeout)
        self._begin_task(job.loop, self._start(job))

    def _begin_task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
        task = loop.create_task(work)
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _retire(self, key: Key) -> None:
        """Ends the workers that wait with an older version of the skill."""
        if key.generation <= self._newest.get(key.code, 0):
            return
        self._newest[key.code] = key.generation
        for other in [kept for kept in self._idle if key.replaces(kept)]:
            for child, _since in self._idle.pop(other):
                child.kill("its skill was edited")

    def _take(self, key: Key) -> Child | None:
        kept = self._idle.get(key, [])
        while kept:
            child, _since = kept.pop()
            if child.alive:
                return child
        return None

    def _keep(self, call: Call, child: Child, *, spare: bool = False) -> None:
        """Keeps a worker warm for the next call, or ends it when it has done enough."""
        if child.calls >= self._recycle_after or self._closing.is_set():
            child.kill("it has done its share")
        if call.key.generation < self._newest.get(call.key.code, 0):
            child.kill("its skill was edited")
        if not child.alive:
            return
        child.on_message = partial(_unasked, child)
        kept = self._idle.setdefault(call.key, [])
        if child.calls == self._recycle_after * 9 // 10 and not kept and not spare:
            self._begin_task(child.loop, self._spare(call))
        kept.insert(0 if spare else len(kept), (child, child.loop.time()))
        if self._sweeper is None:
            self._sweeper = child.loop.call_later(self._idle_seconds, self._sweep, child.loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the workers that waited too long, and comes back when the next one has."""
        now, soonest = loop.time(), self._idle_seconds
        for key, kept in tuple(self._idle.items()):
            for child, since in tuple(kept):
                left = since + self._idle_seconds - now
                if left > 0:
                    soonest = min(soonest, left)
                else:
                    kept.remove((child, since))
                    child.kill("it was idle")
            if not kept:
                del self._idle[key]
        self._sweeper = loop.call_later(soonest, self._sweep, loop) if self._idle else None

    async def _start(self, job: ProcessJob) -> None:
        key = job.call.key
        crashes = self._crashes.get(key, 0)
        if crashes > 1:
            await self._pause(min(_FIRST_PAUSE * 2.0 ** (crashes - 2), _LONGEST_PAUSE))
        if job.over:
            return
        try:
            child = await self._worker(job.call)
        except SkillError as error:
            job.finish(Raised(error))
            return
        if job.over or self._closing.is_set():
            self._keep(job.call, child)
            job.finish(Raised(WorkerDied("the runner was closed")))
        else:
            self._begin(job, child)

    async def _spare(self, call: Call) -> None:
        """Starts the successor of a worker that will soon have done its share."""
        try:
            self._keep(call, await self._worker(call), spare=True)
        except SkillError as error:
            log.warning("worker.not_started", skill=call.tool.skill, reason=str(error))

    async def _worker(self, call: Call) -> Child:
        child = Child(await self._threads.run(self._started, call), self._threads)
        self._children.add(child)
        child.on_gone = partial(self._gone, call.key, child)
        return child

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except TimeoutError:
            pass  # the pause is over

    def _started(self, call: Call) -> Process:
        level, why = self._probed() if call.key.terms else ("process", "")
        if call.key.terms and level == "process":
            raise SkillError(
                f"skill {call.tool.skill} asks for isolation = 'strict', which this machine does "
                f"not offer ({why}). Ask for 'process' or run it elsewhere."
            )
        if call.tool.code is None:
            raise SkillError(f"tool {call.tool.name} has no code to load.")
        return start(
            Order(
                code=call.tool.code,
                terms=call.key.terms,
                level=level,
                limits=self._limits,
                environ=self._environ,
            )
        )

    def _probed(self) -> tuple[confine.Level, str]:
        with self._probing:
            if self._level is None:
                self._level = probe()
            return self._level

    # ---- one call

    def _begin(self, job: ProcessJob, child: Child) -> None:
        call = job.call
        loads = (call.tool.name, call.tool.entry) not in child.known
        session = session_of(call.context)
        try:
            known = session == child.session
            frame = pack(message_of(call, loads=loads, session=None if known else session))
        except (FrameTooLarge, TypeError, ValueError) as error:
            self._keep(call, child)
            job.finish(Raised(ValueError(f"the arguments cannot be handed over: {error}")))
            return
        child.session = session
        child.printed = b""
        child.calls += 1
        job.child = child
        job.starts += 1
        child.on_message = partial(self._heard, job, child)
        child.on_gone = partial(self._lost, job, child)
        if not loads:
            self._began(job, child)
        child.send(frame)

    def _began(self, job: ProcessJob, child: Child) -> None:
        child.known.add((job.call.tool.name, job.call.tool.entry))
        job.began = time.monotonic()
        job.limit(job.call.timeout)

    def _heard(self, job: ProcessJob, child: Child, message: JSON) -> None:
        """One message of the worker. Anything it should not say now ends it."""
        call = job.call
        kind = message.get("kind")
        if kind == "refused" and not job.heard:
            job.verdict = (Raised(SkillError(f"skill {call.tool.skill}: {message.get('text')}.")),)
            child.kill("it cannot be confined")
            return
        if message.get("id") != call.nonce:
            child.kill("it sent an answer that belongs to no call")
            return
        job.heard = True
        match kind:
            case "began":
                self._began(job, child)
            case "progress":
                call.on_progress(str(message.get("text", "")))
            case "log":
                note(call, message)
            case "files" if not job.asking:
                self._ask(job, child, message)
            case "returned" | "raised" | "oversize":
                self._finished(job, child, message)
            case _:
                child.kill(f"it sent a message it may not send now: {str(kind)[:40]!r}")

    def _ask(self, job: ProcessJob, child: Child, message: JSON) -> None:
        """Asks the files, which may wait for a lock, on a thread; one question at a time."""
        call = job.call
        job.asking = True
        strict = call.key.terms is not None
        asked = self._threads.submit(
            lambda _job: answer(call.context.files, message, call.tool, strict=strict)
        )
        asked.future.add_done_callback(partial(_answered, job, child))

    def _finished(self, job: ProcessJob, child: Child, message: JSON) -> None:
        call = job.call
        self._crashes.pop(call.key, None)
        child.drain()
        _print(call, child)
        child.on_gone = partial(self._gone, call.key, child)
        if isinstance(moved := message.get("moved_to"), str):
            job.moved_to = Path(moved)
        if isinstance(why := message.get("recycle"), str):
            log.warning("worker.recycled", skill=call.tool.skill, tool=call.tool.name, reason=why)
            child.kill(why)
        match message["kind"]:
            case "oversize":
                child.kill("its result was too large")
                outcome: Outcome = Raised(too_large(message.get("size")))
            case "raised":
                outcome = Raised(rebuild(message.get("error")))
            case _:
                outcome = Returned(message.get("value"))
        self._keep(call, child)
        job.finish(outcome)

    def _lost(self, job: ProcessJob, child: Child) -> None:
        """The worker ended during a call; one that never read it is replaced unseen."""
        self._gone(job.call.key, child)
        job.child = None
        unread = child.unread and not job.heard and not child.reason
        if unread and not job.over and job.starts < _STARTS and not self._closing.is_set():
            self._place(job)
            return
        _print(job.call, child)
        if job.verdict is None:
            key = job.call.key
            self._crashes[key] = self._crashes.get(key, 0) + 1
        how = f"was stopped: {child.reason}" if child.reason else child.gone.result()
        job.finish(Raised(WorkerDied(f"worker {how}")))

    def _gone(self, key: Key, child: Child) -> None:
        self._children.discard(child)
        kept = self._idle.get(key)
        if kept:
            kept[:] = [one for one in kept if one[0] is not child]


def _answered(job: ProcessJob, child: Child, asked: asyncio.Future[Any]) -> None:
    """What the files said goes to the worker, or is undone when the call has ended meanwhile."""
    job.asking = False
    outcome = asked.result()
    if job.future.done() or not child.alive:
        job.call.context.release()
    elif isinstance(outcome, Returned):
        child.send(outcome.value)


def _unasked(child: Child, _message: JSON) -> None:
    log.warning("worker.stopped", reason="it sent a message nobody asked for")
    child.kill("it sent a message nobody asked for")


def _print(call: Call, child: Child) -> None:
    if child.printed:
        call.on_output(child.printed.decode("utf-8", "replace")[:_SHOWN_CHARS])
        child.printed = b""

"""Where skill code runs: daemon threads of our own and a separate loop for `async def`.

A thread that hangs is abandoned, never joined: the process can always exit. Whatever the code
raises comes back as a value.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ..log import get_logger
from ..skill import ToolError
from ..types import Outcome, Raised, Returned, TimedOut
from .compact import said

IDLE_SECONDS = 30.0  # an idle thread ends after this, so that a burst leaves no threads behind
# A quick function is waited for in place: handing a result over through the event loop costs 65 µs
# where a lock costs 22 µs. The core loop is never held longer than this. It also lets calls that
# may run together begin in the order they were asked for: with half of it, two first reads of a
# process came in the other order in one of thirty tries.
PATIENCE_SECONDS = 0.001
log = get_logger()
NO_THREAD = "there is no thread to run it on ({}); make fewer calls at once, or try again later"


class Job:
    """One attempt under way. Ends once: by itself, at its deadline, or cancelled.

    `future` gives the outcome on the core loop. `began` is when the function itself began, after
    the skill was loaded. `when_late` says what to call, on the core loop, when it ends after it was
    given up.
    """

    __slots__ = (
        "_context",
        "_guard",
        "_late",
        "_outcome",
        "_ready",
        "_waiting",
        "_work",
        "abandoned",
        "began",
        "future",
        "loop",
        "on_late",
    )  # fmt: skip

    def __init__(self, work: Callable[[Job], Any], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self.loop = loop
        self._context = contextvars.copy_context()
        self.future: asyncio.Future[Outcome | None] = loop.create_future()
        self.began: float | None = None
        self.abandoned = False
        self.on_late: Callable[[Outcome], None] | None = None
        self._late: Outcome | None = None
        self._guard = threading.Lock()
        self._ready: threading.Lock | None = None
        self._outcome: Outcome | None = None
        self._waiting = False

    def expect(self) -> None:
        """Before the work starts: somebody is going to `linger` for it."""
        self._ready = threading.Lock()
        self._ready.acquire()
        self._waiting = True

    def linger(self, seconds: float) -> None:
        """On the core loop: takes the outcome right here if it comes that soon."""
        if self._ready is not None:
            self._ready.acquire(timeout=seconds)
        with self._guard:
            self._waiting = False
            outcome = self._outcome
        if outcome is not None:
            self._settle(outcome)

    def run(self) -> None:
        """On a worker thread. The one place that catches everything a skill may raise."""
        owner = os.getpid()
        outcome: Outcome
        try:
            outcome = Returned(self._context.run(self._work, self))
        except BaseException as error:  # noqa: BLE001 - a skill's SystemExit is a value, never ours
            outcome = Raised(error, said(error))
        if os.getpid() != owner:
            os._exit(1)  # a forked copy of the host must not go on as the host
        self.deliver(outcome)

    def deliver(self, outcome: Outcome) -> None:
        """From any thread: hands the outcome to the core loop, if there still is one."""
        with self._guard:
            self._outcome = outcome
            waiting = self._waiting
        if waiting and self._ready is not None:
            self._ready.release()
            return
        try:
            self.loop.call_soon_threadsafe(self._settle, outcome)
        except RuntimeError:
            pass  # the host closed its loop while this call was still running

    def abandon(self, outcome: Outcome | None) -> None:
        """On the core loop: nobody waits any longer. `None` stands for cancelled."""
        if not self.future.done():
            self.abandoned = True
            self.future.set_result(outcome)

    def when_late(self, told: Callable[[Outcome], None]) -> None:
        """On the core loop: calls back once, also when it ended before somebody came to ask."""
        self.on_late = told
        if self._late is not None:
            told(self._late)

    def ended_late(self, outcome: Outcome) -> None:
        """On the core loop: it ended, and nobody waits for it any more."""
        if self.on_late is not None:
            self.on_late(outcome)
        else:
            self._late = outcome

    def _settle(self, outcome: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)
        else:
            self.ended_late(outcome)


class Workers:
    """Threads that run jobs. Grows when all are busy; a hung one simply stays away."""

    def __init__(self, thread: Callable[..., threading.Thread] = threading.Thread) -> None:
        self._thread = thread
        self._idle: deque[queue.SimpleQueue[Job | None]] = deque()
        self._closed = False
        self._count = 0

    def submit(self, work: Callable[[Job], Any], *, quick: bool = False) -> Job:
        """Starts the work on a thread at once; never queues behind other work.

        `quick`: it will probably end within microseconds, so its outcome is waited for here.
        """
        job = Job(work, asyncio.get_running_loop())
        if quick:
            job.expect()
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = queue.SimpleQueue()
            self._count += 1
            thread = self._thread(
                target=self._serve, args=(inbox,), name=f"runner-worker-{self._count}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the system has none left
                job.future.set_result(Raised(ToolError(NO_THREAD.format(error), retryable=True)))
                return job
        inbox.put(job)
        if quick:
            job.linger(PATIENCE_SECONDS)
        return job

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function's result, from a thread; for our own blocking work."""
        outcome = await self.submit(lambda _job: function(*arguments)).future
        if isinstance(outcome, Raised):
            raise outcome.error
        return outcome.value if isinstance(outcome, Returned) else None

    def close(self) -> None:
        """Ends the idle threads. Busy ones end when their call does."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _serve(self, inbox: queue.SimpleQueue[Job | None]) -> None:
        while True:
            try:
                job = inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    continue  # taken between the time-out and now: a job is on its way
                return
            if job is None:
                return
            job.run()
            del job
            if self._closed:
                return
            self._idle.append(inbox)


class SkillLoop:
    """One event loop for `async def` tools in a thread of its own; replaced when it stops answering."""

    def __init__(self, *, patience: float = 0.2) -> None:
        self.patience = patience
        self.replaced = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, make: Callable[[Job], Coroutine[Any, Any, Any]]) -> Job:
        """Starts the coroutine there."""
        job = Job(make, asyncio.get_running_loop())
        loop = self._loop or self._start()
        try:
            loop.call_soon_threadsafe(self._begin, loop, job, make)
        except RuntimeError:  # a skill closed it
            loop = self._start()
            loop.call_soon_threadsafe(self._begin, loop, job, make)
        return job

    async def check(self) -> None:
        """After a time-out: a loop that does not answer is blocked by a call; start a new one."""
        loop, here = self._loop, asyncio.get_running_loop()
        if loop is None:
            return
        answered: asyncio.Future[None] = here.create_future()
        with suppress(RuntimeError):  # closed by a skill: no answer either
            loop.call_soon_threadsafe(here.call_soon_threadsafe, _answer, answered)
            await asyncio.wait([answered], timeout=self.patience)
        if not answered.done() and self._loop is loop:
            self._loop = None
            self.replaced += 1
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_retire_soon, loop)

    def close(self) -> None:
        """Stops the loop, if it still answers."""
        loop, self._loop = self._loop, None
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        threading.Thread(
            target=self._serve, args=(loop,), name="runner-skill-loop", daemon=True
        ).start()
        return loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs the loop until it is closed or replaced; a skill that stops it stops nobody else."""
        asyncio.set_event_loop(loop)
        wanted = True
        while wanted:
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - a task that a skill left raised SystemExit
                log.warning("skill.task_exited", error=type(error).__name__)
            wanted = self._loop is loop and not loop.is_closed()
        try:
            if not loop.is_closed():
                _end_loop(loop)
        except Exception as error:  # noqa: BLE001 - a skill closes it at the same moment
            log.warning("skill.loop_closed", error=type(error).__name__)

    @staticmethod
    def _begin(
        loop: asyncio.AbstractEventLoop, job: Job, make: Callable[[Job], Coroutine[Any, Any, Any]]
    ) -> None:
        task = loop.create_task(_contained(job, make), context=job._context)  # noqa: SLF001 - one module

        def settled(_: object) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_stop, job, task)

        job.future.add_done_callback(settled)


def _answer(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)


def _retire_soon(loop: asyncio.AbstractEventLoop) -> None:
    loop.create_task(_retire())


async def _retire() -> None:
    """On a loop that was replaced, once it moves again: its calls end first, then it does."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)
    asyncio.get_running_loop().stop()


async def _contained(job: Job, make: Callable[[Job], Coroutine[Any, Any, Any]]) -> None:
    outcome: Outcome
    try:
        outcome = Returned(await make(job))
    except BaseException as error:  # noqa: BLE001 - as on a worker thread
        outcome = Raised(error, said(error))
    job.deliver(outcome)


def _stop(job: Job, task: asyncio.Task[None]) -> None:
    if job.abandoned:
        task.cancel()


def _end_loop(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def outcome_of(job: Job, timeout: float | None, load_timeout: float) -> Outcome | None:
    """Waits until the job ends, `timeout` seconds after its function began, or it is cancelled.

    `None` means cancelled. While the skill is being loaded, `load_timeout` counts instead.
    """
    if timeout is None or job.future.done():
        return await job.future
    loop = asyncio.get_running_loop()
    submitted = loop.time()
    timer: asyncio.TimerHandle | None = None

    def check() -> None:
        nonlocal timer
        began = job.began
        due = submitted + load_timeout + timeout if began is None else began + timeout
        left = due - time.monotonic()
        if left <= 0:
            job.abandon(TimedOut())
        else:
            timer = loop.call_later(left, check)

    timer = loop.call_later(timeout, check)
    try:
        return await job.future
    finally:
        if timer is not None:
            timer.cancel()

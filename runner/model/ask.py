"""Ask the model once, patiently: try again while its failure may pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..errors import ModelUnavailable
from ..events import Emit
from ..types import ModelReply
from .base import Model, ModelRequest
from .stream import collect

FIRST_DELAY = 0.5
MAX_DELAY = 8.0
MAX_RETRY_AFTER = 60.0


class Random(Protocol):
    """What spreads the pauses, such as `random.Random`."""

    def random(self) -> float:
        """A number from 0 up to 1."""
        ...


async def ask(
    model: Model,
    request: ModelRequest,
    *,
    next_id: Callable[[], str],
    emit: Emit,
    retries: int = 3,
    on_text: Callable[[str], None] | None = None,
    on_reasoning: Callable[[str], None] | None = None,
    on_restart: Callable[[], None] | None = None,
    deadline: float | None = None,
    rng: Random | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    silence: Silence | None = None,
) -> ModelReply:
    """The reply, after at most `retries` further attempts and never past `deadline`.

    Only `ModelUnavailable` is tried again. Raises `ModelError`. `on_restart` is called when an
    attempt that had already shown something broke: what it showed is void, and the next one
    starts from the beginning. `silence`: whoever asks again and again keeps one.
    """
    attempt = 0
    heard = silence or Silence()
    while True:
        shown = _Shown(on_text, on_reasoning)
        try:
            return await _attempt(model, request, shown, next_id, heard)
        except ModelUnavailable as error:
            delay = _delay(error, attempt, rng)
            late = deadline is not None and clock() + delay >= deadline
            if attempt >= retries or late or delay > MAX_RETRY_AFTER:
                raise
            emit("model.retried", reason=str(error), delay=round(delay, 3))
        finally:
            if silence is None:
                heard.close()
        if shown.any and on_restart:
            on_restart()
        attempt += 1
        await sleep(delay)


async def _attempt(
    model: Model,
    request: ModelRequest,
    shown: _Shown,
    next_id: Callable[[], str],
    silence: Silence,
) -> ModelReply:
    task = silence.begin(request.timeout)
    before = task.cancelling()
    try:
        return await collect(
            model.complete(request),
            next_id=next_id,
            on_text=shown.text,
            on_reasoning=shown.reasoning,
            on_chunk=silence.heard,
            model=model.name,
        )
    except asyncio.CancelledError as error:
        if not silence.fired or task.cancelling() > before + 1:  # somebody else cancels as well
            raise
        raise ModelUnavailable(f"{model.name} sent nothing for {request.timeout:g} s") from error
    finally:
        if silence.fired:
            task.uncancel()
        silence.end()


class Silence:
    """Cancels a task when nothing was heard for so long.

    One timer, however many chunks and requests come: it is left to run, and looks when it fires.
    """

    def __init__(self) -> None:
        self.fired = False
        self._seconds = self._last = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, seconds: float) -> asyncio.Task[Any]:
        """From now on the running task, which is returned, is watched."""
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - there is always one where one can await
        loop = asyncio.get_running_loop()
        self.fired, self._seconds, self._last = False, seconds, time.monotonic()
        if loop is not self._loop:
            self._loop, self._timer = loop, None  # the other loop has ended
        if self._timer is None or self._timer.when() > self._last + seconds:
            self._set(loop, seconds)
        return task

    def heard(self) -> None:
        """Something came."""
        self._last = time.monotonic()

    def end(self) -> None:
        """The task is not watched any more."""
        self._task = None

    def close(self) -> None:
        """Ends the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.close()
        self._timer = loop.call_later(seconds, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None:
            return
        left = self._last + self._seconds - time.monotonic()
        if left > 0:
            self._set(loop, left)
        else:
            self.fired = True
            self._task.cancel()


def _delay(error: ModelUnavailable, attempt: int, rng: Random | None) -> float:
    """Half a second, doubling to eight, shortened by up to half so that clients do not march in step."""
    if error.retry_after is not None:
        return error.retry_after
    longest = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(attempt, 10))
    if rng is None:
        import random  # only a failing request needs it

        rng = random.Random()  # noqa: S311  spreads retries, guards nothing
    return longest * (0.5 + rng.random() / 2)


class _Shown:
    """Passes pieces on and remembers whether there were any."""

    def __init__(
        self,
        on_text: Callable[[str], None] | None,
        on_reasoning: Callable[[str], None] | None,
    ) -> None:
        self.any = False
        self._on_text = on_text
        self._on_reasoning = on_reasoning

    def text(self, text: str) -> None:
        self.any = True
        if self._on_text:
            self._on_text(text)

    def reasoning(self, text: str) -> None:
        self.any = True
        if self._on_reasoning:
            self._on_reasoning(text)

"""So many calls of one tool at a time; the rest wait their turn, for so long and no longer."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable


class Place:
    """One place behind a gate. It stays taken until `leave`, whatever becomes of who waited for it."""

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back = [give_back]

    def leave(self) -> None:
        """Gives the place back; a second time does nothing. May be called from any thread."""
        with contextlib.suppress(IndexError):  # popping is atomic: one of two threads gets it
            self._give_back.pop()()


class Gate:
    """At most `limit` places are taken, first come first served. Belongs to one event loop.

    A call that was abandoned still has its place: leaving is what ends it, not giving up on it.
    """

    def __init__(self, limit: int) -> None:
        self.limit = max(1, limit)
        self.used = 0
        self._queue: deque[asyncio.Future[Place | None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return sum(not waiter.done() for waiter in self._queue)

    def try_enter(self) -> Place | None:
        """A place when one is free and nobody was there before."""
        self._loop = asyncio.get_running_loop()
        if self.used >= self.limit or self.waiting:
            return None
        return self._taken()

    async def enter(self, wait_seconds: float) -> Place | None:
        """A place, or None when none came free in time."""
        place = self.try_enter()
        if place is not None:
            return place
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Place | None] = loop.create_future()
        self._queue.append(waiter)
        timer = loop.call_later(wait_seconds, _give_up, waiter)
        place = None
        try:
            place = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and (came := waiter.result()) is not None:
                came.leave()  # the place came with the cancel: the next one gets it
            raise
        finally:
            timer.cancel()
            if place is None and waiter in self._queue:
                self._queue.remove(waiter)
        return place

    def _taken(self) -> Place:
        self.used += 1
        return Place(self._give_back)

    def _give_back(self) -> None:
        loop = self._loop
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if loop is None or here is loop or loop.is_closed():
            self._free()
        else:
            loop.call_soon_threadsafe(self._free)

    def _free(self) -> None:
        self.used -= 1
        while self._queue and self.used < self.limit:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(self._taken())


def _give_up(waiter: asyncio.Future[Place | None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

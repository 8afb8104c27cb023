"""Who may run a turn, and who may ask the model: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Slots:
    """The right to run a turn. At most `limit` at once; the rest queue in order."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """Turns that queue."""
        return len(self._queue)

    @asynccontextmanager
    async def slot(self, on_wait: Callable[[int], None] | None = None) -> AsyncIterator[None]:
        """Holds a slot. `on_wait` hears the place in the queue, when there is one."""
        await self.enter(on_wait)
        try:
            yield
        finally:
            self.leave()

    def try_enter(self) -> bool:
        """Takes a slot when one is free and nobody was there before."""
        if self.used >= self.limit or self._queue:
            return False
        self.used += 1
        return True

    async def enter(self, on_wait: Callable[[int], None] | None = None) -> None:
        """Waits for a slot. `leave` gives it back."""
        if self.try_enter():
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            if on_wait is not None:
                on_wait(len(self._queue))
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                self.leave()  # the slot was handed over at the same moment
            elif place in self._queue:  # else `leave` has passed it over already
                self._queue.remove(place)
            raise

    def leave(self) -> None:
        """Gives the slot to whoever waits longest."""
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)  # handed over: `used` stays
                return
        self.used -= 1


class ModelGate(Slots):
    """The right to send the model a request. Held for one request only, never during a tool call."""

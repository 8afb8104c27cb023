"""Hands events to plugins: in order, one at a time, and never delaying a turn."""

from __future__ import annotations

import asyncio

from .events import Event
from .log import get_logger
from .plugins import Plugins

MOST_WAITING = (
    10_000  # events a slow observer may lag behind; older ones are then left out, and said so
)
DRAIN_SECONDS = 2.0
log = get_logger()


class EventPump:
    """One queue and one task per runner. Observers see each event, or hear how many were left out."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._queue: asyncio.Queue[Event] = asyncio.Queue(MOST_WAITING)
        self._task: asyncio.Task[None] | None = None
        self._left_out = 0

    def put(self, event: Event) -> None:
        """A listener: costs a few microseconds, whatever the observers do."""
        if not self._plugins.has("event_emitted"):
            return
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve())
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._left_out += 1

    async def drain(self) -> None:
        """Gives the observers so long to catch up."""
        if self._task is not None:
            try:
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._queue.join()
            except TimeoutError:
                log.warning("events.behind", waiting=self._queue.qsize())

    async def close(self) -> None:
        """Drains and ends the task."""
        await self.drain()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _serve(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._plugins.notify("event_emitted", event=event)
            finally:
                self._queue.task_done()
            if self._left_out:
                log.warning("events.left_out", count=self._left_out)
                self._left_out = 0

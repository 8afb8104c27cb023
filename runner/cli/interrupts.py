"""Ctrl-C and SIGTERM: the first ends the turn in order, the second the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

EXIT_INTERRUPTED = 130
LIMIT_S = 1.8  # from the first signal to the end of the process, whatever the turn is doing
T = TypeVar("T")


class Interrupts:
    """Runs one coroutine; `on_first` may be set to what the first signal does.

    Until then the first signal cancels the coroutine itself. `seen` says whether there was one.
    """

    def __init__(self) -> None:
        self.seen = False
        self.on_first: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. Raises `KeyboardInterrupt` when a signal ended it."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._received) for number in signals]
        try:
            return asyncio.run(self._main(main))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)

    async def _main(self, main: Coroutine[Any, Any, T]) -> T:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if self.seen:
            main.close()
            raise asyncio.CancelledError
        return await main

    def _received(self, _number: int, _frame: FrameType | None) -> None:
        if self.seen:
            os._exit(EXIT_INTERRUPTED)
        self.seen = True
        watch = threading.Timer(LIMIT_S, os._exit, (EXIT_INTERRUPTED,))
        watch.daemon = True
        watch.start()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._first)

    def _first(self) -> None:
        if self.on_first is not None:
            self.on_first()
        elif self._task is not None:
            self._task.cancel()

"""Ctrl-C and SIGTERM as `KeyboardInterrupt`, also while the main thread waits for a key."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Self

_AGAIN_S = 0.1


class Signals:
    """Use as a context manager in the main thread. `terminated`: it was SIGTERM that came.

    A signal that comes just before readline begins to wait is seen only at the next key. The loop
    hears of every signal at once; one that nobody took up is sent again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.terminated = False
        self._loop = loop
        self._came = self._taken = 0
        self._main = threading.get_ident()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._received)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._loop.call_soon_threadsafe(self._loop.add_reader, self._read, self._heard)
        return self

    def __exit__(self, *_error: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self._taken += 1
        self.terminated = self.terminated or number == signal.SIGTERM
        raise KeyboardInterrupt

    def _heard(self) -> None:
        with suppress(OSError):
            for number in os.read(self._read, 64):
                if number in self._before:
                    self._came += 1
                    self._loop.call_later(_AGAIN_S, self._check, number)

    def _check(self, number: int) -> None:
        if self._taken < self._came:
            self._came = self._taken  # what is sent now is heard again
            signal.pthread_kill(self._main, number)

"""One writer at a time per file, across all sessions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable


class PathLocks:
    """Who may write which file. A path has at most one owner, until that owner's call ends.

    Used from worker threads. On an event loop it never waits: the owner may need that same loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._owners: dict[str, object] = {}

    def take(self, path: str, owner: object, wait_seconds: float) -> bool:
        """True once the path is the owner's; False when it was not free in time."""
        until = self._clock() + (0.0 if _on_event_loop() else wait_seconds)
        with self._changed:
            while self._owners.setdefault(path, owner) is not owner:
                left = until - self._clock()
                if left <= 0:
                    return False
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            return True

    def release(self, owner: object) -> None:
        """Gives back every path of this owner; harmless when there is none."""
        if not self._owners:
            return
        with self._changed:
            self._owners = {path: one for path, one in self._owners.items() if one is not owner}
            self._changed.notify_all()

    def held(self, path: str) -> bool:
        """Has the path an owner now?"""
        with self._changed:
            return path in self._owners


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

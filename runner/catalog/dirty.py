"""Which skill folders may have changed, and when each may be looked at."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping

from . import source

CAP = 1.0  # seconds: the longest a folder that does not come to rest is waited for
STABLE = 0.015  # seconds between two looks that must be the same
# Only inotify says when a file is closed; elsewhere a written file would be waited for in vain.
_CLOSES = os.name == "posix" and os.uname().sysname == "Linux"


class Unrest:
    """A folder that may have changed: since when, and which of its files are being written."""

    def __init__(self, now: float, *, missed: bool = False) -> None:
        self.first = self.last = now
        self.missed = missed
        self.open: set[str] = set()

    def touch(self, now: float, what: str) -> None:
        """One more event; `what` is `open:PATH`, `closed:PATH` or nothing."""
        self.last = now
        self.missed = False
        kind, _, path = what.partition(":")
        if kind == "open":
            self.open.add(path)
        elif kind == "closed":
            self.open.discard(path)

    def ripe_at(self, debounce: float) -> float:
        """When it may be looked at. A file still open for writing is waited for, up to the cap."""
        rest = CAP if self.open and _CLOSES else debounce
        return min(self.last + rest, self.first + CAP)


class DirtyFolders:
    """The dirty folders of a watcher; `lock` guards them and is notified of each."""

    def __init__(self, lock: threading.Condition, debounce: float) -> None:
        self._lock = lock
        self._debounce = debounce
        self._unrest: dict[str, Unrest] = {}

    def mark(self, folder: str, what: str) -> None:
        """An event said that the folder may have changed."""
        now = time.monotonic()
        with self._lock:
            self._unrest.setdefault(folder, Unrest(now)).touch(now, what)
            self._lock.notify()

    def found(self, folders: Iterable[str], *, missed: bool) -> None:
        """A scan saw that they changed; `missed`: an event should have said so."""
        now = time.monotonic()
        with self._lock:
            for folder in folders:
                self._unrest.setdefault(folder, Unrest(now, missed=missed))

    @property
    def any(self) -> bool:
        """Is there a dirty folder?"""
        return bool(self._unrest)

    def next_at(self) -> float:
        """When the first of them may be looked at; infinite when all is quiet. Call with the lock."""
        return min((u.ripe_at(self._debounce) for u in self._unrest.values()), default=float("inf"))

    def take(self, *, all_of_them: bool) -> dict[str, Unrest]:
        """Those at rest, or all as they are; the others stay dirty."""
        now = time.monotonic()
        with self._lock:
            ripe = [
                f
                for f, u in self._unrest.items()
                if all_of_them or u.ripe_at(self._debounce) <= now
            ]
            waiting = {folder: self._unrest.pop(folder) for folder in ripe}
        for folder in () if all_of_them else restless(waiting):
            unrest = waiting.pop(folder)
            unrest.last = time.monotonic()
            with self._lock:
                self._unrest.setdefault(folder, unrest)
        return waiting


def restless(waiting: Mapping[str, Unrest]) -> list[str]:
    """Those two looks do not see the same; past the cap a folder is taken as it is."""
    now = time.monotonic()
    young = [folder for folder, unrest in waiting.items() if now < unrest.first + CAP]
    before = {folder: source.look(folder).stats for folder in young}
    if young:
        time.sleep(STABLE)
    return [folder for folder in young if source.look(folder).stats != before[folder]]

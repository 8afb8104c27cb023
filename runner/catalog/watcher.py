"""Watch the skills and reload what changed, on a thread of its own."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from ..log import get_logger
from . import filesystems, source
from .listening import MAX_LINKS, Listener, Place
from .registry import Registry
from .skill import Change

Backend = Literal["auto", "native", "poll", "off"]
CAP = 1.0  # seconds: the longest a folder that does not come to rest is waited for
STABLE = 0.015  # seconds between two looks that must be the same
RECONCILE = 5.0
POLL = 0.5
SHARE = 20  # a scan may take this part of the time
MISSES = 2  # changes found by a scan alone after which events are given up
_EXHAUSTED = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
log = get_logger()


class Watcher:
    """Keeps a registry in step with its roots. Events only say where to look; content decides.

    `backend` is what is in use; `notice` says why it is not what was asked for.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        backend: Backend = "auto",
        debounce: float = 0.06,
        reconcile_seconds: float = RECONCILE,
        on_change: Callable[[Change], None] | None = None,
    ) -> None:
        self.backend: str = backend
        self.notice = ""
        self._asked = backend
        self._registry = registry
        self._debounce = debounce
        self._reconcile = reconcile_seconds
        self._listener: Listener | None = None
        self._wake = threading.Condition()
        self._dirty: dict[str, _Dirty] = {}
        self._roots_moved = False
        self._settling: list[threading.Event] = []
        self._stopping = False
        self._misses = 0
        self._thread: threading.Thread | None = None
        if on_change is not None:
            registry.subscribe(on_change)

    def start(self) -> None:
        """Begins to watch; returns once events are delivered."""
        if self._asked == "off" or self._thread is not None:
            return
        self._choose()
        self._thread = threading.Thread(target=self._run, name="skill watcher", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Ends the watch; changes not yet seen are left for the next start."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._listener is not None:
            self._listener.stop()
            self._listener = None

    def settle(self, timeout: float = 5.0) -> bool:
        """Waits until everything on disk by now is in the registry; False when time runs out."""
        done = threading.Event()
        with self._wake:
            if self._thread is None or self._stopping:
                return False
            self._settling.append(done)
            self._wake.notify()
        return done.wait(timeout)

    def _choose(self) -> None:
        reason = "" if self._asked == "native" else self._unfit()
        if self._asked != "poll" and not reason:
            try:
                self._listener = Listener(self._mark)
                self._listener.follow(self._places())
                self._listener.start()
            except OSError as error:
                reason = f"the system gives no watch: {error.strerror}"
        if reason:
            self._poll_instead(reason)
        else:
            self.backend = "native" if self._listener else "poll"

    def _unfit(self) -> str:
        for root in self._registry.roots:
            if kind := filesystems.silent_mount(root):
                return f"{root} is on {kind}, which delivers no events"
        return filesystems.too_many(len(self._registry.snapshot.skills) * 2)

    def _tell(self, notice: str) -> None:
        self.notice = notice
        log.warning("watch.degraded", reason=notice)

    def _mark(self, folder: str, what: str) -> None:
        """Called by the listener's threads for every event."""
        now = time.monotonic()
        with self._wake:
            if folder:
                self._dirty.setdefault(folder, _Dirty(now)).touch(now, what)
            else:
                self._roots_moved = True
            self._wake.notify()

    def _run(self) -> None:
        due = time.monotonic()  # at once: something may have changed since the registry's scan
        while True:
            with self._wake:
                while not self._awake() and (patience := self._patience(due)) > 0:
                    self._wake.wait(patience)
                if self._stopping:
                    return
                settling, self._settling = self._settling, []
                moved, self._roots_moved = self._roots_moved, False
            try:
                if settling or moved or time.monotonic() >= due:
                    self._follow()  # first: what is written from here on is an event
                    due = time.monotonic() + self._interval(self._scan())
                self._reload(all_of_it=bool(settling))
            except Exception as error:  # noqa: BLE001  # a subscriber's fault must not end the watch
                log.warning("watch.failed", error=repr(error))
            for done in settling:
                done.set()

    def _awake(self) -> bool:
        return self._stopping or self._roots_moved or bool(self._settling) or bool(self._ripe())

    def _patience(self, due: float) -> float:
        """Seconds until something is to be done, events aside."""
        times = [due, *(dirty.ripe_at(self._debounce) for dirty in self._dirty.values())]
        return min(times) - time.monotonic()

    def _interval(self, took: float) -> float:
        least = self._reconcile if self._listener else min(POLL, self._reconcile)
        return max(least, took * SHARE)

    def _ripe(self) -> list[str]:
        now = time.monotonic()
        return [f for f, dirty in self._dirty.items() if dirty.ripe_at(self._debounce) <= now]

    def _scan(self) -> float:
        """Marks what events did not; the seconds it took."""
        began = time.monotonic()
        found = self._registry.dirty()
        now = time.monotonic()
        with self._wake:
            for folder in found:
                self._dirty.setdefault(str(folder), _Dirty(now, by_scan=True))
        if self._registry.unexamined:
            self._registry.refresh(())
        return now - began

    def _reload(self, *, all_of_it: bool) -> None:
        """Reloads the folders at rest; the others stay dirty."""
        with self._wake:
            ripe = list(self._dirty) if all_of_it else self._ripe()
            waiting = {folder: self._dirty.pop(folder) for folder in ripe}
        restless = [] if all_of_it else _restless(waiting)
        with self._wake:
            for folder in restless:
                self._dirty.setdefault(folder, waiting[folder]).last = time.monotonic()
        steady = [Path(folder) for folder in waiting if folder not in restless]
        if steady:
            change = self._registry.refresh(steady)
            missed = change is not None and all(dirty.by_scan for dirty in waiting.values())
            self._count_miss(missed=missed and not all_of_it)
        if waiting:
            self._follow()

    def _follow(self) -> None:
        if self._listener is None:
            return
        try:
            self._listener.follow(self._places())
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._poll_instead(f"the system gives no more watches: {error.strerror}")
            else:
                log.debug("watch.vanished", error=str(error))  # the next round sees to it

    def _count_miss(self, *, missed: bool) -> None:
        """Events that leave out changes are worse than none: polling takes over."""
        if self._listener is None or not missed:
            return
        self._misses += 1
        if self._misses >= MISSES and self._asked == "auto":
            self._poll_instead(f"{filesystems.events_here()} missed changes")

    def _poll_instead(self, reason: str) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        self.backend = "poll"
        self._tell(f"skills are polled every {self._interval(0):g} s: {reason}")

    def _places(self) -> list[Place]:
        """What to watch: roots, their parents for a root made again, and linked skill folders."""
        places: dict[str, Place] = {}
        parents: dict[str, set[str]] = {}
        for root in self._registry.roots:
            shown = Path(os.path.abspath(root))  # noqa: PTH100  # a link is kept: it names the root
            parent = os.path.realpath(shown.parent)
            parents.setdefault(parent, set()).add(f"{parent}/{shown.name}")
            real = os.path.realpath(shown)
            places.setdefault(real, Place(real, str(shown)))
        for real, folder in list(self._registry.linked().items())[:MAX_LINKS]:
            places.setdefault(real, Place(real, folder, single=True))
        return [*places.values(), *(Place(p, roots=frozenset(r)) for p, r in parents.items())]


class _Dirty:
    """A folder that may have changed: since when, and which of its files are being written."""

    def __init__(self, now: float, *, by_scan: bool = False) -> None:
        self.first = self.last = now
        self.by_scan = by_scan
        self.open: set[str] = set()

    def touch(self, now: float, what: str) -> None:
        """One more event; `what` is `open:PATH`, `closed:PATH` or nothing."""
        self.last = now
        self.by_scan = False
        kind, _, path = what.partition(":")
        if kind == "open":
            self.open.add(path)
        elif kind == "closed":
            self.open.discard(path)

    def ripe_at(self, debounce: float) -> float:
        """When it may be looked at. A file still open for writing is waited for, up to the cap."""
        rest = CAP if self.open and _CLOSES else debounce
        return min(self.last + rest, self.first + CAP)


_CLOSES = (
    os.name == "posix" and os.uname().sysname == "Linux"
)  # only inotify says when a file is closed


def _restless(waiting: Mapping[str, _Dirty]) -> list[str]:
    """Those two looks do not see the same; past the cap a folder is taken as it is."""
    now = time.monotonic()
    young = [folder for folder, dirty in waiting.items() if now < dirty.first + CAP]
    before = {folder: source.look(folder).stats for folder in young}
    if young:
        time.sleep(STABLE)
    return [folder for folder in young if source.look(folder).stats != before[folder]]

"""Watch the skills and reload what changed, on a thread of its own."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ..log import get_logger
from . import filesystems
from .dirty import DirtyFolders
from .listening import MAX_LINKS, Listener, Place
from .registry import Registry
from .skill import Change

Backend = Literal["auto", "native", "poll", "off"]
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
        self._reconcile = reconcile_seconds
        self._listener: Listener | None = None
        self._wake = threading.Condition()
        self._dirty = DirtyFolders(self._wake, debounce)
        self._roots_moved = False
        self._settling: list[threading.Event] = []
        self._stopping = False
        self._misses = 0
        self._thread: threading.Thread | None = None
        self._reloading = False
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

    @property
    def busy(self) -> bool:
        """Has something been saved that is not in the registry yet? Cheap: asked in each iteration."""
        return self._dirty.any or self._reloading

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
        reason = "" if self._asked == "native" else _unfit(self._registry)
        if self._asked != "poll" and not reason:
            try:
                self._listener = Listener(self._mark)
                self._listener.follow(_places(self._registry))
                self._listener.start()
            except OSError as error:
                reason = f"the system gives no watch: {error.strerror}"
        if reason:
            self._poll_instead(reason)
        else:
            self.backend = "native" if self._listener else "poll"

    def _tell(self, notice: str) -> None:
        self.notice = notice
        log.warning("watch.degraded", reason=notice)

    def _mark(self, folder: str, what: str) -> None:
        """Called by the listener's threads for every event; no folder: a root itself has moved."""
        if folder:
            self._dirty.mark(folder, what)
            return
        with self._wake:
            self._roots_moved = True
            self._wake.notify()

    def _run(self) -> None:
        due = began = (
            time.monotonic()
        )  # at once: something may have changed since the registry's scan
        while self._wait(due):
            with self._wake:
                settling, self._settling = self._settling, []
                moved, self._roots_moved = self._roots_moved, False
            try:
                if settling or moved or time.monotonic() >= due:
                    self._follow()  # first: what is written from here on is an event
                    missed = not (settling or moved or due == began)
                    due = time.monotonic() + self._interval(self._scan(missed=missed))
                self._reload(all_of_it=bool(settling))
            except Exception as error:  # noqa: BLE001  # a subscriber's fault must not end the watch
                log.warning("watch.failed", error=repr(error))
            for done in settling:
                done.set()

    def _wait(self, due: float) -> bool:
        """Returns when something is to be done; False: the watch ends."""
        with self._wake:
            while not (self._stopping or self._roots_moved or self._settling):
                patience = min(due, self._dirty.next_at()) - time.monotonic()
                if patience <= 0:
                    break
                self._wake.wait(patience)
            return not self._stopping

    def _interval(self, took: float) -> float:
        least = self._reconcile if self._listener else min(POLL, self._reconcile)
        return max(least, took * SHARE)

    def _scan(self, *, missed: bool) -> float:
        """Marks what events did not; the seconds it took."""
        began = time.monotonic()
        self._dirty.found(map(str, self._registry.dirty()), missed=missed)
        took = time.monotonic() - began
        if self._registry.unexamined:
            self._registry.refresh(())
        return took

    def _reload(self, *, all_of_it: bool) -> None:
        """Reloads the folders at rest; the others stay dirty."""
        self._reloading = True
        try:
            self._reload_at_rest(all_of_it=all_of_it)
        finally:
            self._reloading = False

    def _reload_at_rest(self, *, all_of_it: bool) -> None:
        waiting = self._dirty.take(all_of_them=all_of_it)
        if not waiting:
            return
        change = self._registry.refresh([Path(folder) for folder in waiting])
        if change is not None and all(unrest.missed for unrest in waiting.values()):
            self._count_miss()
        self._follow()

    def _follow(self) -> None:
        if self._listener is None:
            return
        try:
            for place in self._listener.follow(_places(self._registry)):
                if not place.roots:  # it may have changed before it was watched
                    self._mark(place.shown if place.single else "", "")
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._poll_instead(f"the system gives no more watches: {error.strerror}")
            else:
                log.debug("watch.vanished", error=str(error))  # the next round sees to it

    def _count_miss(self) -> None:
        """Events that leave out changes are worse than none: polling takes over."""
        self._misses += 1
        if self._listener is not None and self._misses >= MISSES and self._asked == "auto":
            self._poll_instead(f"{filesystems.events_here()} missed changes")

    def _poll_instead(self, reason: str) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        self.backend = "poll"
        self._tell(f"skills are polled every {self._interval(0):g} s: {reason}")


def _unfit(registry: Registry) -> str:
    """Why events cannot be relied on here; empty when they can."""
    for root in registry.roots:
        if kind := filesystems.silent_mount(root):
            return f"{root} is on {kind}, which delivers no events"
    return filesystems.too_many(len(registry.snapshot.skills) * 2)


def _places(registry: Registry) -> list[Place]:
    """What to watch: roots, their parents for a root made again, and linked skill folders."""
    places: dict[str, Place] = {}
    parents: dict[str, set[str]] = {}
    for root in registry.roots:
        shown = Path(os.path.abspath(root))  # noqa: PTH100  # a link is kept: it names the root
        parent = os.path.realpath(shown.parent)
        parents.setdefault(parent, set()).add(f"{parent}/{shown.name}")
        real = os.path.realpath(shown)
        places.setdefault(real, Place(real, str(shown)))
    for real, folder in list(registry.linked().items())[:MAX_LINKS]:
        places.setdefault(real, Place(real, folder, single=True))
    return [*places.values(), *(Place(p, roots=frozenset(r)) for p, r in parents.items())]

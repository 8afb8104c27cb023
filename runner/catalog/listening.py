"""Turn file events into the names of skill folders that may have changed. Events carry no more."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import source

Mark = Callable[
    [str, str], None
]  # (skill folder, or "" for a root itself; what was done to a file)
MAX_LINKS = 50  # each linked folder takes a thread of its own; the rest are found by the scan


@dataclass(frozen=True, slots=True)
class Place:
    """A real folder to watch and what its events are about.

    `shown` is the root or the linked skill it stands for; with `roots` it is the parent of some,
    watched for a root that is deleted and made again.
    """

    real: str
    shown: str = ""
    single: bool = False
    roots: frozenset[str] = frozenset()


class Listener:
    """Watches places on disk with watchdog and marks folders dirty. One thread owns it."""

    def __init__(self, mark: Mark) -> None:
        # 43 ms to import, and nothing but a watching process needs it
        from watchdog.observers import Observer

        logging.getLogger("watchdog").setLevel(logging.WARNING)
        # A folder made while its root begins to be watched is met twice. Where a host turns warnings
        # into errors, saying so would end watchdog's thread.
        warnings.filterwarnings("ignore", message="Callback with id", category=RuntimeWarning)
        self._mark = mark
        self._observer: Any = Observer()
        self._observer.daemon = True
        self._watches: dict[Place, tuple[Any, tuple[int, int]]] = {}
        self._dead: set[str] = set()
        self._started = False

    def start(self) -> None:
        """Begins to deliver; raises `OSError` when the system has no watch left."""
        self._observer.start()
        self._started = True

    def stop(self) -> None:
        """Ends all watches."""
        self._observer.unschedule_all()
        if self._started:
            self._observer.stop()
            self._observer.join(2)

    def follow(self, wanted: Iterable[Place]) -> list[Place]:
        """Watches exactly these and returns those that are new: what they hold is not known yet.

        A place deleted and made again is watched anew.
        """
        new: list[Place] = []
        places = set(wanted)
        dead, self._dead = self._dead, set()
        for place, (watch, identity) in list(self._watches.items()):
            if place not in places or place.real in dead or identity != _identity(place.real):
                del self._watches[place]
                self._drop(watch)
        for place in places - self._watches.keys():
            identity = _identity(place.real)
            if identity == (0, 0):
                continue
            watch = self._observer.schedule(
                _Handler(place, self._mark, self._died),
                place.real,
                recursive=not place.roots,
                event_filter=_events(),
            )
            self._watches[place] = (watch, identity)
            new.append(place)
        return new

    def _died(self, real: str) -> None:
        self._dead.add(real)

    def _drop(self, watch: Any) -> None:
        with contextlib.suppress(KeyError, OSError):  # its emitter died with the folder
            self._observer.unschedule(watch)


class _Handler:
    """Receives the events of one place."""

    def __init__(self, place: Place, mark: Mark, died: Callable[[str], None]) -> None:
        self._place = place
        self._mark = mark
        self._died = died

    def dispatch(self, event: Any) -> None:
        """Called by watchdog for each event."""
        for path, moved_from in ((event.src_path, True), (event.dest_path, False)):
            if path:
                gone = event.event_type == "deleted" or (event.event_type == "moved" and moved_from)
                kind = {"modified": "open", "closed": "closed"}.get(event.event_type, "")
                self._path(os.fsdecode(path), "closed" if gone else kind, folder=event.is_directory)

    def _path(self, path: str, kind: str, *, folder: bool) -> None:
        place = self._place
        if place.roots:
            if path in place.roots:
                self._died(os.path.realpath(path))
                self._mark("", "")
            return
        if path == place.real:
            self._died(path)
            self._mark("", "")
            return
        parts = path[len(place.real) + 1 :].split("/")
        if _matters(parts, single=place.single, folder=folder):
            skill = place.shown if place.single else f"{place.shown}/{parts[0]}"
            self._mark(skill, f"{kind}:{path}" if kind and not folder else "")


def _matters(parts: list[str], *, single: bool, folder: bool) -> bool:
    """False for what no skill is made of: hidden files, bytecode, editors' litter, notes."""
    if any(part.startswith(".") or part in source.SKIPPED for part in parts):
        return False
    top = single or len(parts) > 1
    return folder or not top or parts[-1].lower().endswith((".py", ".json", ".toml", ".md"))


def _identity(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def _events() -> list[Any]:
    """All but reads and attributes: reading a skill must not look like a change of it."""
    from watchdog import events

    return [
        events.FileCreatedEvent,
        events.FileModifiedEvent,
        events.FileClosedEvent,
        events.FileMovedEvent,
        events.FileDeletedEvent,
        events.DirCreatedEvent,
        events.DirMovedEvent,
        events.DirDeletedEvent,
    ]

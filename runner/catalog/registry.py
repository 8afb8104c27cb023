"""All skills, in one snapshot that is replaced as a whole; nobody sees half a reload."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..types import NOTHING
from . import discovery
from .assemble import HookSpecs, Terms
from .discovery import Built
from .fresh import EXAMINED_FIRST, Fresh, has_changed, look
from .loader import LOAD_SECONDS, Generation
from .resolve import difference, effective, resolve
from .skill import Change, Skill, Snapshot


class Registry:
    """The skills of some roots. `snapshot` is always whole and never changes in place.

    Readers take `snapshot` without a lock; one writer at a time builds and swaps.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        project: Path,
        extra: Sequence[Skill] = (),
        disabled: Collection[str] = (),
        environ: Mapping[str, str] = os.environ,
        hookspecs: HookSpecs = NOTHING,
        load_seconds: float = LOAD_SECONDS,
    ) -> None:
        self.roots = tuple(roots)
        self.project = project
        self.snapshot = Snapshot()
        self._extra = tuple(extra)
        self._disabled = frozenset(disabled)
        self._terms = Terms(
            environ=environ,
            report=self._load_failed,
            hookspecs=hookspecs,
            load_seconds=load_seconds,
        )
        self._built: dict[str, Built] = {}
        self._good: dict[str, Built] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self._writing = threading.Lock()  # held by a scan or refresh, disk included
        self._lock = threading.Lock()  # held for the swap alone

    def scan(self, *, thorough: bool = False) -> Snapshot:
        """Looks at every folder anew and swaps the snapshot. Never imports skill code.

        Of a large catalogue only the first modules are compiled, unless `thorough`; refreshes go on.
        """
        with self._writing, _without_collection():
            quick = replace(self._terms, examine=False)
            built: dict[str, Built] = {}
            for count, place in enumerate(discovery.places(self.roots, self.project)):
                terms = self._terms if thorough or count < EXAMINED_FIRST else quick
                if one := discovery.build(place, look(place), 1, terms, time.time_ns()):
                    built[place.folder] = one
            with self._lock:
                self._built, self._good = built, {}
                self._swap()
        return self.snapshot

    def refresh(self, folders: Collection[Path] | None = None) -> Change | None:
        """Builds what changed, by content, and swaps; None when nothing did.

        `folders` are skill folders to look at closely; new and vanished ones are always noticed. A
        version that cannot be built or imported leaves the last good one in place, as `stale`.
        """
        with self._writing:
            wanted = None if folders is None else {discovery.absolute(folder) for folder in folders}
            fresh = Fresh(self._built, self._good, self._terms, wanted)
            built = fresh.build(discovery.places(self.roots, self.project))
            with self._lock:
                self._built, self._good = built, fresh.good
                change = self._swap()
        return self._tell(change)

    def dirty(self) -> list[Path]:
        """Skill folders whose files look other than when they were read, new and vanished ones too."""
        places = discovery.places(self.roots, self.project)
        built = self._built
        changed = [p.folder for p in places if has_changed(p, built.get(p.folder))]
        here = {place.folder for place in places}
        return [Path(folder) for folder in [*changed, *(f for f in built if f not in here)]]

    def linked(self) -> dict[str, str]:
        """Skill folders that are links: the real folder and the folder it stands for."""
        return {one.place.linked: folder for folder, one in self._built.items() if one.place.linked}

    @property
    def unexamined(self) -> int:
        """Skills of a large catalogue whose modules the next refreshes still have to look at."""
        return sum(not one.examined for one in self._built.values())

    def subscribe(self, callback: Callable[[Change], None]) -> None:
        """Calls back with every change, on the thread that made it."""
        self._listeners.append(callback)

    def close(self) -> None:
        """Drops all skills, so that their modules may tear down once no call holds them."""
        with self._writing, self._lock:
            self._built, self._good = {}, {}
            self.snapshot = Snapshot(self.snapshot.generation)

    def _swap(self) -> Change | None:
        old = self.snapshot
        skills = [effective(one, self._good.get(folder)) for folder, one in self._built.items()]
        listed, tools = resolve([*skills, *self._extra], self._disabled)
        if listed == old.skills and old.generation:
            return None
        self.snapshot = Snapshot(old.generation + 1, listed, tools)
        return difference(old, self.snapshot)

    def _load_failed(self, generation: Generation, reason: str) -> None:
        """A module failed on first use: its skill is out until its content changes."""
        with self._lock:
            found = next((f for f, b in self._built.items() if b.generation is generation), None)
            if found is None or not self._built[found].skill.live:
                return
            one = self._built[found]
            skill = replace(one.skill, state="failed", reason=f"{one.place.shown}: {reason}")
            self._built = {**self._built, found: replace(one, skill=skill, broken=True)}
            change = self._swap()
        self._tell(change)

    def _tell(self, change: Change | None) -> Change | None:
        if change is not None:
            for listener in self._listeners:
                listener(change)
        return change


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Thousands of long-lived objects are made: collecting meanwhile costs a fifth and frees none.

    Afterwards they count as old, so that the next collection does not walk them all at once. A
    host that has frozen objects of its own keeps them frozen.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()

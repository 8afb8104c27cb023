"""Rebuild what changed on disk, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ..errors import SkillError
from . import discovery, source
from .assemble import Terms
from .discovery import Built, Place
from .source import Listing

EXAMINED_FIRST = 200  # modules compiled by a scan: somebody waits for it
EXAMINED_AT_ONCE = 500  # and by each refresh after it


class Fresh:
    """One refresh: the old skills in, the new ones out. `good` holds last good versions, by folder."""

    def __init__(
        self,
        old: Mapping[str, Built],
        good: Mapping[str, Built],
        terms: Terms,
        wanted: Collection[str] | None,
    ) -> None:
        self.good = dict(good)
        self._old = old
        self._terms = terms
        self._wanted = wanted
        self._examined = 0

    def build(self, places: Iterable[Place]) -> dict[str, Built]:
        """What is in each place now, in the order of the places."""
        built: dict[str, Built] = {}
        for place in places:
            old = self._old.get(place.folder)
            asked = self._wanted is None or place.folder in self._wanted
            one = self._one(place, old) if asked or old is None else self._left(old)
            if one is not None:
                built[place.folder] = one
        self.good = {folder: one for folder, one in self.good.items() if folder in built}
        return built

    def _one(self, place: Place, old: Built | None) -> Built | None:
        listing = look(place)
        if old is None:
            return discovery.build(place, listing, 1, self._terms, time.time_ns())
        if old.place == place and _same(old, listing, sure=self._wanted is None):
            return self._examine(old)
        now = time.time_ns()
        if self._is_as_read(place, listing, old):
            return replace(old, listing=listing, read_at=now)
        return self._changed(place, listing, old, now)

    def _changed(self, place: Place, listing: Listing, old: Built, now: int) -> Built | None:
        good = self.good.get(place.folder) or (old if old.skill.live else None)
        if good and old is not good and self._content(place, listing, good) == good.skill.digest:
            self.good.pop(place.folder, None)
            return replace(good, listing=listing, read_at=now)
        number = old.skill.generation + 1
        new = discovery.build(place, listing, number, self._terms, now)
        if new is None:
            return None
        if _alike(new, old):
            return replace(old, listing=listing, read_at=now)
        if new.skill.live and (new.skill.hooks or _in_use(good)):
            new = _imported(new)
        if new.skill.state != "failed" or not listing.manifests:
            self.good.pop(place.folder, None)
        elif good:
            self.good[place.folder] = good
        return new

    def _is_as_read(self, place: Place, listing: Listing, old: Built) -> bool:
        """The same content, and nothing else that could make another skill of it."""
        if old.place != place or old.skill.state == "ineligible" or not old.skill.digest:
            return False
        return self._content(place, listing, old) == old.skill.digest

    def _left(self, old: Built) -> Built:
        return old if self._wanted else self._examine(old)

    def _examine(self, old: Built) -> Built:
        """Compiles what the first scan of a large catalogue left for later."""
        if old.examined or self._examined >= EXAMINED_AT_ONCE:
            return old
        self._examined += 1
        if old.generation and old.generation.loaded:
            return replace(old, examined=True)
        new = discovery.build(
            old.place, old.listing, old.skill.generation, self._terms, old.read_at
        )
        return replace(old, examined=True) if new is None or new.skill == old.skill else new

    def _content(self, place: Place, listing: Listing, of: Built) -> str | None:
        if place.problem or listing.problem:
            return None
        try:
            return source.read(place.folder, listing, of.references).digest
        except SkillError:
            return None


def has_changed(place: Place, old: Built | None) -> bool:
    """Whether a folder's files look other than when they were read; not sure of ones just written."""
    listing = look(place)
    if old is None:
        modules = any("/" not in name for name in listing.modules)
        return bool(place.problem or listing.problem or listing.manifests or modules)
    return old.place != place or not _same(old, listing, sure=True)


def look(place: Place) -> Listing:
    """The files of the place, unless it is not to be looked into."""
    return Listing() if place.problem else source.look(place.folder)


def _same(old: Built, listing: Listing, *, sure: bool) -> bool:
    """Whether the folder is as it was. A dirty folder's content is compared in any case."""
    unchanged = old.listing == listing and old.settled and sure
    return unchanged and old.skill.state != "ineligible"


def _alike(new: Built, old: Built) -> bool:
    return new.skill == replace(old.skill, generation=new.skill.generation) and not new.skill.live


def _in_use(good: Built | None) -> bool:
    return good is not None and good.generation is not None and good.generation.loaded


def _imported(new: Built) -> Built:
    """A skill in use is imported before it takes over: an import error keeps the last good version."""
    try:
        for tool in new.skill.tools:
            tool.load()
        if new.skill.load_module and not new.skill.tools:
            new.skill.load_module()
    except SkillError as error:
        reason = f"{new.place.shown}: {error}"
        return replace(new, skill=replace(new.skill, state="failed", reason=reason), broken=True)
    return new

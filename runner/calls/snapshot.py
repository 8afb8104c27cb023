"""Which files of the workspace a call changed: a look before, a look after, and the difference."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from ..types import Changes

SKIPPED = frozenset((".git", "node_modules", ".venv", "__pycache__"))
SKIPPED_ENDINGS = (".pyc", ".swp", ".tmp")
_MAX_LINES = 40
_MAX_NAME = 200
_KILO = 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """What was at a path: enough to see a change, and to say it."""

    kind: Literal["file", "link", "special"]
    size: int
    mtime_ns: int
    inode: int
    target: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "file":
                return size_text(self.size)
            case "link":
                return f"link to {_shown(self.target)}"
            case _:
                return "special file"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files below a folder. `last`: where it stopped looking, when there were too many."""

    files: Mapping[str, Entry] = field(default_factory=dict)
    last: tuple[int, str] | None = None


def take(root: Path, *, depth: int = 4, files: int = 500, skip: Collection[str] = ()) -> Snapshot:
    """Looks at so many files at most, so many folders deep, those near the root first.

    Follows no link, not even one put in a folder's place meanwhile, opens no file, and passes over
    what vanishes or cannot be read. `skip`: names, patterns, or absolute paths of folders.
    """
    base = os.path.realpath(root)
    skipped = _Skipped(skip, base)
    found: dict[str, Entry] = {}
    level = [""]
    for _ in range(depth + 1):
        below: list[str] = []
        for folder in sorted(level, key=_key):
            with _opened(base, folder) as (handle, entries):
                for entry in entries:
                    path = folder + entry.name
                    if skipped.name(entry.name):
                        continue
                    if _is_folder(entry):
                        below += [] if skipped.folder(path) else [path + "/"]
                    elif len(found) >= files:
                        return Snapshot(found, _key(next(reversed(found), "")))
                    elif (seen := _look(entry, handle)) is not None:
                        found[_readable(path)] = seen
        level = below
    return Snapshot(found)


class _Skipped:
    """What is not looked at."""

    def __init__(self, skip: Collection[str], base: str) -> None:
        self._base = base
        self._names = SKIPPED | {name for name in skip if "/" not in name}
        self._paths = {os.path.realpath(name) for name in skip if "/" in name}
        self._patterns = [name for name in self._names if "*" in name]

    def name(self, name: str) -> bool:
        """By what it is called."""
        if name in self._names or name.endswith(SKIPPED_ENDINGS):
            return True
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)

    def folder(self, path: str) -> bool:
        """By where it is, below the folder that is looked at."""
        return bool(self._paths) and os.path.normpath(f"{self._base}/{path}") in self._paths


def diff(before: Snapshot, after: Snapshot) -> Changes:
    """What differs, as far as both looked."""
    ends = [shot.last for shot in (before, after) if shot.last is not None]
    old, new = before.files, after.files
    if ends:
        old = {path: entry for path, entry in old.items() if _key(path) <= min(ends)}
        new = {path: entry for path, entry in new.items() if _key(path) <= min(ends)}
    return Changes(
        created=tuple(sorted(new.keys() - old.keys())),
        modified=tuple(sorted(p for p in new.keys() & old.keys() if new[p] != old[p])),
        deleted=tuple(sorted(old.keys() - new.keys())),
    )


def render(changes: Changes, before: Snapshot, after: Snapshot) -> str:
    """The block that is appended to the result; empty when nothing changed."""
    if not changes:
        return ""
    lines = [f"+ {_shown(p)} (created, {after.files[p]})" for p in changes.created]
    lines += [
        f"~ {_shown(p)} (modified, {before.files[p]} → {after.files[p]})" for p in changes.modified
    ]
    lines += [f"- {_shown(p)} (deleted)" for p in changes.deleted]
    if len(lines) > _MAX_LINES:
        lines = [*lines[:_MAX_LINES], f"… and {len(lines) - _MAX_LINES} more"]
    if before.last is not None or after.last is not None:
        looked = min(len(shot.files) for shot in (before, after) if shot.last is not None)
        lines.append(f"(only the first {looked} files were looked at; there may be more changes)")
    return "\n".join(["[Workspace Changes]", *lines])


def size_text(size: int) -> str:
    """`8 B`, `1.5 KB`, `3.0 MB`."""
    if size < _KILO:
        return f"{size} B"
    number = float(size)
    for unit in ("KB", "MB", "GB"):
        number /= _KILO
        if number < _KILO or unit == "GB":
            break
    return f"{number:.1f} {unit}"


def _key(path: str) -> tuple[int, str]:
    """The order files are looked at: level by level, folder by folder, by name."""
    return path.count("/"), path.replace("/", "\0")


@contextmanager
def _opened(base: str, folder: str) -> Iterator[tuple[int, list[os.DirEntry[str]]]]:
    """A folder below the base, reached part by part, and what it holds; nothing where that fails."""
    handle = -1
    try:
        handle = os.open(base, _FOLDER)
        for part in folder.split("/")[:-1]:
            above, handle = handle, os.open(part, _FOLDER, dir_fd=handle)
            os.close(above)
        with os.scandir(handle) as entries:
            held = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        held = []
    try:
        yield handle, held
    finally:
        if handle >= 0:
            os.close(handle)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _look(entry: os.DirEntry[str], folder: int) -> Entry | None:
    try:
        state = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(state.st_mode):
            return Entry("file", state.st_size, state.st_mtime_ns, state.st_ino)
        if stat.S_ISLNK(state.st_mode):
            return Entry("link", 0, 0, 0, _readable(os.readlink(entry.name, dir_fd=folder)))
    except OSError:
        return None
    return Entry("special", 0, 0, 0)


def _readable(path: str) -> str:
    """Bytes of a name that are no UTF-8 as `\\xNN`, so that it can be written anywhere."""
    if path.isascii():
        return path
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _shown(path: str) -> str:
    plain = path if path.isprintable() else path.encode("unicode_escape").decode("ascii")
    return plain if len(plain) <= _MAX_NAME else plain[: _MAX_NAME - 1] + "…"

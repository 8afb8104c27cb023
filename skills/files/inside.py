"""Look at what lies below the workspace without following a link, put there at any moment."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner import SkillContext

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
SORTS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a folder; `sort` is empty for a link."""

    path: Path
    name: str
    sort: str


def root_of(ctx: SkillContext) -> Path:
    """The workspace, links in its own path resolved."""
    return Path(os.path.realpath(ctx.workspace))


def sort_of(ctx: SkillContext, path: Path) -> str:
    """`file`, `folder`, what else it is in words, or nothing when it is not there."""
    state = state_of(ctx, path)
    return SORTS.get(stat.S_IFMT(state.st_mode), "") if state else ""


def state_of(ctx: SkillContext, path: Path) -> os.stat_result | None:
    """What the system says about a resolved path; None when it is not there."""
    try:
        if path == root_of(ctx):
            return os.lstat(path)
        with _opened(ctx, path.parent) as folder:
            return os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def entries(ctx: SkillContext, path: Path) -> list[Entry]:
    """What a folder holds, sorted by name; nothing when it cannot be read, or is none any more."""
    try:
        with _opened(ctx, path) as folder, os.scandir(folder) as found:
            held = [Entry(path / e.name, e.name, _sort(e)) for e in found]
    except OSError:
        return []
    return sorted(held, key=lambda entry: entry.name)


def read(ctx: SkillContext, path: Path, most: int) -> bytes:
    """The bytes of a file; none when it is too large, unreadable, or not a plain file any more.

    Unlike with `ctx.read_bytes`, the file does not count as read.
    """
    try:
        with _opened(ctx, path.parent) as folder:
            handle = os.open(path.name, FILE, dir_fd=folder)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as stream:
        state = os.fstat(handle)
        plain = stat.S_ISREG(state.st_mode) and state.st_size <= most
        return stream.read(most) if plain else b""


@contextmanager
def _opened(ctx: SkillContext, path: Path) -> Iterator[int]:
    """A handle of a folder, reached from the workspace step by step, no step through a link."""
    root = os.path.realpath(ctx.workspace)
    before, _, below = f"{path}/".partition(f"{root.rstrip('/')}/")
    if before:
        raise FileNotFoundError(path)
    folder = os.open(root, FOLDER)
    try:
        for part in filter(None, below.split("/")):
            inner = os.open(part, FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _sort(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return ""
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_file(follow_symlinks=False):
        return "file"
    return SORTS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode), "")

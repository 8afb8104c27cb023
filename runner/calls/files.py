"""Where a call may read and write: inside the workspace, whatever the path looks like."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from ..skill import ToolError
from .baselines import Baselines
from .locks import PathLocks
from .permissions import below

_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 4095
_MAX_LISTED = 12
_MAX_READ = 256_000_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RACE = "changed while it was opened; look at it again"


class Workspace:
    """The files of one call; implements `runner.skill.Files`.

    Every name is resolved, links included, and must lie below the root. Opening walks from the root
    without following links, so a link put in between is refused. `scopes` are the manifest's
    permissions; None when there is no manifest. `approved`: a person allowed this call.
    """

    def __init__(
        self,
        root: Path,
        *,
        locks: PathLocks,
        baselines: Baselines,
        owner: object,
        protected: Sequence[Path] = (),
        scopes: Sequence[str] | None = None,
        approved: bool = False,
        remaining: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._given_root = root
        self._locks = locks
        self._baselines = baselines
        self._owner = owner
        self._protected = protected
        self._scopes = scopes
        self._approved = approved
        self._remaining = remaining

    @cached_property
    def _root(self) -> Path:
        return Path(os.path.realpath(self._given_root))

    def path(self, name: str, *, write: bool) -> Path:
        """The real path of a name; with `write` it is this call's alone until the call ends."""
        real = self._resolved(name)
        self._check_scope("fs.write" if write else "fs.read", real, name)
        if write:
            self._check_protected(real, name)
            if not self._locks.take(str(real), self._owner, self._remaining()):
                raise ToolError(
                    f"{shown(name)} is being written by another call; try again", retryable=True
                )
        return real

    def read(self, name: str) -> bytes:
        """The bytes of a regular file, remembered as seen."""
        real = self.path(name, write=False)
        with self._parent(real, name) as folder:
            data = _read(folder, real.name, name, lambda: self._nearest(real))
        self._seen(real, data)
        return data

    def write(self, name: str, data: bytes) -> None:
        """Replaces or makes the file in one step, with the folders it needs; keeps its mode."""
        real = self.path(name, write=True)
        if real == self._root:
            raise ToolError(f"{shown(name)} is a folder")
        with self._parent(real, name, make=True) as folder:
            _replace(folder, real.name, name, data)
        self._seen(real, data)

    def stale(self, name: str) -> str:
        """Why the file may not be edited yet; empty when it may."""
        real = self._resolved(name)
        try:
            return self._baselines.stale(real)
        except OSError:  # a folder became a link between two looks at it
            return "it changed just now; read it again"

    def _seen(self, real: Path, data: bytes) -> None:
        with contextlib.suppress(OSError):  # what is not remembered has to be read again
            self._baselines.seen(real, data)

    def _resolved(self, name: str) -> Path:
        _check_name(name)
        try:
            real = Path(os.path.realpath(f"{self._root}/{name}" if name[:1] != "/" else name))
        except OSError as error:  # a link became something else between two looks at it
            raise ToolError(f"{shown(name)}: {_RACE}") from error
        if not real.is_relative_to(self._root):
            raise ToolError(
                f"{shown(name)} is outside the workspace; give a path inside it, such as one of"
                f" these: {listing(self._root)}"
            )
        steps = (real, *real.parents)[: len(real.parts) - len(self._root.parts)]
        if any(step.is_symlink() for step in steps):
            raise ToolError(f"{shown(name)} is a link that leads to itself")
        return real

    def _check_scope(self, capability: str, real: Path, name: str) -> None:
        if self._scopes is None:
            return
        own = [scope for scope in self._scopes if scope.partition(":")[0] == capability]
        if capability in own or (capability == "fs.read" and not own):
            return
        if not own:
            raise ToolError(
                f"the skill may not write files: its manifest does not ask for {capability}"
            )
        places = [scope.partition(":")[2] for scope in own]
        relative = str(real.relative_to(self._root))
        if not any(below(place, relative) for place in places):
            raise ToolError(
                f"{shown(name)} is not among the places of this skill: {', '.join(places)}"
            )

    def _check_protected(self, real: Path, name: str) -> None:
        if self._approved:
            return
        for folder in (Path(os.path.realpath(path)) for path in self._protected):
            if real.is_relative_to(folder):
                raise ToolError(
                    f"{shown(name)} is below {folder.name}/, which holds the runner's own files;"
                    " only a call the user approved may write there"
                )

    @contextlib.contextmanager
    def _parent(self, real: Path, name: str, *, make: bool = False) -> Iterator[int]:
        """A handle of the folder that holds the file, reached from the root without links."""
        *parts, _ = real.relative_to(self._root).parts or ("",)
        folder = os.open(self._root, _DIRECTORY)
        try:
            for part in parts:
                folder = _step(folder, part, make=make)
            yield folder
        except FileNotFoundError as error:
            raise ToolError(f"no file {shown(name)}; {self._nearest(real)}") from error
        except NotADirectoryError as error:
            raise ToolError(f"{shown(name)}: a part of the path is no folder") from error
        except OSError as error:
            reason = _RACE if error.errno == errno.ELOOP else f"{error.strerror}"
            raise ToolError(f"{shown(name)}: {reason}") from error
        finally:
            os.close(folder)

    def _nearest(self, real: Path) -> str:
        return nearest(self._root, real)


def nearest(root: Path, path: Path) -> str:
    """What the nearest existing folder on the way to a path holds, as advice for the model.

    The way is walked without following links: one that was put there meanwhile shows nothing.
    """
    parts = path.relative_to(root).parts[:-1] if path.is_relative_to(root) else ()
    passed: list[str] = []
    try:
        folder = os.open(root, _DIRECTORY)
    except OSError:
        return "the workspace has: nothing"
    try:
        with contextlib.suppress(OSError):
            for part in parts:
                folder = _step(folder, part, make=False)
                passed.append(part)
        where = f"the folder {shown('/'.join(passed))}" if passed else "the workspace"
        return f"{where} has: {listing(folder)}"
    finally:
        os.close(folder)


def listing(folder: Path | int) -> str:
    """The first names in a folder, or in that of a handle, those of folders with a slash."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name + "/" * e.is_dir(follow_symlinks=False) for e in entries)
    except OSError:
        names = []
    if not names:
        return "nothing"
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(shown, names[:_MAX_LISTED])) + more


def shown(name: str) -> str:
    """A file name for a message: quoted and escaped where it is odd, and never long."""
    text = name if len(name) <= 200 else name[:199] + "…"  # noqa: PLR2004 - a line
    plain = text.isprintable() and not text.startswith((" ", "'")) and " " not in text
    return text if plain else repr(text)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise ToolError("a path must be a text that is not empty")
    try:
        data = os.fsencode(name)
    except UnicodeEncodeError as error:
        raise ToolError(f"{shown(name)} cannot be the name of a file") from error
    longest = max(map(len, data.split(b"/")))
    if b"\0" in data or longest > _MAX_NAME_BYTES or len(data) > _MAX_PATH_BYTES:
        raise ToolError(f"{shown(name)} cannot be the name of a file")


def _step(folder: int, part: str, *, make: bool) -> int:
    """Into a folder of this folder, whose handle is closed."""
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
    inner = os.open(part, _DIRECTORY, dir_fd=folder)
    os.close(folder)
    return inner


def _read(folder: int, own: str, name: str, advice: Callable[[], str]) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(own or ".", flags, dir_fd=folder)
    except FileNotFoundError as error:
        raise ToolError(f"no file {shown(name)}; {advice()}") from error
    with os.fdopen(handle, "rb", closefd=True) as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise ToolError(f"{shown(name)} is no regular file")
        if state.st_size > _MAX_READ:
            raise ToolError(f"{shown(name)} is too large to read at once: {state.st_size} bytes")
        return file.read()


def _replace(folder: int, own: str, name: str, data: bytes) -> None:
    before = None
    with contextlib.suppress(FileNotFoundError):
        before = os.stat(own, dir_fd=folder, follow_symlinks=False)
    if before is not None and stat.S_ISLNK(before.st_mode):
        raise ToolError(f"{shown(name)}: {_RACE}")
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise ToolError(f"{shown(name)} is no regular file")
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            if before is not None:
                os.fchmod(handle, stat.S_IMODE(before.st_mode))
            file.write(data)
        os.rename(temporary, own, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise

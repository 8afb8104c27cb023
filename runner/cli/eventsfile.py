"""`--events FILE`: every event as a JSON line, the file written anew."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ..errors import ConfigError
from ..events import Event
from .console import Console
from .text import dump

_LONGEST_LINE = 1_000_000
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC


class EventsFile:
    """A listener that writes. `-` is stderr. Once a line cannot be written, it says so and stops.

    Only an empty file or an earlier events file is written over, and never a session's own record,
    in `records` or in another state folder. A pipe or a device gets the lines as they come.
    """

    def __init__(self, name: str, console: Console, *, records: Path) -> None:
        self._console = console
        self._broken = False
        self._name = name
        self._file: IO[bytes] | None = None
        if name != "-":
            try:
                self._file = _opened(name, records)
            except OSError as error:
                raise ConfigError(f"--events {name}: {_why(name, error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def __call__(self, event: Event) -> None:
        """Writes the event, whole, in one write."""
        if self._broken:
            return
        line = f"{dump(event.to_dict())}\n"
        if self._file is None:
            self._console.say(line)
            return
        try:
            self._file.write(line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._broken = True
            self._console.warn(
                f"--events {self._name}: {error.strerror}; no more events are written"
            )


def _opened(name: str, records: Path) -> IO[bytes]:
    """The file, emptied; raises `ConfigError` before anything of somebody else's is lost."""
    if Path(os.path.realpath(name)).is_relative_to(os.path.realpath(records)):
        raise ConfigError(
            f"--events {name}: is among the records of the sessions; name a file outside {records}"
        )
    handle = os.open(name, _FLAGS, 0o666)
    try:
        _make_room(name, handle)
        os.set_blocking(handle, True)  # it was opened without waiting for a pipe's reader
        return open(handle, "wb", buffering=0)  # noqa: PTH123 - a descriptor
    except BaseException:
        os.close(handle)
        raise


def _make_room(name: str, handle: int) -> None:
    state = os.fstat(handle)
    if stat.S_ISBLK(state.st_mode):
        raise ConfigError(f"--events {name}: is a disk; name a file")
    if not stat.S_ISREG(state.st_mode):
        return
    first = _first(name) if state.st_size else {}
    if first is None:
        raise ConfigError(
            f"--events {name}: is there already and is no events file; "
            "remove it first, or name another file"
        )
    real = Path(os.path.realpath(name))
    if real.parent.name == "sessions" and real.stem == first.get("session"):
        raise ConfigError(f"--events {name}: is the record of a session; name another file")
    os.truncate(handle, 0)


def _first(name: str) -> dict[str, Any] | None:
    """What it begins with, when that is like an earlier run's events."""
    with Path(name).open("rb") as file:
        line = file.readline(_LONGEST_LINE)
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(first, dict) and isinstance(first.get("type"), str) and "seq" in first
    return first if ours else None


def _why(name: str, error: OSError) -> str:
    path = Path(name)
    if path.is_dir():
        return "is a folder; name a file in it"
    if error.errno == errno.ENXIO:
        pipe = "is a pipe that nobody reads; start its reader first"
        return pipe if path.is_fifo() else "is no file; name one"
    if error.errno == errno.ENOENT and not path.parent.is_dir():
        return f"there is no folder {path.parent}; make it first"
    return f"cannot be written: {error.strerror}"

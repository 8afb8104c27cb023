"""The append-only log of a session: one write per record, one writer per session."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RecordError, SessionError
from ..events import SCHEMA, Event
from ..jsontext import encode

ID_RULE = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_id(session: str) -> str:
    """The id itself, or `SessionError`: ids are file names."""
    if not ID_RULE.fullmatch(session) or set(session) <= {"."}:
        raise SessionError(f"session id {session!r}: use 1 to 64 letters, digits, '.', '_' or '-'")
    return session


def file_of(state: Path, session: str) -> Path:
    """Where a session's trajectory lies."""
    return state / "sessions" / f"{check_id(session)}.jsonl"


@dataclass(slots=True)
class Loaded:
    """What could be read of a trajectory. `damage` says in sentences what could not."""

    records: list[dict[str, Any]] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    good_bytes: int = 0


class Trajectory:
    """Writes one session's records. Holds the session's lock until closed.

    A record is in the file, whole, when `append` returns, or `RecordError` is raised and the file
    ends with the last whole record.
    """

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._fsync = fsync
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _locked(path)
            self._fd = self._opened(path)
        except OSError as error:
            raise RecordError(
                f"{path}: cannot be written ({error.strerror}); "
                "choose another state folder with --state or [paths] state"
            ) from error
        self._size = os.fstat(self._fd).st_size

    def load(self) -> Loaded:
        """All records so far. A torn tail is saved beside the file and cut off."""
        loaded = read(self.path)
        if loaded.good_bytes < self._size:
            try:
                self._cut_torn_tail(loaded.good_bytes)
            except OSError as error:
                raise self._failed(error) from error
        return loaded

    def _cut_torn_tail(self, good_bytes: int) -> None:
        data = os.pread(self._fd, self._size - good_bytes, good_bytes)
        with open(self.path.with_suffix(".torn"), "ab", opener=_private) as file:
            file.write(data + b"\n")
        os.ftruncate(self._fd, good_bytes)
        self._size = good_bytes

    def append(self, event: Event) -> None:
        """Writes the event as one line."""
        data = _line(event).encode("utf-8", "replace")
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            raise self._failed(error) from error
        if written != len(data):  # a full disk first writes short, and only then says so
            os.ftruncate(self._fd, self._size)
            raise self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._size += written

    def sync(self) -> None:
        """Makes what was written survive a power loss, if the session asked for that."""
        if self._fsync:
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise self._failed(error) from error

    def close(self) -> None:
        """Lets the session go."""
        if self._fd >= 0:
            os.close(self._fd)
            os.close(self._lock)
            self._fd = -1

    def _opened(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags, 0o600)
            _check_regular(fd)
            if self._fsync:
                _sync_folder(path.parent)  # a power loss must not take the file's name either
            return fd
        except OSError:
            os.close(self._lock)
            raise

    def _failed(self, error: OSError) -> RecordError:
        return RecordError(
            f"{self.path}: cannot be written ({error.strerror}); the turn stops here"
        )


def _line(event: Event) -> str:
    """`to_dict` as JSON. Ids, times and types hold nothing that would have to be escaped."""
    rest = encode(dict(event.data))
    return (
        f'{{"seq":{event.seq},"time":"{event.time}","session":"{event.session}",'
        f'"turn":{event.turn},"iteration":{event.iteration},"type":"{event.type}"'
        f"{',' if len(rest) > 2 else ''}{rest[1:]}\n"  # noqa: PLR2004 - more than `{{}}`
    )


def read(path: Path) -> Loaded:
    """The records of a trajectory. Corrupt lines are skipped and counted, never a failure."""
    loaded = Loaded()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return loaded
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from error
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        loaded.damage.append(
            f"{path}: its last line was torn ({len(data) - whole} bytes) and is left out"
        )
    loaded.good_bytes = whole
    bad = 0
    for line in _lines(data[:whole]):
        record = _record(line)
        if record is None:
            bad += 1
        else:
            loaded.records.append(record)
    if bad:
        loaded.damage.append(f"{path}: {bad} corrupt line(s) skipped")
    for record in loaded.records:
        schema = record.get("schema") if record["type"] == "session.started" else None
        if isinstance(schema, int) and schema > SCHEMA:
            raise RecordError(
                f"{path}: written by a newer version (schema {schema}); update slotrunner"
            )
    return loaded


def listed(state: Path) -> list[Path]:
    """The trajectories below a state folder, newest first."""
    folder = state / "sessions"
    try:
        files = [p for p in folder.iterdir() if p.suffix == ".jsonl" and p.is_file()]
    except OSError:
        return []
    return sorted(files, key=lambda p: p.stat().st_mtime, reverse=True)


def _lines(data: bytes) -> Iterator[bytes]:
    for line in data.split(b"\n"):
        if line.strip(b"\r \t\xef\xbb\xbf"):
            yield line


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("type"), str) else None


def _check_regular(fd: int) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):  # reading a pipe would wait for ever
        raise OSError(errno.EINVAL, "not a regular file")


def _locked(path: Path) -> int:
    lock = path.with_suffix(".lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise SessionError(
            f"session {path.stem!r} is in use by process {_holder(holder, lock)}; "
            "end it or use another --session"
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def _holder(noted: str, lock: Path) -> str:
    """Who has the lock. A process that a holder left behind has it still, once that one is gone."""
    if not noted.isdigit() or Path(f"/proc/{noted}").exists() or not Path("/proc/self").exists():
        return noted
    heirs = [p.name for p in Path("/proc").iterdir() if p.name.isdigit() and _has_open(p, lock)]
    return f"{', '.join(heirs)} (left behind by {noted}, which has ended)" if heirs else noted


def _has_open(process: Path, file: Path) -> bool:
    try:
        return any(str(fd.readlink()) == str(file.resolve()) for fd in (process / "fd").iterdir())
    except OSError:
        return False


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

"""What a session last saw of each file, so that nothing is edited that has changed since."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MAX_HASHED = 64_000_000


@dataclass(frozen=True, slots=True)
class _Seen:
    mtime_ns: int
    size: int
    digest: str


class Baselines:
    """The files one session has read, written or was shown to have changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def seen(self, path: Path, data: bytes | None = None) -> None:
        """Remembers the file as it is now; `data` when its bytes are at hand."""
        key = os.path.realpath(path)
        now = _look(key, data)
        with self._lock:
            if now is None:
                self._seen.pop(key, None)
            else:
                self._seen[key] = now

    def observe(self, root: Path, names: Iterable[str]) -> None:
        """Files a call of this session changed: the model was told, so they are known again."""
        for name in names:
            self.seen(root / name)

    def stale(self, path: Path) -> str:
        """Why the file may not be edited yet; empty when it may, or does not exist."""
        key = os.path.realpath(path)
        with self._lock:
            before = self._seen.get(key)
        state = _stat(key)
        if state is None:
            return ""
        if before is None:
            return "it was not read in this session; read it first"
        if (state.st_mtime_ns, state.st_size) == (before.mtime_ns, before.size):
            return ""
        now = _look(key, None)
        if now is not None and now.digest and now.digest == before.digest:
            return ""
        return "it has changed since it was read; read it again"


def _look(path: str, data: bytes | None) -> _Seen | None:
    state = _stat(path)
    if state is None:
        return None
    if data is None and state.st_size <= _MAX_HASHED:
        data = _bytes(path)
    digest = "" if data is None else hashlib.sha256(data).hexdigest()
    return _Seen(state.st_mtime_ns, state.st_size, digest)


def _stat(path: str) -> os.stat_result | None:
    try:
        state = os.lstat(path)
    except (OSError, ValueError):
        return None
    return state if stat.S_ISREG(state.st_mode) else None


def _bytes(path: str) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(_MAX_HASHED)

"""What a skill's code sees: its context and its one exception."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol


class ToolError(Exception):
    """A skill's way to say that a call failed. `retryable`: the same call may work later."""

    def __init__(self, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class Files(Protocol):
    """Where a call may read and write; the runner's side of `SkillContext.path`."""

    def path(self, name: str, *, write: bool) -> Path: ...
    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes) -> None: ...
    def stale(self, name: str) -> str: ...


class SkillContext:
    """Given to a tool whose function takes a parameter of this type. One per attempt.

    `session_id`: the session. `workspace`: its folder. `cwd`: its working directory, for shells.
    `idempotency_key`: the same on every attempt of one call. `env`: only the variables the
    manifest was granted. `log`: a logger that keeps what it is told with the call.
    """

    def __init__(
        self,
        *,
        session_id: str,
        workspace: Path,
        files: Files,
        idempotency_key: str = "",
        deadline: float | None = None,
        env: Mapping[str, str] | None = None,
        log: Any = None,
        cwd: Path | None = None,
        scopes: Mapping[str, tuple[str, ...]] | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_progress: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session_id = session_id
        self.workspace = workspace
        self.idempotency_key = idempotency_key
        self.env: Mapping[str, str] = env or {}
        self.log = log
        self.cwd = cwd or workspace
        self.moved_to: Path | None = None
        self._files = files
        self._deadline = deadline
        self._scopes = scopes or {}
        self._is_cancelled = is_cancelled
        self._on_progress = on_progress
        self._clock = clock

    def path(self, name: str, write: bool = False) -> Path:
        """The file of that name inside the workspace; `ToolError` when it lies outside.

        With `write=True` no other call may write it until this call ends.
        """
        return self._files.path(name, write=write)

    def read_bytes(self, name: str) -> bytes:
        """The file's bytes, from a checked handle; remembers what was read for `stale`."""
        return self._files.read(name)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Replaces the file in one step and remembers what was written."""
        self._files.write(name, data)

    def stale(self, name: str) -> str:
        """Why the file may not be edited yet: never read here, or changed since. Empty: go on."""
        return self._files.stale(name)

    def remaining(self) -> float:
        """Seconds until this attempt's deadline; infinite when there is none."""
        return float("inf") if self._deadline is None else max(0.0, self._deadline - self._clock())

    def cancelled(self) -> bool:
        """True once nobody waits for this call any more."""
        return self._is_cancelled()

    def progress(self, text: str) -> None:
        """Tells the user how far the call is. Never fails."""
        self._on_progress(str(text))

    def change_directory(self, folder: Path) -> None:
        """Moves the session's working directory, once this call ends and in call order."""
        self.moved_to = folder

    def scopes(self, capability: str) -> tuple[str, ...]:
        """What the config and the manifest name for a capability, such as hosts for `net`."""
        return self._scopes.get(capability, ())

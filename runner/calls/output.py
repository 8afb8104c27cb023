"""What a skill prints belongs to its call: stdout and stderr routed by context, not by process."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

KEPT_CHARS = 2000


class Printed:
    """The first characters one call printed."""

    __slots__ = ("_left", "_parts")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left = KEPT_CHARS

    def add(self, text: str) -> None:
        """Keeps what still fits."""
        if self._left > 0:
            self._parts.append(text[: self._left])
            self._left -= len(text)

    @property
    def text(self) -> str:
        """What was printed, cut to 2,000 characters."""
        return "".join(self._parts)


printing: ContextVar[Printed | None] = ContextVar("runner_printing", default=None)


class Router:
    """Stands in for a standard stream: a call's text goes to the call, all else through."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As a text stream does."""
        printed = printing.get()
        if printed is None:
            return int(self._stream.write(text) or 0)
        printed.add(str(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """As a text stream does."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """A call's text needs no flushing."""
        if printing.get() is None:
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Capture:
    """Installs the routers once for all runners of the process, and takes them out with the last."""

    def __init__(self) -> None:
        self._users = 0
        self._saved: tuple[Any, Any] | None = None

    def begin(self) -> None:
        """One more runner wants prints routed."""
        self._users += 1
        if self._users == 1:
            self._saved = (sys.stdout, sys.stderr)
            sys.stdout, sys.stderr = Router(sys.stdout), Router(sys.stderr)

    def end(self) -> None:
        """One runner less; the streams are put back unless somebody replaced them since."""
        self._users -= 1
        if self._users == 0 and self._saved is not None:
            if isinstance(sys.stdout, Router):
                sys.stdout = self._saved[0]
            if isinstance(sys.stderr, Router):
                sys.stderr = self._saved[1]
            self._saved = None


capture = Capture()

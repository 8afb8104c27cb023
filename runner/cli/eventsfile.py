"""`--events FILE`: every event as a JSON line, the file written anew."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import IO, Self

from ..errors import ConfigError
from ..events import Event
from .console import Console
from .text import dump


class EventsFile:
    """A listener that writes. `-` is stderr. Once a line cannot be written, it says so and stops."""

    def __init__(self, name: str, console: Console) -> None:
        self._console = console
        self._broken = False
        self._name = name
        self._file: IO[bytes] | None = None
        if name != "-":
            try:
                self._file = Path(name).open("wb", buffering=0)  # noqa: SIM115 - closed by __exit__
            except OSError as error:
                raise ConfigError(
                    f"--events {name}: cannot be written: {error.strerror}"
                ) from error

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

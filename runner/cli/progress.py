"""What a person sees while a turn runs: one line that is rewritten, and the reply as it comes."""

from __future__ import annotations

import asyncio
import os
import time
import unicodedata
from collections.abc import Callable
from contextlib import suppress

from ..events import Event
from ..redact import Redactor
from .console import Console
from .text import safe, seconds

_TICK_S = 0.25
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Progress:
    """The line: iteration, what is waited for, for how long. A listener of one session."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._iteration = 0
        self._doing = ""
        self._since = clock()
        self._tools: dict[str, tuple[str, float]] = {}
        self.paused = False

    def __call__(self, event: Event) -> None:
        """Takes note of what happened."""
        match event.type:
            case "model.requested":
                self._iteration = event.iteration
                self._now("thinking")
            case "slot.waiting":
                self._now(f"waiting, number {event.data.get('position')} in the queue")
            case "model.retried":
                self._now(f"trying the model again: {event.data.get('reason')}")
            case "tool.started":
                name, call_id = event.data.get("tool"), event.data.get("call_id")
                self._tools[str(call_id)] = (str(name), self._clock())
            case "tool.finished":
                self._tools.pop(str(event.data.get("call_id")), None)
            case "approval.asked":
                self.paused = True
            case "approval.answered":
                self.paused = False
            case _:
                return
        self.show()

    def show(self) -> None:
        """Draws the line anew."""
        if not self.paused:
            self._console.status(self.line())

    def line(self) -> str:
        """What the line says now."""
        now = self._clock()
        running = [f"{name} {seconds(now - began)}" for name, began in self._tools.values()]
        doing = ", ".join(running) or f"{self._doing} {seconds(now - self._since)}"
        return f"iteration {self._iteration}: {doing}" if self._iteration else doing

    async def tick(self) -> None:
        """Keeps the seconds moving, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.show()

    def _now(self, doing: str) -> None:
        self._doing, self._since = doing, self._clock()


class Live:
    """The model's text as it comes, dimmed, on the terminal; taken away when the reply is over.

    Only when a turn has ended is it known that a text was its answer and not a call.
    """

    def __init__(self, console: Console, redactor: Redactor, progress: Progress) -> None:
        self._console = console
        self._redactor = redactor
        self._progress = progress
        self._stream = redactor.stream()
        self._shown = ""

    def text(self, piece: str) -> None:
        """A piece of the reply."""
        self._progress.paused = True
        self._show(self._stream.feed(piece))

    def restart(self) -> None:
        """The reply begins again."""
        self.end()

    def listen(self, event: Event) -> None:
        """A reply that is complete is taken away."""
        if event.type in {"model.replied", "turn.finished"}:
            self.end()

    def end(self) -> None:
        """Takes the text away, as far as the terminal still shows it."""
        self._progress.paused = False
        self._stream = self._redactor.stream()
        if not self._shown:
            return
        columns, lines = size()
        taken = rows(self._shown, columns)
        if taken < lines:
            up = f"\x1b[{taken - 1}A" if taken > 1 else ""
            self._console.say(f"\r{up}\x1b[J")
        else:
            self._console.say("\n")
        self._shown = ""

    def _show(self, text: str) -> None:
        if text:
            clean = safe(text).replace("\t", "    ")
            self._shown += clean
            self._console.say(f"{_DIM}{clean}{_PLAIN}")


def rows(text: str, columns: int) -> int:
    """Lines of the terminal the text takes."""
    return sum(max(1, -(-width(line) // columns)) for line in text.split("\n"))


def width(line: str) -> int:
    """Cells of the terminal the line takes."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def size() -> tuple[int, int]:
    """Columns and lines of the terminal."""
    with suppress(OSError):
        found = os.get_terminal_size(2)
        return found.columns or 80, found.lines or 24
    return 80, 24

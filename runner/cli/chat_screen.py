"""The terminal of a conversation: lines that stay, a few that are drawn over, text as it comes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from .console import Console
from .progress import rows, size, width
from .text import one_line, safe

Part = tuple[str, str]  # style, text
Line = Sequence[Part]
_CODES = {
    "": "", "dim": "\x1b[2m", "bold": "\x1b[1m", "red": "\x1b[31m", "green": "\x1b[32m",
    "yellow": "\x1b[33m", "cyan": "\x1b[36m",
}  # fmt: skip
_PLAIN = "\x1b[0m"
_PLAIN_COLUMNS = 240
_ELLIPSIS = "…"


class Screen:
    """Writes to stderr. `animated`: the last lines may be drawn over. Used from one thread at a time.

    `typing` gives the prompt and what was typed, while somebody types: a line that comes then
    goes above it.
    """

    def __init__(self, console: Console, *, animated: bool) -> None:
        self._console = console
        self.animated = animated
        self._colour = animated and "NO_COLOR" not in os.environ
        self._drawn = 0
        self._streamed = ""
        self._style = ""
        self._lock = threading.RLock()
        self.typing: Callable[[], str] | None = None

    def line(self, *parts: Part | str) -> None:
        """A line that stays; cut to the terminal's width."""
        with self._lock:
            self._above(self.rendered(_parts(parts)) + "\n")

    def text_of(self, line: Line) -> None:
        """A line that stays, whole, however many rows it takes."""
        with self._lock:
            self._above("".join(self._styled(s, one_line(text)) for s, text in line) + "\n")

    def draw(self, lines: Sequence[Line]) -> None:
        """Puts these lines in the place of those drawn before; none takes them away."""
        with self._lock:
            if not self.animated or self.typing is not None or self._streamed:
                return
            room = max(1, size()[1] // 2)
            if len(lines) > room:
                more = len(lines) - room + 1
                lines = [*lines[: room - 1], [("dim", f"  … and {more} more")]]
            text = "\n".join(self.rendered(line) for line in lines)
            if text or self._drawn:
                self._console.say(self._away() + text)
            self._drawn = len(lines)

    def stream(self, text: str, style: str = "") -> None:
        """Text of the model as it comes."""
        clean = safe(text).replace("\t", "    ")
        if not clean:
            return
        with self._lock:
            start = self._away()
            self._drawn = 0
            if style != self._style and self._streamed:
                start += "" if self._streamed.endswith("\n") else "\n"
                self._streamed += "" if self._streamed.endswith("\n") else "\n"
            self._style = style
            if not self._streamed:
                clean = clean.lstrip("\n")
            self._streamed += clean
            self._console.say(start + self._styled(style, clean))

    def keep(self) -> None:
        """What was streamed stays."""
        with self._lock:
            if self._streamed and not self._streamed.endswith("\n"):
                self._console.say("\n")
            self._streamed = self._style = ""

    def take_away(self) -> None:
        """What was streamed goes again, as far as the terminal still shows it."""
        with self._lock:
            if not self._streamed:
                return
            columns, lines = size()
            taken = rows(self._streamed, columns)
            if taken < lines:
                up = f"\x1b[{taken - 1}A" if taken > 1 else ""
                self._console.say(f"\r{up}\x1b[J")
                self._streamed = self._style = ""
            else:
                self.keep()

    def rendered(self, line: Line) -> str:
        """A line with its styles, no wider than the terminal."""
        room = size()[0] - 1 if self._console.err_is_terminal else _PLAIN_COLUMNS
        out = []
        for style, raw in line:
            text = one_line(raw)
            if width(text) > room:
                text = _clipped(text, room)
                out.append(self._styled(style, text))
                break
            room -= width(text)
            out.append(self._styled(style, text))
        return "".join(out)

    def _above(self, text: str) -> None:
        if self._streamed:
            self.keep()
        if self.typing is not None:
            self._console.say(f"\r\x1b[J{text}{self.typing()}")
        else:
            self._console.say(self._away() + text)
            self._drawn = 0

    def _away(self) -> str:
        if not self._drawn:
            return ""
        up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
        return f"\r{up}\x1b[J"

    def _styled(self, style: str, text: str) -> str:
        return f"{_CODES[style]}{text}{_PLAIN}" if style and text and self._colour else text


def _parts(parts: Sequence[Part | str]) -> list[Part]:
    return [("", part) if isinstance(part, str) else part for part in parts]


def _clipped(text: str, room: int) -> str:
    while text and width(text) > room - 1:
        text = text[:-1]
    return text + _ELLIPSIS if room > 0 else ""

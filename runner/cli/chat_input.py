"""Where a conversation's lines come from: an editor with history and completion, or a plain pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from ..errors import SessionError
from .console import Console
from .run import MOST_BYTES

_HISTORY_LINES = 2000
_PROMPT = "› "
_MORE = "… "


class PlainInput:
    """Lines of stdin as they are; a prompt only for a person. None is the end."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def read(self) -> str | None:
        """The next line, joined with those after it while they end with a backslash."""
        lines: list[str] = []
        while True:
            if self._console.interactive:
                self._console.say("> ")
            data = sys.stdin.buffer.readline(MOST_BYTES + 1) if sys.stdin is not None else b""
            if not data:
                return "\n".join(lines) if lines else None
            if len(data) > MOST_BYTES or b"\0" in data:
                what = "holds NUL bytes" if b"\0" in data else f"is over {MOST_BYTES:,} bytes"
                raise SessionError(
                    f"a line on stdin {what}, so it is no text; nothing more is read"
                )
            line = data.decode("utf-8", "replace").rstrip("\r\n").removeprefix("\ufeff")
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    def close(self) -> None:
        """Nothing to keep."""


class EditedInput:
    """Lines edited with readline. `words` gives what may be completed now.

    The history is one file of the state folder that nobody else may read.
    """

    def __init__(self, history: Path, words: Callable[[], Iterable[str]], *, colour: bool) -> None:
        import readline  # changes what `input` does, so only where a person types

        self._readline = readline
        self._history = history
        self._words = words
        self._found: list[str] = []
        self.prompt = f"\x01\x1b[1;36m\x02{_PROMPT}\x01\x1b[0m\x02" if colour else _PROMPT
        self._now = self.prompt
        self._open_history()
        readline.set_completer(self._complete)
        readline.set_completer_delims(" \t\n\"'`(),")
        editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if editline else "tab: complete")

    def read(self) -> str | None:
        """The next line; what ends with a backslash goes on. Raises `KeyboardInterrupt` as typed."""
        lines: list[str] = []
        self._now = self.prompt
        while True:
            try:
                line = input(self._now)
            except EOFError:
                return None
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])
            self._now = _MORE

    def typed(self) -> str:
        """The prompt and what was typed behind it so far, to be drawn again."""
        prompt = self._now.replace("\x01", "").replace("\x02", "")
        return prompt + self._readline.get_line_buffer()

    def close(self) -> None:
        """Keeps the history."""
        with suppress(OSError):
            self._readline.write_history_file(self._history)

    def _open_history(self) -> None:
        readline: ModuleType = self._readline
        readline.set_history_length(_HISTORY_LINES)
        with suppress(OSError):
            self._history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._history, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
            self._history.chmod(0o600)
            readline.read_history_file(self._history)

    def _complete(self, start: str, number: int) -> str | None:
        if number == 0:
            first = self._readline.get_begidx() == 0
            self._found = [
                f"{word} "
                for word in sorted(set(self._words()))
                if word.startswith(start) and (first or not word.startswith("/"))
            ]
        return self._found[number] if number < len(self._found) else None


Input = PlainInput | EditedInput

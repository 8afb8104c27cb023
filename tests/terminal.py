"""A terminal for tests: a command in it, keys typed, and what a person would see on its screen."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

_LIMIT_S = 20.0
_ANSI = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>]")


class Terminal:
    """One process in a pseudo terminal; everything is waited for by what is shown."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: dict[str, str], columns: int = 100
    ) -> None:
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._from = 0
        self.code: int | None = None
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            os.execve(command[0], list(command), env)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.code is None:
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def type(self, text: str) -> None:
        """Types the text; what is shown from now on is new."""
        self._from = len(self.raw)
        os.write(self._fd, text.encode())

    def wait_for(self, text: str) -> str:
        """Waits until the text is among what was shown since the last typing; gives all of that."""
        until = time.monotonic() + _LIMIT_S
        while text not in plain(self.raw[self._from :]):
            if not self._read(until):
                raise AssertionError(f"{text!r} was never shown in {plain(self.raw)!r}")
        return plain(self.raw[self._from :])

    def wait_for_prompt(self, prompt: str = "› ") -> None:
        """Waits until the prompt is the last thing on the screen."""
        until = time.monotonic() + _LIMIT_S
        while not plain(self.raw).endswith(prompt):
            if not self._read(until):
                raise AssertionError(f"no prompt at the end of {plain(self.raw)!r}")

    def end(self) -> int:
        """Waits for the process; its exit code."""
        until = time.monotonic() + _LIMIT_S
        while self._read(until):
            pass
        if time.monotonic() >= until:
            raise AssertionError(f"it has not ended; it showed {plain(self.raw)!r}")
        self.code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self.code

    def _read(self, until: float) -> bool:
        left = until - time.monotonic()
        if left <= 0 or not select.select([self._fd], [], [], left)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += self._decoder.decode(data)
        return bool(data)


def plain(raw: str) -> str:
    """The text without what moves the cursor or sets colours."""
    return _ANSI.sub("", raw)

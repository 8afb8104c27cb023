"""Where output goes: the answer alone to the real stdout, all else to stderr, nothing raw."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO, Any, Self

from ..errors import ConfigError
from .text import dump, one_line, safe

_ERASE = "\r\x1b[2K"


class Console:
    """One command's streams. A stream that is closed or cannot show a text never stops the command.

    `out` is the asked-for output, `err` everything else. Both take text that is safe already;
    the methods make it so.
    """

    def __init__(self, out: IO[str], err: IO[str]) -> None:
        self.out = out
        self.err = err
        self.quiet = False
        self._status = False

    @classmethod
    def taking_stdout(cls) -> Self:
        """Keeps the real stdout for itself; from now on fd 1 is stderr for everybody else.

        So neither a library, a skill nor a program that one of them starts can write there.
        """
        out, err = sys.stdout, sys.stderr
        out.flush()
        encoding = getattr(out, "encoding", None) or "utf-8"
        private = os.dup(1)
        os.dup2(2, 1)
        # a new object: the old one believes in the file it was opened on, and asks where in it we are
        sys.stdout = open(  # noqa: SIM115 - a descriptor, open to the end
            1, "w", encoding=encoding, errors="backslashreplace", buffering=1, closefd=False
        )
        with suppress(AttributeError):
            err.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        return cls(open(private, "w", encoding=encoding, errors="replace", newline="\n"), err)  # noqa: PTH123 - a descriptor, open to the end

    @property
    def interactive(self) -> bool:
        """May a person be asked, and progress be shown?"""
        return _is_terminal(sys.stdin) and _is_terminal(self.err)

    @property
    def err_is_terminal(self) -> bool:
        """Is somebody watching stderr?"""
        return _is_terminal(self.err)

    @property
    def animated(self) -> bool:
        """Can a line on stderr be drawn over?"""
        return self.err_is_terminal and os.environ.get("TERM", "dumb") != "dumb" and not self.quiet

    @property
    def out_is_terminal(self) -> bool:
        """Is somebody watching the answer?"""
        return _is_terminal(self.out)

    def answer(self, text: str) -> None:
        """Text on stdout, ended by a newline."""
        self._write(safe(text).rstrip("\n") + "\n")

    def draw(self, text: str) -> None:
        """Text on stdout as it is; the caller made it safe, and a terminal reads it."""
        self._write(text)

    @property
    def colours(self) -> bool:
        """May the answer be coloured?"""
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
        return self.out_is_terminal and not plain

    def json(self, value: Any, *, indent: int | None = None) -> None:
        """A JSON document on stdout; where the stream cannot hold a character, its escape."""
        text = dump(value, indent=indent)
        codec = (
            str(getattr(self.out, "encoding", None) or "utf-8")
            .lower()
            .replace("-", "")
            .replace("_", "")
        )
        if codec != "utf8":
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            text = "".join(c if c.isascii() else _escape(c) for c in text)
        else:
            text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        self._write(text + "\n")

    def line(self, text: str) -> None:
        """A line on stderr."""
        self.say(safe(text) + "\n")

    def note(self, text: str) -> None:
        """A line on stderr that `-q` leaves out."""
        if not self.quiet:
            self.line(text)

    def warn(self, text: str) -> None:
        """A warning on stderr."""
        if not self.quiet:
            self.say(f"warning: {one_line(text)}\n")

    def error(self, text: str) -> None:
        """An error on stderr, each of its lines marked."""
        for line in text.splitlines() or [text]:
            self.say(f"error: {one_line(line)}\n")

    def say(self, text: str) -> None:
        """Text on stderr as it is; the caller made it safe."""
        with suppress(OSError, ValueError):  # closed or gone: nobody is listening
            self.err.write(f"{_ERASE}{text}" if self._status else text)
            self.err.flush()
        self._status = False

    @property
    def columns(self) -> int:
        """The width of the terminal the answer goes to; 0 when it goes to a file or a program."""
        return _columns() if self.out_is_terminal else 0

    def status(self, text: str) -> None:
        """A line that the next one replaces; only for a terminal. Empty: takes it away."""
        if self._status or text:
            self.say(one_line(text, _columns() - 1) if text else "")
            self._status = bool(text)

    def _write(self, text: str) -> None:
        try:
            self.out.write(text)
            self.out.flush()
        except BrokenPipeError:
            self._discard()
        except OSError as error:
            self._discard()
            self.error(f"the answer cannot be written to stdout: {error.strerror}")
            raise SystemExit(1) from error

    def _discard(self) -> None:
        """Later writes, the one at exit included, go nowhere."""
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())


def stdin_text(most: int, advice: str) -> str:
    """All of stdin, read as UTF-8 whatever the locale; empty when it is closed.

    What is not UTF-8 is replaced. Raises `ConfigError` with the advice beyond so many bytes.
    """
    if sys.stdin is None:
        return ""
    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        raise ConfigError(f"stdin holds more than {most:,} bytes; {advice}")
    return data.decode("utf-8-sig", "replace")


def open_missing_streams() -> None:
    """A stream the caller closed would lend its number to the next file that is opened."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x10000:  # noqa: PLR2004 - beyond it JSON wants two
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream is not None and stream.isatty())
    except (ValueError, OSError):
        return False

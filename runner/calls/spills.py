"""Whole results that were too long to show: one file each, read back in pages."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from pathlib import Path

from ..skill import ToolError
from .cut import before

LINE_CHARS = 2000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAX_BYTES = 64_000_000
_MAX_LISTED = 10
_TRIES = 10


class Spills:
    """The spill files of one session, named by their content: the same text is kept once.

    Files are made with mode 0600 and never through a link.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, text: str) -> str:
        """Writes the text and gives the file's name; `OSError` when it cannot be kept."""
        data = text.encode("utf-8", "replace")
        digest = hashlib.sha256(data).hexdigest()[:12]
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        where = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for number in range(_TRIES):
                name = f"result-{digest}{f'-{number}' if number else ''}.txt"
                if _wrote(where, name, data) or _read(where, name) == data:
                    return name
        finally:
            os.close(where)
        raise FileExistsError(f"no free name for a spill file in {self.folder}")

    def read(self, name: str) -> str:
        """The whole text of a spill file; `ToolError` that lists what there is otherwise."""
        short = name.removeprefix(f"{self.folder}/")
        if _NAME.fullmatch(short):
            try:
                where = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                where = -1
            if where >= 0:
                try:
                    data = _read(where, short)
                finally:
                    os.close(where)
                if data is not None:
                    return data.decode("utf-8", "replace")
        raise ToolError(f"no stored result {name[:100]!r}; {self._listed()}")

    def _listed(self) -> str:
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder))
        except OSError:
            names = []
        if not names:
            return "this session has no stored results"
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        return "stored results: " + ", ".join(names[:_MAX_LISTED]) + more


def read_page(
    folder: Path, name: str, offset: int = 1, limit: int | None = None, *, max_chars: int = 8000
) -> str:
    """Lines of a spill file from number `offset`, with where they lie and how to go on."""
    lines = numbered(Spills(folder).read(name))
    offset = max(1, offset)
    wanted = lines[offset - 1 : offset - 1 + limit if limit and limit > 0 else None]
    shown: list[str] = []
    left = max_chars
    for line in wanted:
        left -= len(line)
        if shown and left < 0:
            break
        shown.append(line)
    if not shown:
        return f"[line {offset} is after the end: the text has {len(lines)} lines]"
    last = offset + len(shown) - 1
    where = f"lines {offset}-{last} of {len(lines)}"
    if last == len(lines):
        return "".join(shown) + f"\n[{where}; this is the end]"
    return "".join(shown).removesuffix("\n") + f"\n[{where}; go on with offset={last + 1}]"


def numbered(text: str) -> list[str]:
    """The lines that offsets count, ends included; one over 2,000 characters counts as several."""
    lines: list[str] = []
    for line in text.split("\n"):
        start = 0
        while len(line) - start > LINE_CHARS:
            end = before(line, start + LINE_CHARS)
            lines.append(line[start:end])
            start = end
        lines.append(line[start:] + "\n")
    lines[-1] = lines[-1][:-1]
    return lines


def _wrote(folder: int, name: str, data: bytes) -> bool:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, 0o600, dir_fd=folder)
    except FileExistsError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    return True


def _read(folder: int, name: str) -> bytes | None:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return file.read(_MAX_BYTES)

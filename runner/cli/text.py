"""Text for a terminal: harmless whatever it holds, on one line or cut where that is wanted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

# C0 but tab and newline, DEL, C1, and what reorders a line so that it reads as something else
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_RAW_IN_JSON = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """The text with every control character spelt out; newlines and tabs stay."""
    return _CONTROL.sub(_spelt, text.replace("\r\n", "\n"))


def one_line(text: str, most: int = 0) -> str:
    """The text on one line, everything that does not print spelt out; at most `most` characters."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return line if not most or len(line) <= most else line[: most - 1] + "…"


def safe_json(text: str) -> str:
    """A JSON document in which no character acts on a terminal; its meaning is the same."""
    return _RAW_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def dump(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON for a stream."""
    import json

    return safe_json(json.dumps(value, ensure_ascii=False, default=str, indent=indent))


def table(rows: Iterable[Sequence[str]], *, gap: int = 2) -> list[str]:
    """Rows as aligned lines; the last column is as wide as it wants."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)] if cells else []
    return [
        (" " * gap)
        .join(
            cell + " " * (width - width_of(cell)) for cell, width in zip(row, widths, strict=True)
        )
        .rstrip()
        for row in cells
    ]


def width_of(text: str) -> int:
    """The columns of a terminal that the text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def seconds(duration: float) -> str:
    """A duration as people say it."""
    if duration < 10:  # noqa: PLR2004 - tenths matter only for what is short
        return f"{duration:.1f} s"
    if duration < 60:  # noqa: PLR2004
        return f"{duration:.0f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest} s"


def _spelt(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 - one byte

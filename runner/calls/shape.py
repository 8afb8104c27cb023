"""Bring a result to the size the model may see; what is cut is kept whole in a spill file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .cut import middle
from .spills import LINE_CHARS, Spills, numbered

READ_ONLY_FACTOR = 3
_PREVIEW_HEAD, _PREVIEW_TAIL = 300, 200
_MAX_JSON_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Shaped:
    """What the model sees, and the absolute path of the whole text when something was cut."""

    content: str
    spilled_to: str | None = None


class Shaper:
    """Shapes the results of one session; owns its spill folder. Never raises."""

    def __init__(self, folder: Path) -> None:
        self._spills = Spills(folder)

    def shape(
        self,
        text: str,
        *,
        quota: int,
        spill_limit: int,
        line_chars: int = LINE_CHARS,
        successful_read_only: bool = False,
    ) -> Shaped:
        """The text within its quota: long lines out, spilled when huge, else without its middle.

        `spill_limit`: characters from which a text is named instead of shown.
        """
        short = without_long_lines(text, line_chars)
        allowed = quota * (READ_ONLY_FACTOR if successful_read_only else 1)
        if len(short) <= allowed and short is text:
            return Shaped(text)
        name = self._keep(text)
        path = str(self._spills.folder.absolute() / name) if name else None
        if name and len(short) > spill_limit:
            return Shaped(_advice(text, name, min(quota, _PREVIEW_HEAD + _PREVIEW_TAIL)), path)
        if len(short) <= allowed:
            return Shaped(f"{short}\n[long lines are cut{_pointer(text, name, 1)}]", path)
        return Shaped(shortened(short, allowed // 3, text, name), path)

    def _keep(self, text: str) -> str:
        try:
            return self._spills.keep(text)
        except OSError:  # a full disk: the result is cut without a way to read the rest
            return ""


def has_long_line(text: str, line_chars: int = LINE_CHARS) -> bool:
    """Is a line among several over the limit? Microseconds for what fits anyway."""
    if len(text) <= line_chars or "\n" not in text:
        return False
    return max(map(len, text.split("\n"))) > line_chars


def without_long_lines(text: str, line_chars: int = LINE_CHARS) -> str:
    """Lines over the limit replaced by their size; one line alone and JSON are left as they are."""
    if not has_long_line(text, line_chars) or _is_json(text):
        return text
    lines = text.split("\n")
    return "\n".join(
        line if len(line) <= line_chars else f"[line truncated: {len(line)} chars]"
        for line in lines
    )


def shortened(text: str, kept: int, whole: str, name: str) -> str:
    """So many characters of each end and one line between them that says what is missing.

    `whole` is what the spill file holds, to give the offset to go on from.
    """
    cut = middle(text, kept, kept)
    at = len(numbered(cut.head)) if whole == text else cut.head_to
    return cut.joined(_pointer(whole, name, at))


def _pointer(whole: str, name: str, offset: int) -> str:
    if not name:
        return ""
    if not whole:
        return f'; the whole result: read_result("{name}")'
    return f'; go on with read_result("{name}", offset={offset})'


def _advice(text: str, name: str, preview: int) -> str:
    cut = middle(text, preview * 3 // 5, preview * 2 // 5)
    return (
        f"[too long to show: {len(text)} characters in {cut.lines} lines, kept whole in the file"
        f" {name}]\n{cut.joined()}\n"
        f'[Read it in pages: read_result("{name}", offset=1, limit=100) gives its first lines;'
        " or ask the tool for less: a narrower query, a filter, a limit.]"
    )


def _is_json(text: str) -> bool:
    if text[:1] not in "{[" or len(text) > _MAX_JSON_CHARS:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

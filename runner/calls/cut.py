"""Where a text may be cut, and what a cut leaves out."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

_MAX_CLUSTER = 64
_JOINER = "\u200d"
_EXTENDS = frozenset("\u200c\u200d\ufe0e\ufe0f")


@dataclass(frozen=True, slots=True)
class Cut:
    """A text without its middle: head and tail, and where they lie."""

    head: str
    tail: str
    left_out: int
    lines: int
    head_to: int
    tail_from: int

    def note(self, more: str = "") -> str:
        """The one line in the middle."""
        shown = (
            f"lines 1-{self.head_to} and {self.tail_from}-{self.lines} of {self.lines} are shown"
        )
        where = f"; {shown}" if self.lines > 1 else ""
        return f"[{self.left_out} characters left out here{where}{more}]"

    def joined(self, more: str = "") -> str:
        """Head, note and tail as one text."""
        before = "" if not self.head or self.head.endswith("\n") else "\n"
        return f"{self.head}{before}{self.note(more)}\n{self.tail}"


def middle(text: str, head: int, tail: int) -> Cut:
    """Keeps so many characters of each end, fewer where a character would be broken."""
    end = before(text, head)
    start = max(end, after(text, len(text) - tail))
    lines = text.count("\n") + 1
    return Cut(
        head=text[:end],
        tail=text[start:],
        left_out=start - end,
        lines=lines,
        head_to=max(1, text.count("\n", 0, end) + (text[end - 1 : end] != "\n")),
        tail_from=lines - text.count("\n", start),
    )


def before(text: str, at: int) -> int:
    """The last place not after `at` where what a reader sees as one character is not broken."""
    for place in range(at, max(0, at - _MAX_CLUSTER), -1):
        if not _joined(text, place):
            return place
    return max(0, at - _MAX_CLUSTER) if at < _MAX_CLUSTER else at


def after(text: str, at: int) -> int:
    """The first such place not before `at`."""
    for place in range(at, min(len(text), at + _MAX_CLUSTER)):
        if not _joined(text, place):
            return place
    return len(text) if at + _MAX_CLUSTER >= len(text) else at


def _joined(text: str, at: int) -> bool:
    """Do the characters around this place belong together?"""
    if at <= 0 or at >= len(text):
        return False
    left, right = text[at - 1], text[at]
    if right < "\u0300" and left < "\u0300":
        return left == "\r" and right == "\n"
    if right in _EXTENDS or left == _JOINER or unicodedata.category(right)[0] == "M":
        return True
    if "\U0001f3fb" <= right <= "\U0001f3ff" or "\U000e0020" <= right <= "\U000e007f":
        return True
    if _is_flag_half(left) and _is_flag_half(right):
        return _flag_halves_before(text, at) % 2 == 1
    return "\u1100" <= left <= "\u11ff" and "\u1160" <= right <= "\u11ff"


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flag_halves_before(text: str, at: int) -> int:
    count = 0
    while at - count > 0 and _is_flag_half(text[at - count - 1]):
        count += 1
    return count

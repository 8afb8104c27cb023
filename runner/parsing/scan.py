"""Find every balanced block of braces or brackets in one pass over the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .pattern import pattern

MAX_DEPTH = 64
MAX_BLOCKS = 256

_QUOTE = "[\"'“„‘]"
_TOKEN = pattern(rf"[{{\[](?:\s*+[rb]?({_QUOTE}))?|[}}\]]|[,:=(，：]\s*+[rb]?({_QUOTE})")
_OPENER = pattern(rf"[{{\[](?:\s*+[rb]?({_QUOTE}))?()")
_DOUBLE = pattern(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SINGLE = pattern(r"'[^'\\]*+(?:\\.[^'\\]*+)*+'(?=\s*+[,:}\]，：])", re.DOTALL)
_SMART_END = pattern(r"[”“\"](?=\s*+[,:}\]，：])")
_SINGLE_END = pattern(r"['’](?=\s*+[,:}\]，：])")
_STRUCTURAL = pattern(
    r"\{\s*+(?:[\"'“„{\[]|[A-Za-z_]\w*+\s*+[:=]|//|#|/\*|\Z)|\[\s*+(?:[{\[\"']|[a-z_.]+\(|\Z)"
)


@dataclass(frozen=True, slots=True)
class Block:
    """One balanced piece of text, `text[start:end]`. `clean`: every closer fits its opener."""

    start: int
    end: int
    clean: bool = True


@dataclass(frozen=True, slots=True)
class Scan:
    """The outermost blocks in order; `open_at` is the first opener that is never closed."""

    blocks: tuple[Block, ...] = ()
    open_at: int | None = None
    deep: bool = False
    many: bool = False

    def inside(self, position: int) -> bool:
        """Say whether the position lies within a block."""
        return any(block.start < position < block.end for block in self.blocks)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.stack: list[int] = []
        self.blocks: list[Block] = []
        self.mismatch = -1
        self.no_end: set[str] = set()

    def run(self) -> Scan:
        position = 0
        while True:
            token = (_TOKEN if self.stack else _OPENER).search(self.text, position)
            if token is None:
                return self.result()
            position = self.step(token)
            if len(self.stack) > MAX_DEPTH:
                return self.result(deep=True)
            if len(self.blocks) > MAX_BLOCKS:
                return self.result(many=True)

    def step(self, token: re.Match[str]) -> int:
        """Take one bracket, and the string that may follow it or a separator."""
        mark = token.group()[0]
        if mark in "{[":
            self.stack.append(token.start())
        elif mark in "}]":
            self.close(token.start(), mark)
        quote = token.group(1) or token.group(2)
        return self.skip_string(token.end() - 1, quote) if quote else token.end()

    def close(self, at: int, mark: str) -> None:
        start = self.stack.pop()
        if (self.text[start] == "{") != (mark == "}"):
            self.mismatch = max(self.mismatch, start)
        while self.blocks and self.blocks[-1].start > start:
            self.blocks.pop()
        clean = self.mismatch < start
        self.blocks.append(Block(start, at + 1, clean))

    def skip_string(self, at: int, quote: str) -> int:
        if quote == '"':
            whole = _DOUBLE.match(self.text, at)
            return whole.end() if whole else at + 1
        if quote in self.no_end:
            return at + 1
        exact = _SINGLE.match(self.text, at) if quote == "'" else None
        if exact is not None:
            return exact.end()
        end = (_SINGLE_END if quote in "'‘" else _SMART_END).search(self.text, at + 1)
        if end is None:
            self.no_end.add(quote)
            return at + 1
        return end.end()

    def result(self, *, deep: bool = False, many: bool = False) -> Scan:
        unclosed = (at for at in self.stack if _STRUCTURAL.match(self.text, at))
        return Scan(tuple(self.blocks), next(unclosed, None), deep, many)


def scan(text: str) -> Scan:
    """Find the outermost balanced blocks; braces within strings do not count."""
    return _Scanner(text).run()

"""How many tokens a text is, without network: counted by kinds of characters, calibrated by usage.

The weights were fitted to what two tokenizers in wide use (cl100k and o200k) make of prose, code,
data and logs in many languages, to the larger of the two and with counts that are too small
punished more: a count that is too small costs the user a failed request, one that is too large a
little room. `tests/data/tokens.json` has texts with their true counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import mul
from typing import Any

from ..types import Message

MESSAGE_TOKENS = 4  # role and separators of one message
CALL_TOKENS = 8  # what surrounds a call's name and arguments
SHORT = 64  # characters of a text whose count is remembered
SAMPLE, SLICE = 2048, 256  # longer texts are judged by slices of them, evenly spread
SAFE = 1.02

# The kind of each byte of UTF-8; the first byte of a longer character says which script it is.
_KINDS = (
    (0x00, "."), (0x09, "t"), (0x0A, "n"), (0x0B, "."), (0x0D, "n"), (0x0E, "."), (0x20, " "),
    (0x21, "."), (0x30, "0"), (0x3A, "."), (0x41, "A"), (0x5B, "."), (0x61, "a"), (0x7B, "."),
    (0x80, " "), (0xC0, "l"), (0xC4, "L"), (0xCE, "g"), (0xD0, "y"), (0xD4, "b"), (0xE0, "T"),
    (0xE2, "P"), (0xE3, "K"), (0xE4, "C"), (0xEA, "H"), (0xEE, "F"), (0xF0, "e"),
)  # fmt: skip
_KIND_OF = bytes(
    ord(next(kind for first, kind in reversed(_KINDS) if first <= byte)) for byte in range(256)
)

_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes that continue a character

# Tokens for each occurrence. Digits go by threes; rows of signs and spaces are merged.
_ASCII = tuple(zip(
    (b"a", 0.16), (b" a", 0.37), (b".a", 1.42), (b"A", 0.61), (b"AA", -0.5), (b"aA", 1.22),
    (b"0", 0.95), (b"00", -0.6), (b"000", -0.6), (b" 0", 2.15), (b".", 0.32), (b"..", -0.6),
    (b"n", 0.8), (b"t", 0.87), (b"  ", 0.22), strict=True,
))  # fmt: skip
# Besides, where there are hardly any words: letters are dear when case and digits alternate.
_DENSE = ((b"Aa", b"a0", b"0a", b"A0", b"0A"), (0.33,) * 5)
_WORD = 12  # characters without a space or a sign, on average, that make a text dense
_BEYOND = tuple(zip(
    (b"l", 1.5), (b"L", 2.82), (b"g", 1.03), (b"y", 0.56), (b"b", 0.9), (b"T", 0.89), (b"P", 0.7),
    (b"K", 1.11), (b"C", 1.08), (b"H", 1.31), (b"F", 1.5), (b"e", 2.75), strict=True,
))  # fmt: skip


def estimate(text: str) -> int:
    """Tokens of the text, uncalibrated. At least 1 for anything that is not empty."""
    if not text:
        return 0
    size = len(text)
    if size <= SHORT:
        return _short(text)
    if size > SAMPLE:
        return int(_tokens(_sample(text)) * size / SAMPLE) + 1
    return int(_tokens(text)) + 1


@lru_cache(maxsize=2048)
def _short(text: str) -> int:
    """Names, and results such as `ok`, come again and again."""
    return int(_tokens(text)) + 1


def _sample(text: str) -> str:
    step = len(text) / (SAMPLE // SLICE)
    starts = [int(step * n) for n in range(SAMPLE // SLICE)]
    return "".join([text[i : i + SLICE] for i in starts])


def _tokens(text: str) -> float:
    kinds = text.encode("utf-8", "surrogatepass").translate(_KIND_OF, _CONTINUATION)
    count = kinds.count
    total = _weighed(count, _ASCII)
    if not text.isascii():
        total += _weighed(count, _BEYOND)
    if (count(b" ") + count(b".") + count(b"n")) * _WORD < len(kinds):
        total += _weighed(count, _DENSE)
    return SAFE * total


def _weighed(count: Callable[[bytes], int], table: Sequence[Sequence[Any]]) -> float:
    kinds, weights = table
    return float(sum(map(mul, map(count, kinds), weights)))


def of_message(message: Message) -> int:
    """Tokens of one message with its calls."""
    total = MESSAGE_TOKENS + estimate(message.content)
    for call in message.tool_calls:
        total += CALL_TOKENS + estimate(call.name) + estimate(str(call.arguments))
    return total


class Calibration:
    """What the provider's own counts teach about ours.

    The last reply anchors the count: what it covered is known, only what came since is estimated.
    A context that was compacted has no anchor until the next reply; then what the server's template
    adds unseen, learned from the first reply, and a factor stand in. The factor moves up at once
    and down slowly, never below our own count: too small a count costs the user a failed request.
    """

    MOST, LEAST = 2.0, 1.0  # of the factor
    SAYING = 50  # tokens below which a count says nothing
    NEVER = 0.35  # of our count: no tokenizer is so much better, so less was counted
    CUT, CLEARLY_CUT = 0.7, 0.4  # of what was expected, after and before the first reply
    UNSEEN = 1024  # tokens at most that a template is believed to add
    LARGE = 1024  # tokens a first request must have to be called clearly cut

    def __init__(self) -> None:
        self.factor = 1.0
        self._anchor: tuple[int, int] | None = None
        self._unseen: int | None = None

    def tokens(self, estimated: int) -> int:
        """The calibrated count."""
        if self._anchor is not None and estimated >= self._anchor[0]:
            return self._anchor[1] + int((estimated - self._anchor[0]) * self.factor)
        return int(estimated * self.factor) + (self._unseen or 0)

    def raw(self, tokens: int) -> int:
        """How much by our own count may be kept so that it is so many tokens at most."""
        return int((tokens - (self._unseen or 0)) / self.factor)

    def learn(self, estimated: int, reported: int) -> None:
        """After a reply: what we had estimated for the request, and what the provider counted."""
        if min(estimated, reported) < self.SAYING or reported < self.NEVER * estimated:
            return
        if self._unseen is None:
            self._unseen = min(self.UNSEEN, max(0, reported - estimated))
        ratio = min(self.MOST, max(self.LEAST, (reported - self._unseen) / estimated))
        self.factor = ratio if ratio > self.factor else self.factor + 0.3 * (ratio - self.factor)
        self._anchor = (estimated, reported)

    def forget(self) -> None:
        """The context is no longer what was counted, but a part of it."""
        self._anchor = None

    def was_cut(self, estimated: int, reported: int) -> bool:
        """Whether the server evidently evaluated only a part of the prompt it was sent."""
        if reported < self.SAYING:
            return False
        if self._anchor is None or estimated < self._anchor[0]:
            return estimated >= self.LARGE and reported < self.CLEARLY_CUT * estimated
        new = estimated - self._anchor[0]
        if reported <= 1.5 * new + self.SAYING < self._anchor[1]:
            return False  # a server that counts only what its cache did not hold
        least = self._anchor[1] + self.NEVER * new
        return reported < min(0.95 * least, self.CUT * self.tokens(estimated))

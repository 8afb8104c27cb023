"""How many tokens a text is, without network: counted by character class, calibrated by usage."""

from __future__ import annotations

from ..types import Message

# Characters per token. Sources: 760 English characters are 131 tokens of cl100k where 4.0 would give
# 190; 350 Chinese characters are 270 (o200k) to 310 (cl100k). Code and JSON are denser than prose.
PROSE = 4.2
DENSE = 3.0
NARROW_TOKENS = 0.55  # a character of two UTF-8 bytes: Latin with marks, Greek, Cyrillic, Arabic …
WIDE_TOKENS = 0.95  # of three: CJK, kana, hangul
RARE_TOKENS = 2.0  # of four: emoji, rare signs
PROSE_MARKS = 0.12  # prose has at most this share of punctuation and digits
MESSAGE_TOKENS = 4  # role and separators of one message
_SAMPLE = 4096
_MARKS = b'"{}:,()[]=_/\\\n0123456789'


def estimate(text: str) -> int:
    """Tokens of the text, uncalibrated. At least 1 for anything that is not empty."""
    if not text:
        return 0
    if text.isascii():
        return int(_ascii_tokens(text)) + 1
    ascii_part = text.encode("ascii", "ignore")
    others = len(text) - len(ascii_part)
    width = (len(text.encode("utf-8", "surrogatepass")) - len(ascii_part)) / others
    if width <= 3:  # noqa: PLR2004 - bytes of a CJK character
        each = NARROW_TOKENS + (width - 2) * (WIDE_TOKENS - NARROW_TOKENS)
    else:
        each = WIDE_TOKENS + (width - 3) * (RARE_TOKENS - WIDE_TOKENS)
    return int(_ascii_tokens(ascii_part.decode("ascii")) + others * each) + 1


def of_message(message: Message) -> int:
    """Tokens of one message with its calls."""
    total = MESSAGE_TOKENS + estimate(message.content)
    for call in message.tool_calls:
        total += 8 + estimate(f"{call.name} {call.arguments}")
    return total


def _ascii_tokens(text: str) -> float:
    sample = text[:_SAMPLE].encode("ascii", "replace")
    spaces = sample.count(b" ")
    marks = len(sample) - len(sample.translate(None, _MARKS))
    share = marks / len(sample) if sample else 0.0
    prose = spaces * 8 > len(sample) and share < PROSE_MARKS
    return len(text) / (PROSE if prose else DENSE)


class Calibration:
    """The factor between our count and the provider's, learned from the usage it reports.

    Moves up at once and down slowly: a count that is too small costs the user a failed request.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self._seen = False

    def learn(self, estimated: int, reported: int) -> None:
        """After a reply: what we had estimated for the request, and what the provider counted."""
        if estimated < 50 or reported < 50:  # noqa: PLR2004 - too small to say anything
            return
        ratio = min(4.0, max(0.25, reported / estimated))
        if ratio > self.factor or not self._seen:
            self.factor = ratio
        else:
            self.factor += 0.3 * (ratio - self.factor)
        self._seen = True

    def tokens(self, estimated: int) -> int:
        """The calibrated count."""
        return int(estimated * self.factor)

"""When two calls, or two results, are the same: without what changes by itself.

Results are compared without timestamps, durations with a unit, UUIDs, memory addresses and long hex
ids; bare numbers and percentages stay, because they are what progress looks like. Arguments are
compared without timestamps, nonces and ids, unless the argument's name says that it is what the
call is about (`path`, `order_id`) or that it bounds a range (`since`, `until`).
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import compress, count
from operator import ne
from typing import Literal

from ..types import JSON

COMPARED = 2000  # characters of canonical text that similarity looks at
SHORT = 128  # characters up to which looking at one after the other is quicker than halving
LONG = 300  # characters above which a differing part is compared by words
AROUND = 64  # characters beside a difference that may belong to the same timestamp or id
GONE = "~"

# Each token begins with a digit or a hex letter, which is consumed first: what follows looks back
# at it. A leading character class lets the search skip quickly to where a token may begin.
_FIRST = r"[0-9a-fA-F](?<!\w.)"
_TIMESTAMP = (
    r"(?<=\d)\d{3}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?Z|[+-]\d\d:?\d\d)?"
    r"|(?<=\d)\d{7}T\d{6}Z?"
    r"|(?<=\d)\d?:\d\d:\d\d(?:[.,]\d+)?\b"
)
_DURATION = (
    r"(?<=\d)\d*h ?\d+m(?: ?\d+(?:\.\d+)?s)?\b|(?<=\d)\d*m ?\d+(?:\.\d+)?s\b"
    r"|(?<=\d)\d*(?:[.,]\d+)? ?(?:ns|µs|us|ms|msecs?|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?)\b"
)
_ID = (
    r"[0-9a-fA-F]{7}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|(?<=0)x[0-9a-fA-F]{4,}\b"
    r"|(?:(?<=\d)(?=\d*[a-fA-F])|(?<=[a-fA-F])(?=[a-fA-F]*\d))[0-9a-fA-F]{11,}\b"
)
_IN_RESULTS = re.compile(f"{_FIRST}(?:{_TIMESTAMP}|{_DURATION}|{_ID})")
_IN_ARGUMENTS = re.compile(f"{_FIRST}(?:{_TIMESTAMP}|{_ID})")
_TIMESTAMPS = re.compile(f"{_FIRST}(?:{_TIMESTAMP})")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_EPOCH = (1_000_000_000, 10_000_000_000_000)  # seconds or milliseconds of a clock

_CLOCK = frozenset({"ts", "timestamp", "now"})
_NONCE = frozenset({"nonce", "salt", "rand", "random", "cachebuster", "cachebust"})
_REQUEST = frozenset(
    {"request", "req", "trace", "span", "correlation", "call", "invocation", "idempotency"}
)
_RANGE = frozenset(
    [
        "start",
        "end",
        "since",
        "until",
        "from",
        "to",
        "before",
        "after",
        "begin",
        "date",
        "day",
        "due",
        "deadline",
    ]
)
_SUBJECT = frozenset(
    [
        "path",
        "file",
        "filename",
        "url",
        "uri",
        "sha",
        "commit",
        "hash",
        "digest",
        "ref",
        "rev",
        "revision",
        "key",
    ]
)
_IDENTITY = frozenset({"id", "ids", "uuid", "guid", "key"})
Role = Literal["clock", "nonce", "range", "subject", "plain"]


def normalised(text: str) -> str:
    """The result without what changes from call to call and is not progress."""
    return _IN_RESULTS.sub(GONE, text)


def same_text(a: str, b: str) -> bool:
    """Whether two results are equal once normalised. Looks only at where they differ."""
    if a == b:
        return True
    if len(a) + len(b) < 4 * AROUND:
        return normalised(a) == normalised(b)
    start = shared_start(a, b)
    end = min(_shared_end(a, b), min(len(a), len(b)) - start)
    from_, to = max(0, start - AROUND), max(0, end - AROUND)
    return normalised(a[from_ : len(a) - to]) == normalised(b[from_ : len(b) - to])


def steady(arguments: JSON) -> JSON:
    """The arguments without timestamps, nonces and ids. An id that is all there is, stays."""
    without = {name: _steady(name, value, ids=False) for name, value in arguments.items()}
    if any(value != GONE for value in without.values()):
        return without
    return {name: _steady(name, value, ids=True) for name, value in arguments.items()}


def similar(a: str, b: str, least: float) -> bool:
    """Whether two canonical texts are alike to at least that share of their characters."""
    a, b = a[:COMPARED], b[:COMPARED]
    whole = len(a) + len(b)
    start = shared_start(a, b)
    end = min(_shared_end(a, b), min(len(a), len(b)) - start)
    shared = 2 * (start + end)
    if shared >= least * whole:
        return True
    a, b = a[start : len(a) - end], b[start : len(b) - end]
    if shared + 2 * min(len(a), len(b)) < least * whole:
        return False
    return shared + _matched(a, b) >= least * whole


def reworded(a: JSON, b: JSON) -> bool:
    """Whether arguments differ in plain words only, so that they cannot mean another thing."""
    if a.keys() != b.keys():
        return False
    return all(_reworded(a[name], b[name]) for name in a if a[name] != b[name])


def shared_start(a: str, b: str) -> int:
    """How many characters two texts have in common at their beginning."""
    low, high = 0, min(len(a), len(b))
    if high <= SHORT:
        return next(compress(count(), map(ne, a, b)), high)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _shared_end(a: str, b: str) -> int:
    low, high = 0, min(len(a), len(b))
    if high <= SHORT:
        return shared_start(a[::-1], b[::-1])
    while low < high:
        middle = (low + high + 1) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _matched(a: str, b: str) -> float:
    """Characters of both that match, in order; by words where characters would take long."""
    if max(len(a), len(b)) <= LONG:
        return SequenceMatcher(None, a, b, autojunk=False).ratio() * (len(a) + len(b))
    words_a, words_b = Counter(a.split()), Counter(b.split())
    return 2.0 * sum((len(w) + 1) * n for w, n in (words_a & words_b).items())


def _steady(name: str, value: object, *, ids: bool) -> object:
    role = _role(name)
    if isinstance(value, str):
        if role in {"clock", "nonce"}:
            return GONE
        if role == "range":
            return value
        keep_ids = ids or role == "subject"
        return (_TIMESTAMPS if keep_ids else _IN_ARGUMENTS).sub(GONE, value)
    if isinstance(value, dict):
        return {key: _steady(key, part, ids=ids) for key, part in value.items()}
    if isinstance(value, list):
        return [_steady(name, part, ids=ids) for part in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_clock = role == "clock" and _EPOCH[0] <= value < _EPOCH[1]
        return GONE if is_clock or role == "nonce" else value
    return value


@lru_cache(maxsize=512)
def _role(name: str) -> Role:
    """What an argument's name says about how its value changes."""
    words = [w for w in _HUMP.sub("_", name).lower().split("_") if w]
    if _NONCE & set(words) or (len(words) > 1 and words[-2] in _REQUEST and words[-1] in _IDENTITY):
        return "nonce"
    if _CLOCK & set(words):
        return "clock"
    if _RANGE & set(words):
        return "range"
    if words and (words[-1] in _SUBJECT or (len(words) > 1 and words[-1] in _IDENTITY)):
        return "subject"
    return "plain"


def _reworded(a: object, b: object) -> bool:
    if not (isinstance(a, str) and isinstance(b, str) and " " in a and " " in b):
        return False
    return all(word.isalpha() for word in set(a.split()) ^ set(b.split()))

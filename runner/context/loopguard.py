"""Notices a model that goes round in circles: notice, then refuse, then stop.

Works on rounds: the calls of one reply with their results. Results that change, and changes in the
workspace, are progress. Counters live for one turn and know nothing of compaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

from ..calls.keys import canonical
from ..types import JSON, KIND_RULES, Kind, ToolResult

Form = Literal["identical", "similar", "cycle"]
LONGEST_CYCLE = 4
_COMPARED = 2000  # characters of canonical text that similarity looks at

# What changes from call to call without meaning progress. Bare numbers and percentages stay.
_VOLATILE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"  # timestamps
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
    r"|\b\d+(?:[.,]\d+)? ?(?:ns|µs|us|ms|s|sec|secs|seconds?|min|minutes?|h|hours?)\b"  # durations
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"  # UUIDs
    r"|\b0x[0-9a-fA-F]{4,}\b"  # addresses
    r"|\b(?=[0-9a-fA-F]*\d)(?=[0-9]*[a-fA-F])[0-9a-fA-F]{12,}\b"  # long hex ids
)
_VOLATILE_NAME = re.compile(
    r"(?:^|_)(?:ts|time|timestamp|date|now|nonce|uuid|guid|seed|trace|request_?id|call_?id)(?:$|_)",
    re.IGNORECASE,
)
_EPOCH = range(1_000_000_000, 10_000_000_000_000)  # seconds or milliseconds of a clock


@lru_cache(maxsize=64)
def normalised(text: str) -> str:
    """The text without timestamps, durations with a unit, UUIDs, addresses and long hex ids."""
    return _VOLATILE.sub("~", text)


def steady(arguments: JSON) -> JSON:
    """The arguments without what changes by itself: timestamps, nonces and ids."""
    return {name: _steady(name, value) for name, value in arguments.items()}


def _steady(name: str, value: object) -> object:
    if isinstance(value, dict):
        return steady(value)
    if isinstance(value, str):
        return "~" if _VOLATILE_NAME.search(name) else normalised(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "~" if _VOLATILE_NAME.search(name) and value in _EPOCH else value
    return value


@dataclass(slots=True)
class Round:
    """One reply's calls and, once they ended, what came of them."""

    calls: tuple[tuple[str, JSON], ...]
    text: str = ""  # a reply whose call could not be read at all
    results: tuple[tuple[Kind, str], ...] = ()
    progressed: bool = False
    exact: str = field(default="", init=False)
    _steady: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.exact = self.text or "\n".join(
            f"{name} {canonical(args)}" for name, args in self.calls
        )

    @property
    def stable(self) -> str:
        if self._steady is None:
            self._steady = self.text or "\n".join(
                f"{name} {canonical(steady(args))}" for name, args in self.calls
            )
        return self._steady

    @property
    def tools(self) -> str:
        return (
            ", ".join(dict.fromkeys(name for name, _ in self.calls)) or "a call that cannot be read"
        )

    def same_outcome(self, other: Round) -> bool:
        """The same results, nothing changed. Rounds the guard itself refused always match."""
        if self.progressed or other.progressed or len(self.results) != len(other.results):
            return False
        return all(_same(a, b) for a, b in zip(self.results, other.results, strict=True))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the guard makes of a round."""

    action: Literal["go_on", "notice", "refuse", "stop"] = "go_on"
    form: Form = "identical"
    count: int = 0
    tools: str = ""
    text: str = ""


GO_ON = Verdict()


class LoopGuard:
    """One turn's guard. `before` looks ahead and may refuse; `after` looks back."""

    def __init__(
        self, *, warn: int = 2, refuse: int = 4, stop: int = 6, similarity: float = 0.9
    ) -> None:
        self._warn, self._refuse, self._stop = warn, refuse, stop
        self._similarity = similarity
        self._rounds: list[Round] = []
        self._alike = 1  # rounds in a row that are nearly the same, for the notice only

    def before(self, calls: Sequence[tuple[str, JSON]], *, repeatable: bool = False) -> Verdict:
        """Would running these calls repeat a loop that was noticed already?"""
        if repeatable or not self._rounds:
            return GO_ON
        wanted = Round(tuple(calls))
        for period in range(1, LONGEST_CYCLE + 1):
            if len(self._rounds) < period or not _equal_calls(self._rounds[-period], wanted):
                continue
            count = (
                self._count(self._rounds, period) + 1 if period == 1 else self._cycles(period) + 1
            )
            if count >= self._refuse:
                form = self._form(self._rounds, period)
                return Verdict(
                    "refuse", form, count, wanted.tools, _refusal(wanted.tools, form, count)
                )
        return GO_ON

    def after(
        self,
        calls: Sequence[tuple[str, JSON]],
        results: Sequence[ToolResult],
        *,
        repeatable: bool = False,
        text: str = "",
    ) -> Verdict:
        """Counts the round that just ended and says what follows."""
        now = Round(
            tuple(calls),
            text=text,
            results=tuple((r.kind, r.content) for r in results),
            progressed=any(r.changes for r in results),
        )
        near = bool(self._rounds) and self._near(self._rounds[-1], now)
        self._alike = self._alike + 1 if near else 1
        self._rounds.append(now)
        del self._rounds[: -LONGEST_CYCLE * (self._stop + 1)]
        for period in range(1, LONGEST_CYCLE + 1):
            count = self._count(self._rounds, 1) if period == 1 else self._cycles(period)
            if count >= self._warn:
                return self._judged(now, period, count, repeatable=repeatable)
        if self._alike == self._warn:
            notice = _notice([now], "similar", self._alike)
            return Verdict("notice", "similar", self._alike, now.tools, notice)
        return GO_ON

    def _judged(self, now: Round, period: int, count: int, *, repeatable: bool) -> Verdict:
        form = self._form(self._rounds, period)
        loop = self._rounds[-period:]
        tools = ", ".join(dict.fromkeys(r.tools for r in loop))
        complete = period == 1 or self._cycles(period) > self._cycles(period, skip=1)
        if count >= self._stop and not repeatable:
            return Verdict("stop", form, count, tools)
        if count == self._warn and complete:
            return Verdict("notice", form, count, tools, _notice(loop, form, count))
        return Verdict("go_on", form, count, tools)

    def _form(self, rounds: Sequence[Round], period: int) -> Form:
        if period > 1:
            return "cycle"
        alike = len(rounds) < 2 or rounds[-1].exact == rounds[-2].exact  # noqa: PLR2004
        return "identical" if alike else "similar"

    def _count(self, rounds: Sequence[Round], period: int) -> int:
        """How many rounds in a row, counted from the last, are the same without progress."""
        count = 1
        while count * period < len(rounds) and _repeats(rounds[-count], rounds[-count - 1]):
            count += 1
        return count

    def _cycles(self, period: int, skip: int = 0) -> int:
        """How many times the last `period` rounds, taken together, came in a row."""
        rounds = self._rounds[: len(self._rounds) - skip]
        if len(rounds) < 2 * period or self._count(rounds[-period:], 1) == period:
            return 1
        matched = 0
        while matched + period < len(rounds) and _repeats(
            rounds[-1 - matched], rounds[-1 - matched - period]
        ):
            matched += 1
        return matched // period + 1

    def _near(self, a: Round, b: Round) -> bool:
        if [n for n, _ in a.calls] != [n for n, _ in b.calls]:
            return False
        return self._similar(a.stable[:_COMPARED], b.stable[:_COMPARED]) and a.same_outcome(b)

    def _similar(self, a: str, b: str) -> bool:
        shared = _shared_start(a, b) + _shared_start(a[::-1], b[::-1])
        if 2 * shared >= self._similarity * (len(a) + len(b)):
            return True  # a lower bound of the ratio, and much cheaper
        matcher = SequenceMatcher(None, a, b, autojunk=False)
        return matcher.quick_ratio() >= self._similarity and matcher.ratio() >= self._similarity


def _equal_calls(a: Round, b: Round) -> bool:
    if a.exact == b.exact:
        return True
    return [n for n, _ in a.calls] == [n for n, _ in b.calls] and a.stable == b.stable


def _repeats(a: Round, b: Round) -> bool:
    return _equal_calls(a, b) and a.same_outcome(b)


def _same(a: tuple[Kind, str], b: tuple[Kind, str]) -> bool:
    if Kind.LOOP_REFUSED in (a[0], b[0]):
        return True
    if a[0] is not b[0]:
        return False
    if KIND_RULES[a[0]].ran == "no" and a[0] is not Kind.INVALID_ARGUMENTS:
        return True  # a refusal's text may count seconds; its kind says all
    return a[1] == b[1] or normalised(a[1]) == normalised(b[1])


def _notice(loop: Sequence[Round], form: Form, count: int) -> str:
    shown = (
        "; then ".join(f"{n} {canonical(a)[:200]}" for r in loop for n, a in r.calls)
        or loop[0].text[:200]
    )
    how = {
        "identical": "You just did this",
        "similar": "You just did nearly the same call",
        "cycle": "You are repeating these steps",
    }[form]
    return (
        f"[Loop notice] {how} ({count} times, with the same result): {shown}. Doing it again will "
        "give the same result. Use what you have: answer now, or call another tool or use clearly "
        "different arguments."
    )


def _refusal(tools: str, form: Form, count: int) -> str:
    what = "these steps" if form == "cycle" else "this same call"
    return (
        f"not run: {what} ({tools}) came {count} times in a row without anything new. Its result is "
        "above and has not changed. Answer with what you have, or say what is missing."
    )


def _shared_start(a: str, b: str) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))

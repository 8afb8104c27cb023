"""Notices a model that goes round in circles: notice, then refuse, then stop.

Works on rounds: the calls of one reply with their results. Results that change, and changes in the
workspace, are progress. Counters live for one turn and know nothing of compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..calls.keys import canonical
from ..types import JSON, KIND_RULES, Kind, ToolResult
from .sameness import reworded, same_text, similar, steady

Form = Literal["identical", "similar", "cycle"]
Calls = Sequence[tuple[str, JSON]]
LONGEST_CYCLE = 4
SHOWN_CHARS = 200  # of a call, in a notice
NOTICE_CHARS = 800  # of all calls of a loop


@dataclass(slots=True)
class Round:
    """One reply's calls and, once they ended, what came of them. Their order does not matter."""

    calls: list[tuple[str, JSON]]
    text: str = ""  # a reply whose call could not be read at all
    results: tuple[tuple[Kind, str], ...] = ()
    progressed: bool = False
    exact: str = field(default="", init=False)
    stable: str = field(default="", init=False)  # without what changes by itself
    names: tuple[str, ...] = field(default=(), init=False)
    _order: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        lines = [f"{name} {canonical(arguments)}" for name, arguments in self.calls]
        if len(lines) > 1:
            self._order = sorted(range(len(lines)), key=lines.__getitem__)
            self.calls = [self.calls[i] for i in self._order]
            lines = [lines[i] for i in self._order]
        self.exact = self.text or "\n".join(lines)
        self.names = tuple([name for name, _ in self.calls])
        plain = [(name, steady(arguments)) for name, arguments in self.calls]
        if plain == self.calls:
            self.stable = self.exact
        else:
            self.stable = "\n".join(f"{name} {canonical(arguments)}" for name, arguments in plain)

    def ended(self, results: Sequence[ToolResult]) -> None:
        """Takes the results; `results[i]` belongs to the i-th call as the model made them."""
        in_order = [results[i] for i in self._order] if self._order else results
        self.results = tuple([(r.kind, r.content) for r in in_order])
        self.progressed = any(r.changes for r in results)

    @property
    def tools(self) -> str:
        """The tools' names, each once."""
        return ", ".join(dict.fromkeys(self.names)) or "a call that cannot be read"

    def same_outcome(self, other: Round) -> bool:
        """The same results, nothing changed. Rounds the guard itself refused always match."""
        if self.progressed or other.progressed or len(self.results) != len(other.results):
            return False
        return self.results == other.results or all(map(_same, self.results, other.results))


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
        self._warn, self._refuse, self._stop = (max(2, n) for n in (warn, refuse, stop))
        self._similarity = similarity
        self._matched = dict.fromkeys(range(1, LONGEST_CYCLE + 1), 0)
        self._rounds: list[Round] = []
        self._noticed: set[frozenset[str]] = set()
        self._alike = 1  # rounds in a row that are nearly the same, for the notice only
        self._wanted: tuple[Calls, Round] | None = None

    def before(self, calls: Calls, *, repeatable: bool = False) -> Verdict:
        """Would running these calls repeat a loop that was noticed already?"""
        wanted = Round(list(calls))
        self._wanted = (calls, wanted)
        if repeatable or max(self._matched.values()) + 2 < self._refuse:
            return GO_ON
        for period, matched in self._matched.items():
            count = matched // period + 2
            if count < self._refuse or period > len(self._rounds):
                continue
            if wanted.stable == self._rounds[-period].stable:
                form = _form(wanted, self._rounds[-period], period)
                text = _refusal(wanted.tools, form, count)
                return Verdict("refuse", form, count, wanted.tools, text)
        return GO_ON

    def after(
        self,
        calls: Calls,
        results: Sequence[ToolResult],
        *,
        repeatable: bool = False,
        text: str = "",
    ) -> Verdict:
        """Counts the round that just ended and says what follows."""
        now = self._round(calls, text)
        now.ended(results)
        last = self._rounds[-1] if self._rounds else None
        self._alike = self._alike + 1 if last is not None and self._near(last, now) else 1
        if now.progressed:
            self._noticed.clear()
        self._match(now)
        self._rounds.append(now)
        del self._rounds[: -LONGEST_CYCLE - 1]
        loops = self._loops() if any(self._matched.values()) else []
        for count, period in loops:
            verdict = self._judged(now, period, count, repeatable=repeatable)
            if verdict.action != "go_on":
                return verdict
        return GO_ON if loops else self._near_verdict(last, now, repeatable=repeatable)

    def _round(self, calls: Calls, text: str) -> Round:
        wanted, self._wanted = self._wanted, None
        if wanted is not None and wanted[0] is calls and not text:
            return wanted[1]
        return Round(list(calls), text=text)

    def _judged(self, now: Round, period: int, count: int, *, repeatable: bool) -> Verdict:
        loop = self._rounds[-period:]
        form = _form(now, self._rounds[-period - 1], period)
        tools = ", ".join(dict.fromkeys(name for r in loop for name in r.names)) or now.tools
        if count >= self._stop and not repeatable:
            return Verdict("stop", form, count, tools)
        key = frozenset(r.stable for r in loop)
        if key in self._noticed:
            return GO_ON  # the model was told, and nothing has changed since
        self._noticed.add(key)
        text = _notice(loop, form, count, repeatable=repeatable)
        return Verdict("notice", form, count, tools, text)

    def _near_verdict(self, last: Round | None, now: Round, *, repeatable: bool) -> Verdict:
        """Nearly the same is noticed once; one round later when it may be another thing."""
        if last is None or not self._warn <= self._alike <= self._warn + 1:
            return GO_ON
        pairs = zip(last.calls, now.calls, strict=True)
        patience = 0 if all(reworded(a, b) for (_, a), (_, b) in pairs if a != b) else 1
        if self._alike != self._warn + patience:
            return GO_ON
        text = _notice([now], "similar", self._alike, repeatable=repeatable)
        return Verdict("notice", "similar", self._alike, now.tools, text)

    def _loops(self) -> list[tuple[int, int]]:
        """How many times the last `period` rounds, taken together, came in a row; and the period."""
        counts = [(matched // period + 1, period) for period, matched in self._matched.items()]
        return sorted((loop for loop in counts if loop[0] >= self._warn), reverse=True)

    def _match(self, now: Round) -> None:
        """Counts, for each period, how many rounds in a row repeat the one a period before."""
        matched, rounds = self._matched, self._rounds
        if now.stable not in [before.stable for before in rounds]:
            self._matched = dict.fromkeys(matched, 0)
            return
        for period in matched:
            before = rounds[-period] if len(rounds) >= period else None
            if before is None or now.stable != before.stable or not now.same_outcome(before):
                matched[period] = 0
            elif period > 1 and matched[1] >= period - 1:
                matched[period] = 0  # a loop of one, no cycle
            else:
                matched[period] += 1

    def _near(self, a: Round, b: Round) -> bool:
        if a.names != b.names or not a.names:
            return False
        return a.same_outcome(b) and similar(a.stable, b.stable, self._similarity)


def _form(now: Round, before: Round, period: int) -> Form:
    if period > 1:
        return "cycle"
    return "identical" if now.exact == before.exact else "similar"


def _same(a: tuple[Kind, str], b: tuple[Kind, str]) -> bool:
    if Kind.LOOP_REFUSED in (a[0], b[0]):
        return True
    if a[0] is not b[0]:
        return False
    if KIND_RULES[a[0]].ran == "no" and a[0] is not Kind.INVALID_ARGUMENTS:
        return True  # a refusal's text may count seconds; its kind says all
    return same_text(a[1], b[1])


def _notice(loop: Sequence[Round], form: Form, count: int, *, repeatable: bool) -> str:
    shown = "; then ".join(f"{n} {canonical(a)[:SHOWN_CHARS]}" for r in loop for n, a in r.calls)
    shown = (shown or loop[0].text)[:NOTICE_CHARS]
    how = {
        "identical": "You just did this",
        "similar": "You just did nearly the same call",
        "cycle": "You are repeating these steps",
    }[form]
    advice = (
        "Ask again only if something can have changed meanwhile; else answer with what you have."
        if repeatable
        else "Doing it again will give the same result. Use what you have: answer now, or call "
        "another tool or use clearly different arguments."
    )
    return f"[Loop notice] {how} ({count} times, with the same result): {shown}. {advice}"


def _refusal(tools: str, form: Form, count: int) -> str:
    what = "these steps" if form == "cycle" else "this same call"
    return (
        f"not run: {what} ({tools}) came {count} times in a row without anything new. Its result is "
        "above and has not changed. Answer with what you have, or say what is missing."
    )

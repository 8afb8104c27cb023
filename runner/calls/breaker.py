"""Stop calling a tool that keeps failing, and find out carefully when it works again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Transition = tuple[Literal["opened", "probed", "closed"], float]


@dataclass(frozen=True, slots=True)
class Pass:
    """Leave to call. `probe`: this one call decides whether the breaker closes."""

    era: int
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """No leave to call for so many seconds."""

    seconds: float


class Breaker:
    """One tool's breaker. Used on one thread; time is monotonic.

    Closed, it counts failures in a row. Open, it refuses. After the pause one probe goes through:
    its success closes, its failure opens again for twice as long. A result of a call that began in
    an earlier state says nothing. A probe that never reports frees its place after another pause,
    so the breaker is never stuck.
    """

    def __init__(
        self,
        failures: int = 5,
        pause: float = 60.0,
        max_pause: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = max(1, failures)
        self._first_pause = pause
        self._max_pause = max(pause, max_pause)
        self._clock = clock
        self._failed = 0
        self._pause = pause
        self._opened = False
        self._until = 0.0
        self._probing = False
        self._era = 0
        self._pass = Pass(0)

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """What a call would meet now."""
        if not self._opened:
            return "closed"
        return "half-open" if self._probing or self._clock() >= self._until else "open"

    def describe(self) -> dict[str, Any]:
        """For the board: state, failures in a row and seconds until the next probe."""
        wait = max(0.0, self._until - self._clock()) if self._opened else 0.0
        return {"state": self.state, "failures": self._failed, "seconds": round(wait, 1)}

    def admit(self) -> Pass | Refusal:
        """Leave to call, or for how long there is none."""
        if not self._opened:
            if self._pass.era != self._era:
                self._pass = Pass(self._era)
            return self._pass
        left = self._until - self._clock()
        if left > 0:
            return Refusal(left)
        self._era += 1  # a probe that was lost belongs to an earlier era
        self._probing = True
        self._until = self._clock() + self._pause
        return Pass(self._era, probe=True)

    def record(self, entry: Pass, counted: bool, ok: bool) -> list[Transition]:
        """What a call came to. Neither `counted` nor `ok`: it says nothing about the peer."""
        if entry.era != self._era:
            return []
        if entry.probe:
            return self._judge_probe(counted, ok)
        if ok:
            self._failed = 0
        elif counted:
            self._failed += 1
            if self._failed >= self._limit:
                return [self._open(self._first_pause)]
        return []

    def _judge_probe(self, counted: bool, ok: bool) -> list[Transition]:
        self._probing = False
        self._era += 1
        if ok:
            self._opened, self._failed, self._until = False, 0, 0.0
            return [("closed", 0.0)]
        if counted:
            self._failed += 1
            return [self._open(min(self._pause * 2, self._max_pause))]
        self._until = self._clock()  # cancelled or denied: the next call may probe at once
        return []

    def _open(self, pause: float) -> Transition:
        self._opened, self._pause = True, pause
        self._until = self._clock() + pause
        self._era += 1
        return ("opened", pause)

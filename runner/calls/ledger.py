"""What is known about side effects: which calls succeeded, which were lost, which may be repeated."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from ..types import JSON, ToolResult
from .keys import canonical, idempotency_key


@dataclass(frozen=True, slots=True)
class Lost:
    """A call whose outcome nobody knows. Keeps its key until it is settled, turns later too."""

    tool: str
    key: str
    how: str


@dataclass(slots=True)
class Ledger:
    """One session's side effects. Calls are equal when tool and canonical arguments are."""

    session: str
    turn: int = 0
    root: str = ""  # of a sub-agent: the session it works for
    _succeeded: dict[str, int] = field(default_factory=dict)
    _once: dict[str, ToolResult] = field(default_factory=dict)
    _lost: dict[str, Lost] = field(default_factory=dict)
    _open_keys: dict[str, str] = field(default_factory=dict)

    def of_agent(self, session: str) -> Ledger:
        """A sub-agent's own: what is lost for one is lost for both."""
        return Ledger(session, root=self.session, _lost=self._lost, _open_keys=self._open_keys)

    def begin_turn(self, turn: int) -> None:
        """Counts of what succeeded end with the turn; lost calls stay lost."""
        self.turn = turn
        self._succeeded.clear()
        self._once.clear()

    def fingerprint(self, tool: str, arguments: JSON) -> str:
        """The same for equal calls of this session; says nothing about the arguments."""
        text = f"{self.root or self.session}\0{tool}\0{canonical(arguments)}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

    def key(self, fingerprint: str, tool: str) -> str:
        """The idempotency key of this call now."""
        lost = self._lost.get(fingerprint)
        if lost is not None:
            return lost.key
        if fingerprint in self._open_keys:
            return self._open_keys[fingerprint]
        done = self._succeeded.get(fingerprint, 0)
        return idempotency_key(self.session, self.turn, tool, fingerprint, done)

    @property
    def any_lost(self) -> bool:
        """Is there a call whose outcome is unknown?"""
        return bool(self._lost)

    def lost(self, fingerprint: str) -> Lost | None:
        """The same call, when its outcome is unknown."""
        return self._lost.get(fingerprint)

    def lose(self, fingerprint: str, tool: str, key: str, how: str) -> None:
        """This call timed out or was cut off: it may have happened."""
        self._lost[fingerprint] = Lost(tool, key, how)

    def keep_key(self, fingerprint: str, key: str) -> None:
        """This idempotent call may have happened: it may be made again, with the same key."""
        self._open_keys[fingerprint] = key

    def settle(self, fingerprint: str) -> None:
        """Its outcome is known after all."""
        self._lost.pop(fingerprint, None)
        self._open_keys.pop(fingerprint, None)

    def succeed(self, fingerprint: str, result: ToolResult) -> None:
        """It succeeded: asking again is a deliberate repeat, with a new key."""
        self._succeeded[fingerprint] = self._succeeded.get(fingerprint, 0) + 1
        self._once[fingerprint] = result
        self.settle(fingerprint)

    def recorded(self, fingerprint: str) -> ToolResult | None:
        """The result this call gave earlier in the turn."""
        return self._once.get(fingerprint)

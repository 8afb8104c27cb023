"""One call on its way through the gates."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..state import SessionState, Shared, Turn
from ..types import Admitted, Changes, Kind, Tool, ToolResult
from .gate import Place


@dataclass(slots=True)
class Run:
    """A call, what was done for it so far and what is known of it."""

    shared: Shared
    session: SessionState
    turn: Turn
    admitted: Admitted
    fingerprint: str
    key: str
    began: float
    tool: Tool = field(init=False)
    call_id: str = field(init=False)
    attempts: int = 0
    output: str = ""
    place: Place | None = None
    changes: Changes | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tool = self.admitted.tool
        self.call_id = self.admitted.call.id

    @property
    def idempotent(self) -> bool:
        """May it run twice without harm?"""
        return self.tool.flags.idempotent or self.tool.flags.read_only

    def lose(self, how: str) -> None:
        """It may have happened: nobody knows. Its key is kept until somebody does."""
        if self.idempotent:
            self.session.ledger.keep_key(self.fingerprint, self.key)
        else:
            self.session.ledger.lose(self.fingerprint, self.tool.name, self.key, how)

    def settle(self) -> None:
        """What became of it is known after all, also to whoever resumes the session."""
        self.session.ledger.settle(self.fingerprint)
        self.session.emit(
            "tool.settled", call_id=self.call_id, tool=self.tool.name, fingerprint=self.fingerprint
        )

    def result(self, kind: Kind, content: str, degraded_by: str | None = None) -> ToolResult:
        """The call's one result."""
        return ToolResult(
            call_id=self.call_id,
            tool=self.tool.name,
            kind=kind,
            content=content,
            attempts=self.attempts,
            degraded_by=degraded_by,
            changes=self.changes,
            duration=self.shared.clock() - self.began,
            coerced=self.admitted.coerced,
            output=self.output,
            notes="\n".join(self.notes),
        )

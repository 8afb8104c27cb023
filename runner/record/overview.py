"""What a session was about, in a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .trajectory import read


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One session of a state folder. `status` is `unfinished` while a turn has no end."""

    id: str
    turns: int
    goal: str
    status: str
    when: str


def overview(path: Path) -> Overview:
    """The overview of one trajectory; `RecordError` when it cannot be read."""
    records = read(path).records
    session = path.name.removesuffix(".jsonl")
    own = [r for r in records if r.get("session") == session]
    goals = [r for r in own if r["type"] == "turn.started"]
    ends = [r for r in own if r["type"] == "turn.finished"]
    status = str(ends[-1].get("status", "")) if ends else "empty"
    when = str(records[-1].get("time", "")) if records else ""
    return Overview(
        id=session,
        turns=len(goals),
        goal=str(goals[-1].get("goal", "")) if goals else "",
        status="unfinished" if len(goals) > len(ends) else status,
        when=when[:19].replace("T", " "),
    )

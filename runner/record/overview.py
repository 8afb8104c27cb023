"""What a session was about, in a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .trajectory import read
from .turns import story


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One session of a state folder, without what was taken back.

    `status` is how its last turn ended, `unfinished` while that has no end.
    """

    id: str
    turns: int
    goal: str
    status: str
    when: str


def overview(path: Path) -> Overview:
    """The overview of one trajectory; `RecordError` when it cannot be read."""
    records = read(path).records
    session = path.name.removesuffix(".jsonl")
    turns = story(records, session).standing
    status = turns[-1].status if turns else "empty"
    when = str(records[-1].get("time", "")) if records else ""
    return Overview(
        id=session,
        turns=len(turns),
        goal=turns[-1].goal if turns else "",
        status="unfinished" if status == "interrupted" else status,
        when=when[:19].replace("T", " "),
    )

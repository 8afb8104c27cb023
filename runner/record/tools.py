"""The tools that a record names, in place of the skills: they are offered, and none can run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..catalog.skill import Snapshot
from ..errors import SkillError
from ..types import Entry, Flags, Kind, Status, Tool
from .turns import Story


class RecordedTools:
    """In place of the registry: its snapshot is what was offered at that point of the record."""

    def __init__(self, told: Story) -> None:
        self.snapshot = Snapshot()
        self._tools = {t.name: t for t in map(_tool, _seen(told).values())}

    def offer(self, names: tuple[str, ...]) -> None:
        """From now on these are offered."""
        if tuple(self.snapshot.tools) != names:
            tools = {n: self._tools.get(n) or _tool(_Seen(n)) for n in names}
            self.snapshot = Snapshot(self.snapshot.generation + 1, (), tools)

    def close(self) -> None:
        """Nothing to let go."""


@dataclass(slots=True)
class _Seen:
    """What a record shows of a tool: argument names, calls that did not fit, calls in a row."""

    name: str
    arguments: set[str] = field(default_factory=set)
    unfit: list[Any] = field(default_factory=list)
    braked: bool = False


def _seen(told: Story) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    for turn in told.turns:
        braked = turn.status == Status.LOOP_STOPPED or any(
            not brake.get("repeatable") for reply in turn.replies for brake in reply.brakes
        )
        for call in (c for reply in turn.replies for c in reply.calls):
            one = seen.setdefault(call.tool, _Seen(call.tool))
            one.braked |= braked
            one.arguments.update(call.arguments)
            if call.kind == Kind.INVALID_ARGUMENTS:
                one.unfit.append(call.arguments)
    return seen


def _tool(seen: _Seen) -> Tool:
    """A tool that takes what was accepted and refuses what was not."""
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {name: {} for name in sorted(seen.arguments)},
    }
    if seen.unfit:
        parameters["not"] = {"enum": seen.unfit}
    return Tool(
        name=seen.name,
        description="recorded",
        parameters=parameters,
        flags=Flags(read_only=True, idempotent=True, concurrent=True, repeatable=not seen.braked),
        origin="built-in",
        load=_never,
    )


def _never() -> Entry:
    raise SkillError("a recorded tool does not run")

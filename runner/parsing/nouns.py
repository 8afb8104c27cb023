"""What reading a reply speaks of: the result, a raw call, a recogniser and its findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .scan import Scan, scan

Kind = Literal["calls", "final", "error"]
Mode = Literal["native", "json"]
Policy = Literal["whole", "terminal", "terminal+tail"]
Tools = Mapping[str, Mapping[str, Any]]
Fits = Callable[[str, dict[str, Any]], bool]

MAX_TEXT = 16_000_000
MAX_CALLS = 128


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One call found in a text: a name and its arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What a reply came to: calls to run, a final answer, or an error for the model.

    `reason` is from the closed lists for errors and finals, `recogniser` says which entry of the
    table fired, `rejected` are readable calls that may not run, `tried` is for a person.
    """

    kind: Kind
    calls: tuple[ParsedCall, ...] = ()
    reason: str = ""
    recogniser: str = ""
    text: str = ""
    rejected: tuple[ParsedCall, ...] = ()
    span: tuple[int, int] | None = None
    detail: str = ""
    tried: tuple[str, ...] = ()


class Unreadable(Exception):
    """Internal: a piece of text cannot be read. `reason` is from the closed list of errors."""

    def __init__(self, reason: str, detail: str, position: int = -1) -> None:
        self.reason = reason
        self.detail = detail
        self.position = position
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as written: a name not yet resolved, arguments of any type not yet checked."""

    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Found:
    """Complete calls at `start:end`. `loose`: read leniently."""

    calls: tuple[RawCall, ...]
    start: int
    end: int
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Something meant as a call that may not run, and why."""

    reason: str
    detail: str
    start: int = 0
    end: int = 0
    calls: tuple[RawCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Not a call: a final answer, with a reason of the closed list."""

    reason: str
    text: str | None = None


Reading = Found | Fault | Answer | None


@dataclass(slots=True)
class Source:
    """The text being read, with what was offered. Reasoning is blanked, so positions stay true."""

    text: str
    tools: Tools
    finish: str = "stop"
    mode: Mode = "native"
    policy: Policy = "terminal"
    tool_outputs: Sequence[str] = ()
    tried: list[str] = field(default_factory=list)
    removed: tuple[tuple[int, int], ...] = ()
    original: str = ""
    _scan: Scan | None = None

    @property
    def scan(self) -> Scan:
        """Every balanced block of the text, found once."""
        if self._scan is None:
            self._scan = scan(self.text)
        return self._scan

    @property
    def answer(self) -> str:
        """The reply as it was written, with its reasoning taken out."""
        pieces, at = [], 0
        for start, end in self.removed:
            pieces.append(self.original[at:start])
            at = end
        return "".join([*pieces, self.original[at:]])

    @property
    def cut(self) -> bool:
        """The provider says that the reply hit its output limit."""
        return self.finish == "length"


@dataclass(frozen=True, slots=True)
class Recogniser:
    """One entry of the table: `parse(source, position)` is asked where a trigger occurs.

    `marked`: the triggers are call markers, which outrank what stands later in the text.
    """

    name: str
    triggers: tuple[str, ...]
    parse: Callable[[Source, int], Reading]
    marked: bool = True

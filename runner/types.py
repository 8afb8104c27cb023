"""The nouns every stage speaks of: calls, messages, tools, results. All frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, Protocol

JSON = dict[str, Any]
Source = Literal["native", "strict", "extracted"]
Role = Literal["system", "user", "assistant", "tool"]
Mark = Literal["", "goal", "results", "note", "pinned", "example"]
Ran = Literal["no", "yes", "unknown", "maybe"]
Isolation = Literal["auto", "thread", "process", "strict"]
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Kind(StrEnum):
    """What a finished call came to. A closed list; `KIND_RULES` says what follows from each."""

    OK = "ok"
    UNPARSABLE = "unparsable"
    UNKNOWN_TOOL = "unknown_tool"
    DISABLED = "disabled"
    NOT_OFFERED = "not_offered"
    INVALID_ARGUMENTS = "invalid_arguments"
    DENIED = "denied"
    LOOP_REFUSED = "loop_refused"
    BUSY = "busy"
    BREAKER_OPEN = "breaker_open"
    TIMEOUT = "timeout"
    OUTCOME_UNKNOWN = "outcome_unknown"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    CRASHED = "crashed"
    BAD_RESULT = "bad_result"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class KindRule:
    """What follows from a kind: did the skill run, may an idempotent call be retried, and so on."""

    ran: Ran
    retried: bool = False
    counted: bool = False
    degrades: bool = False


KIND_RULES: Mapping[Kind, KindRule] = MappingProxyType(
    {
        Kind.OK: KindRule("yes"),
        Kind.UNPARSABLE: KindRule("no"),
        Kind.UNKNOWN_TOOL: KindRule("no"),
        Kind.DISABLED: KindRule("no"),
        Kind.NOT_OFFERED: KindRule("no"),
        Kind.INVALID_ARGUMENTS: KindRule("no"),
        Kind.DENIED: KindRule("no"),
        Kind.LOOP_REFUSED: KindRule("no"),
        Kind.BUSY: KindRule("no", degrades=True),
        Kind.BREAKER_OPEN: KindRule("no", degrades=True),
        Kind.TIMEOUT: KindRule("unknown", retried=True, counted=True, degrades=True),
        Kind.OUTCOME_UNKNOWN: KindRule("unknown", counted=True),
        Kind.UNAVAILABLE: KindRule("yes", retried=True, counted=True, degrades=True),
        Kind.FAILED: KindRule("yes"),
        Kind.CRASHED: KindRule("yes", counted=True, degrades=True),
        Kind.BAD_RESULT: KindRule("yes", counted=True, degrades=True),
        Kind.CANCELLED: KindRule("maybe"),
    }
)


class Status(StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    MAX_ITERATIONS = "max_iterations"
    LOOP_STOPPED = "loop_stopped"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One request by the model to run a tool.

    `fault` is set when the arguments could not be read; such a call never runs.
    """

    id: str
    name: str
    arguments: JSON
    source: Source = "native"
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One entry of the conversation. `mark` says what part it plays for compaction."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool: str | None = None
    reasoning: str = ""
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more model requests."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        )

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """One finished answer of the model, whatever the provider."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    finish: str = "stop"
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """How a tool behaves, as its manifest states it. Times in seconds."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    concurrent: bool = False
    max_concurrency: int | None = None
    timeout: float | None = None
    retries: int | None = None
    fallbacks: tuple[str, ...] = ()
    reconcile: str = ""
    once_per_turn: bool = False
    repeatable: bool = False
    permissions: tuple[str, ...] = ()
    isolation: Isolation = "auto"
    max_result_chars: int | None = None

    @property
    def places(self) -> int:
        """Calls of this tool that may be in flight at once."""
        return self.max_concurrency or (8 if self.concurrent else 1)


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool's function, ready to be called: `function(**arguments)`, on a worker or the skill loop."""

    function: Callable[..., Any]
    context_parameter: str | None = None
    asynchronous: bool = False


class Code(Protocol):
    """One version of a skill's code: the bytes it was built from, for a process that loads them too."""

    skill: str
    number: int
    folder: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One function of a skill as the model sees it.

    `load()` gives the function, importing the skill on first use; it may raise `SkillError` and
    belongs on a worker thread. `load_named("module:function")` does so for fallbacks and
    `reconcile`. A tool keeps its skill's generation alive for as long as somebody holds it.
    """

    name: str
    description: str
    parameters: JSON
    flags: Flags = field(default_factory=Flags)
    skill: str = ""
    generation: int = 0
    entry: str = ""
    examples: tuple[JSON, ...] = ()
    origin: Literal["project", "installed", "built-in", "object"] = "project"
    folder: str = ""
    load: Callable[[], Entry] = field(compare=False, repr=False)
    load_named: Callable[[str], Entry] | None = field(default=None, compare=False, repr=False)
    code: Code | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A call that passed every check and may run. `call.arguments` are the checked ones.

    `shown`: the arguments without secrets, for events. `approved`: the question of the policy was answered with yes, by whoever answers. `repeat`: a
    person said that it may run although the same call was lost earlier.
    """

    call: ToolCall
    tool: Tool
    shown: JSON
    coerced: tuple[str, ...] = ()
    approved: bool = False
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """A `pre_tool_use` hook's answer.

    allow: go on, with `arguments` if given (checked again). deny: refuse with `reason`.
    answer: `content` is the result and the tool does not run.
    """

    action: Literal["allow", "deny", "answer"]
    reason: str = ""
    arguments: JSON | None = None
    content: str = ""


@dataclass(frozen=True, slots=True)
class Returned:
    """The attempt returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The attempt raised, whatever it raised: a value here, never an exception of ours.

    `text` is what the error says about itself, asked where the skill's own code may run.
    """

    error: BaseException
    text: str | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The attempt did not end by its deadline. `ended`: it was killed, so nothing goes on."""

    ended: bool = False


Outcome = Returned | Raised | TimedOut


@dataclass(frozen=True, slots=True)
class Changes:
    """Workspace files that differ after a call: paths relative to the workspace, sorted."""

    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.created or self.modified or self.deleted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What one tool call came to. Exactly one per call, whatever happened.

    `notes` is added below `content` once that has been cut to size: changes in the workspace.
    """

    call_id: str
    tool: str
    kind: Kind
    content: str
    attempts: int = 0
    degraded_by: str | None = None
    changes: Changes | None = None
    spilled_to: str | None = None
    duration: float = 0.0
    coerced: tuple[str, ...] = ()
    output: str = ""
    notes: str = ""

    @property
    def ok(self) -> bool:
        return self.kind is Kind.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn ended. `answer` is never empty; `duration` in seconds, `cost` in US dollars."""

    session: str
    status: Status
    answer: str
    iterations: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    duration: float = 0.0

    def to_dict(self) -> JSON:
        """The object `runner run --json` prints."""
        return {
            "session": self.session,
            "status": self.status.value,
            "answer": self.answer,
            "iterations": self.iterations,
            "tool_calls": self.tool_calls,
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
            },
            "cost": round(self.cost, 6),
            "duration": round(self.duration, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A frozen description of a session, as hooks see it; never the live object."""

    id: str
    workspace: str
    model: str
    turn: int = 0
    iteration: int = 0
    parent: str | None = None
    agent: str | None = None

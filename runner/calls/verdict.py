"""What an attempt's outcome means: its kind, and a sentence the model can act on. Pure functions."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from ..errors import SkillError
from ..skill import ToolError
from ..state import TurnCancelled
from ..types import KIND_RULES, Kind, Outcome, Raised, Returned, TimedOut, Tool
from .compact import Compacted, compact, said
from .crossing import ResultTooLarge

_ABOUT_ARGUMENTS = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A deadline of one attempt and where it comes from. Seconds; None is none."""

    seconds: float | None
    name: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """The kind of an outcome and its text."""

    kind: Kind
    text: str
    ended: bool = True


def limit_of(
    tool: Tool, *, tool_timeout: float, network_timeout: float, most: float, left: float | None
) -> Limit:
    """The deadline that counts: the manifest's, else the default of its sort; never over the caps."""
    if tool.origin == "built-in" and tool.flags.timeout is None:
        limit = Limit(None, "")
    elif tool.flags.timeout is not None:
        limit = Limit(tool.flags.timeout, f"the timeout of skill {tool.skill!r}")
    elif tool.flags.open_world:
        limit = Limit(network_timeout, "[limits] network_timeout")
    else:
        limit = Limit(tool_timeout, "[limits] tool_timeout")
    if limit.seconds is not None and limit.seconds > most:
        limit = Limit(most, "[limits] max_tool_timeout")
    if left is not None and (limit.seconds is None or left < limit.seconds):
        limit = Limit(max(left, 0.001), "[limits] turn_timeout")
    return limit


def rule(tool: Tool, outcome: Outcome, limit: Limit) -> Ruling:
    """What this outcome is called and what the model is told."""
    match outcome:
        case Returned(value):
            return _returned(tool, value)
        case Raised(error, text):
            return _raised(tool, error, said(error) if text is None else text)
        case TimedOut(ended=ended):
            return _timed_out(tool, limit, ended=ended)


def may_retry(tool: Tool, ruling: Ruling, attempt: int, retries: int) -> bool:
    """Only idempotent tools, only kinds that may pass, and never beside a call still running."""
    idempotent = tool.flags.idempotent or tool.flags.read_only
    allowed = idempotent and KIND_RULES[ruling.kind].retried
    return allowed and ruling.ended and attempt <= retries


def backoff(attempt: int, random: float) -> float:
    """Seconds before the next attempt: min(0.2·2ⁿ, 2.0), with jitter between a half and all of it."""
    return float(min(0.2 * 2 ** (attempt - 1), 2.0)) * (0.5 + random / 2)


def _returned(tool: Tool, value: object) -> Ruling:
    if isinstance(value, Compacted):
        text, value = value.text, value.value
    else:
        text, _lossy = compact(value)
    if text is None:
        what = "None" if value is None else "an empty text"
        return Ruling(
            Kind.BAD_RESULT,
            f"{tool.name} returned {what}, which says neither that it worked nor that it failed. "
            "Check what it should have done before you rely on it.",
        )
    return Ruling(Kind.OK, text)


def _raised(tool: Tool, error: BaseException, text: str) -> Ruling:
    message = text or type(error).__name__
    if isinstance(error, TurnCancelled):
        return Ruling(Kind.CANCELLED, message)
    if isinstance(error, SkillError):
        return Ruling(Kind.CRASHED, f"{message} The tool cannot be used until its skill is fixed.")
    if isinstance(error, ResultTooLarge):
        return Ruling(Kind.BAD_RESULT, f"{tool.name} ran, but {message}")
    if isinstance(error, ToolError):
        kind = Kind.UNAVAILABLE if error.retryable else Kind.FAILED
        return Ruling(kind, message or f"{tool.name} failed without saying why")
    if isinstance(error, ConnectionError | TimeoutError):
        return Ruling(
            Kind.UNAVAILABLE,
            f"{tool.name} is unavailable: {type(error).__name__}: {message}. Try again later, or another way.",
        )
    if isinstance(error, _ABOUT_ARGUMENTS):
        return Ruling(
            Kind.FAILED,
            f"{tool.name} failed: {type(error).__name__}: {message}. Check the arguments; the same "
            "call will fail again.",
        )
    return Ruling(
        Kind.CRASHED,
        f"tool {tool.name} crashed: {type(error).__name__}: {message}{_where(error)}. "
        "This is a fault of the tool: try another way.",
    )


def _timed_out(tool: Tool, limit: Limit, *, ended: bool) -> Ruling:
    said = f"{tool.name} timed out after {limit.seconds or 0:g}s ({limit.name})"
    if tool.flags.idempotent or tool.flags.read_only:
        return Ruling(
            Kind.TIMEOUT,
            f"{said}. Retry later, ask for less at once, try another approach, or skip this step.",
            ended=ended,
        )
    return Ruling(
        Kind.OUTCOME_UNKNOWN,
        f"{said}. Its outcome is unknown: it may have happened. Check whether it did before "
        "you do anything about it; the same call is refused until that is known.",
        ended=ended,
    )


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inside = [
        f for f in frames if "/runner/calls/" not in f.filename and "/asyncio/" not in f.filename
    ]
    if not inside:
        return ""
    last = inside[-1]
    return f" ({last.filename.rsplit('/', 1)[-1]}, line {last.lineno})"

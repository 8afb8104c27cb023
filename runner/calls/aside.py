"""What is called beside a tool: the function that knows what became of a call, and its fallbacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import SkillError
from ..state import TurnCancelled
from ..types import (
    KIND_RULES,
    Entry,
    Kind,
    Outcome,
    Raised,
    TimedOut,
    Tool,
    ToolCall,
    ToolResult,
)
from .admit import guarded
from .attempt import Attempt, run_attempt
from .breaker import Pass, Refusal
from .compact import Compacted
from .run import Run
from .schema import checker
from .verdict import Limit, Ruling, limit_of, rule

_NOT_THERE = "no such tool or function"


async def reconciled(run: Run) -> Ruling | None:
    """Asks the skill what became of a lost call; None when it cannot say."""
    name = run.tool.flags.reconcile
    side = _function(run, name) if ":" in name else _tool_of(run, name)
    outcome = await _called(run, side) if isinstance(side, _Side) else None
    if outcome is None or isinstance(outcome, Raised | TimedOut):
        return None
    answer = outcome.value.value if isinstance(outcome.value, Compacted) else outcome.value
    state = answer.get("outcome") if isinstance(answer, Mapping) else answer
    if state == "done":
        run.settle()
        value = answer.get("result") if isinstance(answer, Mapping) else None
        text = rule(
            run.tool, replace(outcome, value=value if value is not None else "done"), _NO_LIMIT
        )
        return Ruling(Kind.OK, f"{text.text}\n[it had happened: confirmed by {name}]")
    if state == "not_done":
        run.settle()
        return Ruling(
            Kind.TIMEOUT,
            f"{run.tool.name} did not answer in time, and {name} says that it did not happen. "
            "The same call may be made again.",
        )
    return None


async def degraded(run: Run, ruling: Ruling) -> ToolResult | Ruling:
    """Goes down the tool's fallbacks; the first success is marked as what it is."""
    reasons = []
    for name in run.tool.flags.fallbacks:
        said = await _fallback(run, name)
        if said.kind is Kind.OK:
            note = f"[degraded: {run.tool.name} is unavailable; this is from {name} and may be out of date]"
            text = f"{note}\n{said.text}\n[why: {ruling.text}]"
            return run.result(Kind.OK, text, degraded_by=name)
        reasons.append(f"{name}: {said.text}")
    if reasons:
        return replace(ruling, text=f"{ruling.text} Tried instead: {'; '.join(reasons)}")
    return ruling


@dataclass(frozen=True, slots=True)
class _Side:
    """A tool or function to call with the arguments of another call."""

    tool: Tool
    name: str
    fingerprint: str
    own: bool  # a tool of its own, with places and a breaker


async def _fallback(run: Run, name: str) -> Ruling:
    """One fallback, held to what any call is held to: policy, guards, schema, breaker, places."""
    side = _function(run, name) if ":" in name else _tool_of(run, name)
    if not isinstance(side, _Side):
        return side
    if side.own:
        refusal = await _refusal(run, side)
        if refusal is not None:
            return refusal
    ledger = run.session.ledger
    if ledger.lost(side.fingerprint) is not None:
        return Ruling(Kind.OUTCOME_UNKNOWN, "it was called before and may have happened")
    breaker = run.shared.breaker(side.name)
    entry = breaker.admit()
    if isinstance(entry, Refusal):
        return Ruling(
            Kind.BREAKER_OPEN, f"it failed repeatedly; not called for {entry.seconds:.0f} s"
        )
    try:
        return await _recorded(run, side, entry)
    except BaseException:
        breaker.record(entry, counted=False, ok=False)
        raise


async def _recorded(run: Run, side: _Side, entry: Pass) -> Ruling:
    ledger, flags = run.session.ledger, side.tool.flags
    idempotent = flags.idempotent or flags.read_only
    key = ledger.key(side.fingerprint, side.name)
    run.session.emit(
        "fallback.started", call_id=run.call_id, tool=side.name, key=key,
        fingerprint=side.fingerprint, idempotent=idempotent,
    )  # fmt: skip
    if not idempotent:
        ledger.lose(side.fingerprint, side.name, key, "was cancelled")
    outcome = await _called(run, side, key)
    if outcome is None:
        ruling = Ruling(Kind.BUSY, "it is busy")
    else:
        ruling = rule(side.tool, outcome, _limit(run, side.tool))
    counted = KIND_RULES[ruling.kind].counted
    run.shared.breaker(side.name).record(
        entry, counted=counted, ok=ruling.kind in {Kind.OK, Kind.FAILED}
    )
    if ruling.kind is Kind.OUTCOME_UNKNOWN:
        ledger.lose(side.fingerprint, side.name, key, "timed out")
    else:
        ledger.settle(side.fingerprint)
        run.session.emit(
            "tool.settled", call_id=run.call_id, tool=side.name, fingerprint=side.fingerprint
        )
    return ruling


async def _refusal(run: Run, side: _Side) -> Ruling | None:
    """Why another tool may not be called in this one's place; None when it may."""
    call = ToolCall(id=run.call_id, name=side.name, arguments=run.admitted.call.arguments)
    if checker(side.tool.parameters).problems(call.arguments):
        return Ruling(Kind.INVALID_ARGUMENTS, "its parameters are others")
    verdict = run.session.policy.decide(
        side.tool,
        call.arguments,
        extracted=False,
        protected=run.shared.protected,
        workspace=run.session.workspace,
    )
    if verdict.action != "allow":
        return Ruling(Kind.DENIED, "not allowed without asking")
    said = await guarded(run.shared, run.session, run.turn, call, side.tool)
    if isinstance(said, ToolResult):
        return Ruling(said.kind, said.content)
    if said.arguments is not None:
        return Ruling(Kind.DENIED, "a guard wants other arguments for it")
    return None


def _tool_of(run: Run, name: str) -> _Side | Ruling:
    tool = run.shared.registry.snapshot.tools.get(name)
    if tool is None or tool.name == run.tool.name:
        return Ruling(Kind.UNKNOWN_TOOL, _NOT_THERE)
    return _Side(
        tool, name, run.session.ledger.fingerprint(name, run.admitted.call.arguments), own=True
    )


def _function(run: Run, name: str) -> _Side | Ruling:
    named = run.tool.load_named
    if named is None:
        return Ruling(Kind.UNKNOWN_TOOL, _NOT_THERE)

    def load() -> Entry:
        try:
            return named(name)
        except (AttributeError, ImportError) as error:
            raise SkillError(f"{name}: {error}") from error

    tool = replace(run.tool, entry=name, load=load)
    fingerprint = run.session.ledger.fingerprint(
        f"{run.tool.name}>{name}", run.admitted.call.arguments
    )
    return _Side(tool, f"{run.tool.name}>{name}", fingerprint, own=False)


async def _called(run: Run, side: _Side, key: str = "") -> Outcome | None:
    """Runs it, or None when all its places are taken by calls that hang."""
    gate = run.shared.gate(replace(side.tool, name=side.name))
    place = gate.try_enter()
    if place is None:
        return None
    attempt = Attempt(
        call_id=run.call_id,
        tool=side.tool,
        arguments=run.admitted.call.arguments,
        key=key or run.key,
        limit=_limit(run, side.tool).seconds,
        approved=run.admitted.approved and not side.own,
        last=place,
    )
    try:
        outcome = await run_attempt(run.shared, run.session, run.turn, attempt)
    finally:
        if not attempt.running:
            place.leave()
    if outcome is None:
        raise TurnCancelled
    return outcome


def _limit(run: Run, tool: Tool) -> Limit:
    limits, turn = run.shared.config.limits, run.turn
    left = None if turn.deadline is None else turn.deadline - run.shared.clock()
    return limit_of(
        tool,
        tool_timeout=limits.tool_timeout,
        network_timeout=limits.network_timeout,
        most=limits.max_tool_timeout,
        left=left,
    )


_NO_LIMIT = Limit(None, "the limit of a fallback")

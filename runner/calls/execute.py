"""One admitted call, gate by gate: breaker, place, snapshot, attempts, reconcile or degrade.

Returns exactly one result with its full text; nothing a skill does leaves here as an exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..state import SessionState, Shared, Turn, TurnCancelled
from ..types import (
    KIND_RULES,
    Admitted,
    Changes,
    Entry,
    Kind,
    Outcome,
    Raised,
    TimedOut,
    Tool,
    ToolResult,
)
from .attempt import Attempt, run_attempt
from .breaker import Refusal
from .gate import Place
from .snapshot import Snapshot, diff, render
from .snapshot import take as take_snapshot
from .verdict import Limit, Ruling, backoff, limit_of, may_retry, rule


@dataclass(slots=True)
class Run:
    """One call on its way through the gates."""

    shared: Shared
    session: SessionState
    turn: Turn
    admitted: Admitted
    fingerprint: str
    key: str
    began: float
    attempts: int = 0
    output: str = ""
    place: Place | None = None
    changes: Changes | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def tool(self) -> Tool:
        return self.admitted.tool

    @property
    def call_id(self) -> str:
        return self.admitted.call.id

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


async def execute(
    shared: Shared, session: SessionState, turn: Turn, admitted: Admitted
) -> ToolResult:
    """Runs the call and says what came of it."""
    call, tool = admitted.call, admitted.tool
    fingerprint = session.ledger.fingerprint(tool.name, call.arguments)
    key = session.ledger.key(fingerprint, tool.name)
    run = Run(shared, session, turn, admitted, fingerprint, key, shared.clock())
    try:
        early = await _settled_before(run)
        return early if early is not None else await _through_the_gates(run)
    except TurnCancelled:
        return _cancelled(run)
    finally:
        if run.place is not None:
            run.place.leave()


async def _settled_before(run: Run) -> ToolResult | None:
    """A result without running: recorded earlier in the turn, or lost and not settled yet."""
    ledger, tool = run.session.ledger, run.tool
    recorded = ledger.recorded(run.fingerprint) if tool.flags.once_per_turn else None
    if recorded is not None:
        return run.result(
            Kind.OK,
            f"{recorded.content}\n[recorded earlier in this turn; the tool did not run again]",
        )
    lost = ledger.lost(run.fingerprint)
    if lost is None or run.admitted.repeat:
        return None
    ruling = await _reconciled(run)
    if ruling is None:
        return run.result(
            Kind.OUTCOME_UNKNOWN,
            f"not run: this same call of {tool.name} {lost.how} earlier and may have happened. "
            "Check whether it did; it is refused until that is known or a person approves it.",
        )
    return None if ruling.kind is Kind.TIMEOUT else _finished(run, ruling)


async def _through_the_gates(run: Run) -> ToolResult:
    shared, tool = run.shared, run.tool
    breaker = shared.breaker(tool.name)
    entry = breaker.admit()
    if isinstance(entry, Refusal):
        return await _degraded(run, Ruling(Kind.BREAKER_OPEN, _open_text(shared, tool, entry)))
    if entry.probe:
        run.session.emit("breaker.probed", tool=tool.name, pause=0.0)
    try:
        ruling = await _placed(run)
    except BaseException:
        breaker.record(entry, counted=False, ok=False)
        raise
    if ruling.kind is not Kind.BUSY:
        _judge(run, entry, ruling)
    else:
        breaker.record(entry, counted=False, ok=False)
    if ruling.kind is Kind.OUTCOME_UNKNOWN:
        run.session.ledger.lose(run.fingerprint, tool.name, run.key, "timed out")
        known = await _reconciled(run)
        ruling = known or ruling
    if KIND_RULES[ruling.kind].degrades:
        return await _degraded(run, ruling)
    return _finished(run, ruling)


async def _placed(run: Run) -> Ruling:
    """Waits for a place, then runs the attempts with a snapshot before and after."""
    tool, wait = run.tool, run.shared.config.limits.gate_wait
    gate = run.shared.gate(tool)
    run.place = gate.try_enter() or await run.turn.wait(gate.enter(wait))
    if run.place is None:
        return Ruling(
            Kind.BUSY,
            f"{tool.name} is busy: {tool.flags.places} call(s) are running and none ended within "
            f"{wait:g}s. Retry later, or do something else first.",
        )
    run.began = run.shared.clock()
    run.session.emit(
        "tool.started",
        clean={"arguments": run.shared.redactor.value(run.admitted.call.arguments)},
        call_id=run.call_id,
        tool=tool.name,
        key=run.key,
        fingerprint=run.fingerprint,
        idempotent=tool.flags.idempotent or tool.flags.read_only,
    )
    if not (tool.flags.idempotent or tool.flags.read_only):
        run.session.reporter.sync()
    if tool.flags.read_only or tool.origin == "built-in":
        return await _attempts(run)
    return await _watched(run)


async def _watched(run: Run) -> Ruling:
    """The attempts, with what they changed in the workspace: also after a failure or a cancel."""
    c, root = run.shared.config.snapshot, run.session.workspace
    workers = run.shared.workers
    skip = run.shared.snapshot_skip

    def take() -> Snapshot:
        return take_snapshot(root, depth=c.depth, files=c.files, skip=skip)

    before = await workers.run(take)
    try:
        ruling = await _attempts(run)
    except TurnCancelled:
        _note_changes(run, before, take())
        raise
    _note_changes(run, before, await workers.run(take))
    return ruling


def _note_changes(run: Run, before: Snapshot, after: Snapshot) -> None:
    changes = diff(before, after)
    if not changes:
        return
    run.changes = changes
    run.notes.append(render(changes, before, after))
    run.session.baselines.observe(run.session.workspace, (*changes.created, *changes.modified))


async def _attempts(run: Run) -> Ruling:
    limits, tool, turn = run.shared.config.limits, run.tool, run.turn
    retries = tool.flags.retries if tool.flags.retries is not None else limits.tool_retries
    while True:
        left = None if turn.deadline is None else turn.deadline - run.shared.clock()
        limit = limit_of(
            tool,
            tool_timeout=limits.tool_timeout,
            network_timeout=limits.network_timeout,
            most=limits.max_tool_timeout,
            left=left,
        )
        run.attempts += 1
        ruling = await _attempt(run, limit)
        if not may_retry(tool, ruling, run.attempts, retries):
            return ruling
        delay = backoff(run.attempts, run.shared.rng.random())
        if left is not None and left <= delay:
            return ruling
        run.session.emit(
            "tool.retried",
            call_id=run.call_id,
            tool=tool.name,
            attempt=run.attempts + 1,
            reason=ruling.text,
            delay=round(delay, 3),
        )
        await turn.wait(asyncio.sleep(delay))


async def _attempt(run: Run, limit: Limit) -> Ruling:
    """One attempt. An abandoned one keeps its place until it really ends."""
    attempt = Attempt(
        call_id=run.call_id,
        tool=run.tool,
        arguments=run.admitted.call.arguments,
        key=run.key,
        limit=limit.seconds,
        approved=run.admitted.approved,
        last=run.place,
    )
    outcome = await run_attempt(run.shared, run.session, run.turn, attempt)
    run.output = attempt.output
    if outcome is None:
        if run.attempts and not (run.tool.flags.idempotent or run.tool.flags.read_only):
            run.session.ledger.lose(run.fingerprint, run.tool.name, run.key, "was cancelled")
        _keep_place(run, attempt)
        raise TurnCancelled
    if isinstance(outcome, TimedOut) and not outcome.ended:
        _keep_place(run, attempt)
    return rule(run.tool, outcome, limit)


def _keep_place(run: Run, attempt: Attempt) -> None:
    if attempt.running:
        run.place = None  # it leaves with the abandoned call


def _judge(run: Run, entry: Any, ruling: Ruling) -> None:
    counted = KIND_RULES[ruling.kind].counted
    changes = run.shared.breaker(run.tool.name).record(
        entry, counted=counted, ok=ruling.kind in {Kind.OK, Kind.FAILED}
    )
    for name, pause in changes:
        run.session.emit(f"breaker.{name}", tool=run.tool.name, pause=pause)


def _finished(run: Run, ruling: Ruling) -> ToolResult:
    result = run.result(ruling.kind, ruling.text)
    if ruling.kind is Kind.OK:
        run.session.ledger.succeed(run.fingerprint, result)
    return result


def _cancelled(run: Run) -> ToolResult:
    if run.attempts == 0:
        return run.result(Kind.CANCELLED, f"not run: cancelled before {run.tool.name} began")
    maybe = "" if run.tool.flags.read_only else " It may have happened: check before you repeat it."
    return run.result(Kind.CANCELLED, f"{run.tool.name} was interrupted while it ran.{maybe}")


async def _reconciled(run: Run) -> Ruling | None:
    """Asks the skill what became of a lost call; None when it cannot say."""
    name = run.tool.flags.reconcile
    outcome = await _side_call(run, name) if name else None
    if outcome is None or isinstance(outcome, Raised | TimedOut):
        return None
    answer = outcome.value
    state = answer.get("outcome") if isinstance(answer, Mapping) else answer
    if state == "done":
        run.session.ledger.settle(run.fingerprint)
        value = answer.get("result") if isinstance(answer, Mapping) else None
        text = rule(
            run.tool, replace(outcome, value=value if value is not None else "done"), _NO_LIMIT
        )
        return Ruling(Kind.OK, f"{text.text}\n[it had happened: confirmed by {name}]")
    if state == "not_done":
        run.session.ledger.settle(run.fingerprint)
        return Ruling(
            Kind.TIMEOUT,
            f"{run.tool.name} did not answer in time, and {name} says that it did not happen. "
            "The same call may be made again.",
        )
    return None


async def _degraded(run: Run, ruling: Ruling) -> ToolResult:
    """Goes down the tool's fallbacks; the first success is marked as what it is."""
    reasons = []
    for name in run.tool.flags.fallbacks:
        outcome = await _side_call(run, name)
        if outcome is None:
            reasons.append(f"{name}: no such tool or function, or not allowed")
            continue
        fallback = rule(run.tool, outcome, _NO_LIMIT)
        if fallback.kind is Kind.OK:
            note = f"[degraded: {run.tool.name} is unavailable; this is from {name} and may be out of date]"
            return run.result(
                Kind.OK, f"{note}\n{fallback.text}\n[why: {ruling.text}]", degraded_by=name
            )
        reasons.append(f"{name}: {fallback.text}")
    if reasons:
        ruling = replace(ruling, text=f"{ruling.text} Tried instead: {'; '.join(reasons)}")
    return _finished(run, ruling)


async def _side_call(run: Run, name: str) -> Outcome | None:
    """Runs a fallback or reconcile function, or another tool, with the same arguments."""
    tool = run.tool
    other = run.shared.registry.snapshot.tools.get(name) if ":" not in name else None
    if other is not None:
        verdict = run.session.policy.decide(
            other,
            run.admitted.call.arguments,
            extracted=False,
            protected=run.shared.protected,
            workspace=run.session.workspace,
        )
        if verdict.action != "allow":
            return None
        load: Callable[[], Entry] = other.load
    elif tool.load_named is not None and ":" in name:
        named = tool.load_named
        load = lambda: named(name)  # noqa: E731 - one expression, used once
    else:
        return None
    limit = run.tool.flags.timeout or run.shared.config.limits.tool_timeout
    attempt = Attempt(
        call_id=run.call_id,
        tool=replace(other or tool, load=load),
        arguments=run.admitted.call.arguments,
        key=run.key,
        limit=limit,
        approved=run.admitted.approved,
    )
    outcome = await run_attempt(run.shared, run.session, run.turn, attempt)
    if outcome is None:
        raise TurnCancelled
    return outcome


def _open_text(shared: Shared, tool: Tool, refusal: Refusal) -> str:
    others = [n for n in shared.registry.snapshot.tools if n != tool.name][:8]
    return (
        f"{tool.name} has failed repeatedly and is not called for another {refusal.seconds:.0f} s. "
        f"Do not retry it now. {'Other tools: ' + ', '.join(others) + '.' if others else ''}"
    )


_NO_LIMIT = Limit(None, "the limit of a fallback")

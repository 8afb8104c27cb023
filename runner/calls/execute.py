"""One admitted call, gate by gate: breaker, place, snapshot, attempts, reconcile or degrade.

Returns exactly one result with its full text; nothing a skill does leaves here as an exception.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..state import SessionState, Shared, Turn, TurnCancelled
from ..types import KIND_RULES, Admitted, Kind, Outcome, Returned, Tool, ToolResult
from .aside import degraded, reconciled
from .attempt import Attempt, run_attempt
from .breaker import Refusal
from .processjob import isolation_of
from .run import Run
from .snapshot import Snapshot, diff, render
from .snapshot import take as take_snapshot
from .verdict import Limit, Ruling, backoff, limit_of, may_retry, rule


async def execute(
    shared: Shared, session: SessionState, turn: Turn, admitted: Admitted
) -> ToolResult:
    """Runs the call and says what came of it."""
    call, tool = admitted.call, admitted.tool
    fingerprint = session.ledger.fingerprint(tool.name, call.arguments)
    run = Run(shared, session, turn, admitted, fingerprint, "", shared.clock())
    try:
        if tool.flags.read_only and not tool.flags.once_per_turn:
            return await _keyed(run)
        while (before := turn.alike.get(fingerprint)) is not None:
            await turn.wait(asyncio.shield(before), call.id)
        done = turn.alike[fingerprint] = asyncio.get_running_loop().create_future()
        try:
            return await _keyed(run)
        finally:
            del turn.alike[fingerprint]
            done.set_result(None)
    except TurnCancelled:
        return _cancelled(run)
    finally:
        if run.place is not None:
            run.place.leave()


async def _keyed(run: Run) -> ToolResult:
    ledger = run.session.ledger
    run.key = ledger.key(run.fingerprint, run.tool.name)
    if run.tool.flags.once_per_turn or ledger.any_lost:
        early = await _settled_before(run)
        if early is not None:
            return early
    return await _through_the_gates(run)


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
    ruling = await reconciled(run)
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
        run.lose("timed out")
        ruling = await reconciled(run) or ruling
    elif ruling.kind is Kind.TIMEOUT:
        run.lose("timed out")
    if KIND_RULES[ruling.kind].degrades:
        return await _degraded(run, ruling)
    return _finished(run, ruling)


async def _placed(run: Run) -> Ruling:
    """Waits for a place, then runs the attempts with a snapshot before and after."""
    tool, wait = run.tool, run.shared.config.limits.gate_wait
    shared = run.shared
    gate = shared.gate(tool, isolation_of(tool, shared.stuck[tool.skill]))
    run.place = gate.try_enter() or await run.turn.wait(gate.enter(wait), run.call_id)
    if run.place is None:
        if any(name == tool.name for name, _job in shared.abandoned.values()):
            shared.stuck[tool.skill] += 1  # it is not only slow: its places are lost
        return Ruling(
            Kind.BUSY,
            f"{tool.name} is busy: {tool.flags.places} call(s) are running and none ended within "
            f"{wait:g}s. Retry later, or do something else first.",
        )
    run.began = run.shared.clock()
    run.session.emit(
        "tool.started",
        clean={"arguments": run.admitted.shown},
        call_id=run.call_id,
        tool=tool.name,
        key=run.key,
        fingerprint=run.fingerprint,
        idempotent=run.idempotent,
    )
    if not run.idempotent:
        run.session.reporter.sync()
    if tool.flags.read_only or tool.origin == "built-in":
        return await _attempts(run)
    return await _watched(run)


async def _watched(run: Run) -> Ruling:
    """The attempts, with what they changed in the workspace: also after a failure or a cancel."""
    c, root = run.shared.config.snapshot, run.session.workspace
    workers, turn = run.shared.workers, run.turn
    skip = run.shared.snapshot_skip

    def take() -> Snapshot:
        return take_snapshot(root, depth=c.depth, files=c.files, skip=skip)

    before = await turn.wait(workers.run(take), run.call_id)
    try:
        return await _attempts(run)
    finally:
        looking = workers.submit(lambda _job: take()).future
        _note_changes(run, before, await turn.see_out(looking))


def _note_changes(run: Run, before: Snapshot, looked: Outcome | None) -> None:
    after = looked.value if isinstance(looked, Returned) else None
    if after is None:
        run.notes.append("[Workspace Changes] unknown: the workspace could not be looked at")
        return
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
        if turn.cancelled:
            raise TurnCancelled
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
        await turn.wait(asyncio.sleep(delay), run.call_id)


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
    outcome = None
    try:
        outcome = await run_attempt(run.shared, run.session, run.turn, attempt)
    finally:
        run.output = attempt.output
        if attempt.running:
            run.place = None  # it leaves with the abandoned call
        if outcome is None:
            run.lose("was cancelled")
    if outcome is None:
        raise TurnCancelled
    return rule(run.tool, outcome, limit)


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


async def _degraded(run: Run, ruling: Ruling) -> ToolResult:
    answer = await degraded(run, ruling)
    return answer if isinstance(answer, ToolResult) else _finished(run, answer)


def _open_text(shared: Shared, tool: Tool, refusal: Refusal) -> str:
    others = [n for n in shared.registry.snapshot.tools if n != tool.name][:8]
    return (
        f"{tool.name} has failed repeatedly and is not called for another {refusal.seconds:.0f} s. "
        f"Do not retry it now. {'Other tools: ' + ', '.join(others) + '.' if others else ''}"
    )

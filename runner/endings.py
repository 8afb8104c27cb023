"""How a turn ends: a truthful status and an answer that is never empty."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from .state import SessionState, Shared, Turn, TurnEnded
from .types import Message, Status, TurnResult

SHOWN_CHARS = 400


def ended(
    shared: Shared,
    session: SessionState,
    turn: Turn,
    status: Status,
    answer: str,
    *,
    reason: str = "",
) -> TurnResult:
    """The turn's result, recorded."""
    result = TurnResult(
        session=session.id,
        status=status,
        answer=shared.redactor.text(answer),
        iterations=turn.iteration,
        tool_calls=turn.tool_calls,
        usage=turn.usage,
        cost=turn.cost,
        duration=shared.clock() - turn.began,
    )
    if status is not Status.COMPLETED and session.transcript[-1].role != "assistant":
        session.add(Message(role="assistant", content=f"[The turn ended: {status.value}]"))
    fields = result.to_dict()
    del fields["session"]
    if reason:
        fields["reason"] = reason
    session.emit("turn.finished", **fields)
    session.reporter.sync()
    return result


def account(turn: Turn, reason: str) -> str:
    """The runner's own account, when the model gave none: why it ended and what was found."""
    lines = [f"{reason[:1].upper()}{reason[1:]}."]
    if turn.tool_calls:
        lines.append(f"{turn.tool_calls} tool call(s) ran in {turn.iteration} iteration(s).")
    if turn.findings:
        lines.append("The last results were:")
        lines += [f"- {_short(finding)}" for finding in turn.findings[-3:]]
    lines.append("The task is not finished.")
    return "\n".join(lines)


async def in_time(shared: Shared, turn: Turn, awaitable: Awaitable[Any]) -> Any:
    """Awaits it, until the turn's time is up at most: that ends the turn, whatever a model is doing."""
    if turn.deadline is None:
        return await turn.wait(awaitable)
    try:
        async with asyncio.timeout(max(0.0, turn.deadline - shared.clock())) as limit:
            return await turn.wait(awaitable)
    except TimeoutError:
        if not limit.expired():
            raise
    raise out_of_time(turn)


def out_of_time(turn: Turn) -> TurnEnded:
    """What ends a turn whose time is up."""
    seconds = (turn.deadline or turn.began) - turn.began
    return TurnEnded(
        Status.BUDGET_EXHAUSTED,
        f"the turn took longer than {seconds:g} s (limits.turn_timeout)",
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"

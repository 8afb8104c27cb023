"""How a turn ends: a truthful status and an answer that is never empty."""

from __future__ import annotations

from .state import SessionState, Shared, Turn
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


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"

"""Old iterations in a line each, written by the model and checked before they are believed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .context import tokens
from .context.window import Block, Step
from .endings import in_time
from .errors import ModelError
from .log import get_logger
from .model.ask import ask
from .model.base import ModelRequest
from .state import SessionState, Shared, Turn, charge
from .types import Message

LINE_CHARS = 400
ASK = (
    "Summarise each numbered step below in one line, in the same order, as `N: …`. Keep every file "
    "name, identifier, number and open question. Write nothing else."
)
_IDENTIFIER = re.compile(r"[\w./-]*(?:\d[\w./-]*[A-Za-z]|[A-Za-z][\w./-]*[\d_./-])[\w./-]*\w")
_FAILED, _GIVEN_UP = "summary.failed", "summary.given_up"
log = get_logger()


async def summarise(
    shared: Shared, session: SessionState, turn: Turn, blocks: Sequence[Block]
) -> Step | None:
    """Replaces the blocks by one line each. Any failure leaves everything as it was."""
    blocks = _that_fit(session, blocks)
    if not blocks or _GIVEN_UP in session.warned:
        return None
    steps = [_described(block) for block in blocks]
    text = "\n\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))
    request = ModelRequest(
        messages=(Message(role="system", content=ASK), Message(role="user", content=text)),
        max_tokens=max(64, min(1024, session.context_window // 8)),
        context_window=session.context_window,
        timeout=session.config.model.timeout,
        stream=session.stream,
    )
    try:
        gate = shared.asking_gate(session.info, session.model.name)
        await in_time(shared, turn, gate.enter())
        try:
            reply = await in_time(
                shared,
                turn,
                ask(
                    session.model, request, next_id=session.next_id, emit=session.emit,
                    retries=0, deadline=turn.deadline, rng=shared.rng, clock=shared.clock,
                    silence=session.silence,
                ),
            )  # fmt: skip
        finally:
            gate.leave()
    except ModelError as error:
        _failed(session, str(error))
        return None
    if reply.usage is not None:
        charge(session, turn, reply.usage)
    lines = accepted(reply.text, steps)
    step = session.window.summarise(blocks, lines) if lines else None
    if step is None:
        _failed(session, "not a shorter line for each step with its identifiers")
        return None
    session.warned.discard(_FAILED)
    return step


def _failed(session: SessionState, reason: str) -> None:
    """Two failures in a row, and this model is not asked again: each costs a request."""
    session.warned.add(_GIVEN_UP if _FAILED in session.warned else _FAILED)
    log.info("summary.failed", reason=reason, again=_GIVEN_UP not in session.warned)


def accepted(text: str, steps: Sequence[str]) -> list[str]:
    """The lines, when there is one per step, each shorter than it and with its identifiers kept."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        match = re.match(r"\s*(?:[-*]\s*)?(\d+)\s*[.:)]\s*(.+)", line)
        if match:
            found.setdefault(int(match[1]), match[2].strip()[:LINE_CHARS])
    if sorted(found) != list(range(1, len(steps) + 1)):
        return []
    lines = [found[n] for n in range(1, len(steps) + 1)]
    good = all(
        len(line) < len(step) and identifiers_kept(step, line)
        for line, step in zip(lines, steps, strict=True)
    )
    return lines if good else []


def identifiers_kept(step: str, line: str) -> bool:
    """The identifiers of the step's own call must be in its line; those of its result may go."""
    call = step.split(" -> ", 1)[0]
    wanted = {w for w in _IDENTIFIER.findall(call) if len(w) <= 60}  # noqa: PLR2004 - longer is data
    return sum(w in line for w in wanted) * 2 >= len(wanted)


def _that_fit(session: SessionState, blocks: Sequence[Block]) -> list[Block]:
    room = session.context_window // 2
    chosen: list[Block] = []
    for block in blocks:
        room -= tokens.estimate(_described(block))
        if room < 0:
            break
        chosen.append(block)
    return chosen


def _described(block: Block) -> str:
    said = "; ".join(
        [f"{c.name}({c.arguments})" for m in block.messages for c in m.tool_calls]
        or [m.content for m in block.messages if m.role == "assistant"]
    )
    came = " | ".join(m.content for m in block.messages if m.role != "assistant")
    return f"{said[:600]} -> {came[:1200]}"

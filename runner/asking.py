"""One model request: the context made to fit, a valid history, and what to do when it is refused."""

from __future__ import annotations

from dataclasses import replace

from .context.history import valid
from .context.tokens import Calibration
from .context.window import Step
from .endings import in_time, out_of_time
from .errors import (
    ContextOverflow,
    ModelError,
    ModelRefused,
    ReplyUnreadable,
    RunnerError,
    ToolsUnsupported,
)
from .log import get_logger
from .model.ask import ask
from .model.base import ModelRequest
from .model.errors import counts_reply, window_in
from .offering import LEAST_BUDGET, Prepared, prepare
from .reading import said
from .state import SessionState, Shared, Turn, TurnCancelled, TurnEnded, charge
from .summary import summarise
from .types import Message, ModelReply, Status, Usage

OVERFLOW_SHARE = 0.6  # of what was too large: what the one retry may be
LEAST_WINDOW = 512  # tokens; no model that can call tools has less
REMINDER_CHARS = 600  # of the goal, when it is said again
log = get_logger()


async def ask_model(
    shared: Shared, session: SessionState, turn: Turn
) -> tuple[ModelReply, Prepared]:
    """The reply to the conversation so far. Falls back to text calls and to a smaller context."""
    while True:
        prepared = prepare(shared, session)
        await _fit(shared, session, turn, prepared)
        try:
            reply = await _ask(shared, session, turn, prepared)
            turn.overflows = 0
            return reply, prepared
        except (ToolsUnsupported, ReplyUnreadable) as error:
            if session.mode == "json":
                raise
            log.info("mode.changed", mode="json", reason=str(error))
            session.mode = "json"
        except ContextOverflow as error:
            await _shrink(shared, session, turn, error)
        except ModelRefused as error:
            if prepared.schema is None or not _about_schema(error):
                raise
            log.info("schema.refused", reason=str(error))
            session.schema_refused = True


def _about_schema(error: ModelRefused) -> bool:
    """Does the server say that it cannot hold a reply to a schema?"""
    said = str(error).lower()
    return any(word in said for word in ("format", "schema", "grammar"))


async def closing_answer(shared: Shared, session: SessionState, turn: Turn, request: str) -> str:
    """One last request, to answer with what there is. Whatever it says, no call is executed."""
    note(session, request)
    turn.overflows = 0
    while True:
        without = replace(prepare(shared, session), specs=(), spec_tokens=0, schema=None)
        await _fit(shared, session, turn, without)
        try:
            reply = await _ask(shared, session, turn, without)
        except ContextOverflow as error:
            await _shrink(shared, session, turn, error)
        else:
            return said(session, reply, without)


def note(session: SessionState, text: str) -> None:
    """Tells the model something: below a result nobody has seen yet, else as the user's message."""
    last = session.transcript[-1] if session.transcript else None
    below = last is not None and (last.role == "tool" or last.mark in _BELOW)
    session.emit("note.added", text=text, below=below)
    add_note(session, text, below=below)


def add_note(session: SessionState, text: str, *, below: bool) -> None:
    """Puts the note into the transcript and the context."""
    if below and session.transcript:
        last = session.transcript[-1]
        session.transcript[-1] = replace(last, content=f"{last.content}\n\n{text}")
        session.window.amend(text)
    else:
        session.add(Message(role="user", content=text, mark="note"))


def _request(
    session: SessionState, turn: Turn, prepared: Prepared, messages: list[Message]
) -> ModelRequest:
    config = session.config.model
    return ModelRequest(
        messages=tuple(messages),
        tools=prepared.specs,
        max_tokens=prepared.budget.reply,
        temperature=_temperature(config.temperature, turn),
        context_window=session.context_window,
        schema=prepared.schema,
        stop=_STOPS if session.mode == "json" else (),
        timeout=config.timeout,
        stream=session.stream,
    )


async def _ask(shared: Shared, session: SessionState, turn: Turn, prepared: Prepared) -> ModelReply:
    messages = await _messages(shared, session, turn)
    raw, estimate = session.window.raw, session.window.tokens
    request = _request(session, turn, prepared, messages)
    began = shared.clock()
    gate = shared.asking_gate(session.info, session.model.name)
    if turn.cancelled or not gate.try_enter():
        await in_time(shared, turn, gate.enter())
    try:
        session.emit(
            "model.requested",
            model=session.model.name,
            messages=len(messages),
            input_tokens_estimate=estimate,
            mode=session.mode,
            tools=list(prepared.offered),
        )
        reply = await _reply(shared, session, turn, request)
    finally:
        gate.leave()
    _account(session, turn, reply, raw)
    session.emit(
        "model.replied",
        text=reply.text,
        calls=[{"id": c.id, "name": c.name, "arguments": c.arguments} for c in reply.tool_calls],
        finish_reason=reply.finish,
        usage=None
        if reply.usage is None
        else {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens},
        duration=round(shared.clock() - began, 6),
    )
    return reply


async def _reply(
    shared: Shared, session: SessionState, turn: Turn, request: ModelRequest
) -> ModelReply:
    model = session.model
    asking = ask(
        model,
        request,
        next_id=session.next_id,
        emit=session.emit,
        retries=session.config.model.retries,
        on_text=session.on_text,
        on_reasoning=session.on_reasoning,
        on_restart=session.on_restart,
        deadline=turn.deadline,
        rng=shared.rng,
        clock=shared.clock,
        silence=session.silence,
    )
    try:
        reply: ModelReply = await in_time(shared, turn, asking)
    except (RunnerError, TurnCancelled, TurnEnded):
        raise
    except Exception as error:  # a plugin's model may break its promise to raise ModelError alone
        raise ModelError(f"{model.name} failed: {type(error).__name__}: {error}") from error
    return reply


async def _messages(shared: Shared, session: SessionState, turn: Turn) -> list[Message]:
    messages = session.checker.check(session.window.messages)
    if shared.plugins.has("transform_context"):
        folded = await turn.wait(
            shared.plugins.fold(
                "transform_context", "messages", list(messages), session=session.describe()
            )
        )
        messages = valid(folded)
    if turn.restate:
        turn.restate = False
        messages = _with_goal(messages, turn.goal)
    return messages


def _with_goal(messages: list[Message], goal: str) -> list[Message]:
    """The goal once more at the end, where nothing has to be cached."""
    short = goal if len(goal) <= REMINDER_CHARS else goal[:REMINDER_CHARS] + "…"
    text = f"[Reminder] The task is still: {short}"
    last = messages[-1]
    if last.role == "user":
        return [*messages[:-1], replace(last, content=f"{last.content}\n\n{text}")]
    return [*messages, Message(role="user", content=text, mark="note")]


def _account(session: SessionState, turn: Turn, reply: ModelReply, raw: int) -> None:
    usage = reply.usage or Usage()
    charge(session, turn, usage)
    if not usage.input_tokens:
        return
    if not session.calibrated:  # another model counts otherwise
        session.window.calibration, session.calibrated = Calibration(), True
    calibration = session.window.calibration
    if session.info.local and calibration.was_cut(raw, usage.input_tokens):
        _report_cut(session, usage.input_tokens, calibration.tokens(raw))
    else:
        calibration.learn(raw, usage.input_tokens)


def _report_cut(session: SessionState, evaluated: int, estimate: int) -> None:
    if "cut" in session.warned:
        return
    session.warned.add("cut")
    log.warning(
        "prompt.cut",
        evaluated=evaluated,
        estimate=estimate,
        fix="the server dropped the beginning of the prompt; raise its limit "
        "(OLLAMA_CONTEXT_LENGTH) or set [model] context_window to what it really holds",
    )


def _temperature(wanted: float, turn: Turn) -> float:
    return wanted if turn.faults < 2 else wanted / 2  # noqa: PLR2004 - lowered on a repeated failure


async def _fit(shared: Shared, session: SessionState, turn: Turn, prepared: Prepared) -> None:
    """Puts the offer at the head, and makes the whole fit into the window."""
    session.window.replace_head(prepared.head)
    session.window.overhead = prepared.spec_tokens
    if session.window.tokens > prepared.budget.request:
        await _lower(shared, session, turn, prepared.budget.request)


async def _lower(shared: Shared, session: SessionState, turn: Turn, budget: int) -> None:
    """Truncate, then summarise, then slide, until the request fits."""
    window = session.window
    if window.tokens <= budget:
        return
    await _compacted(shared, session, turn, window.truncate(budget))
    if window.tokens > budget and session.config.context.summarise:
        step = await summarise(shared, session, turn, window.oldest(budget))
        await _compacted(shared, session, turn, step)
    if window.tokens > budget:
        await _compacted(shared, session, turn, window.slide(budget))
    if window.tokens > budget and "full" not in session.warned:
        session.warned.add("full")
        log.warning("context.full", tokens=window.tokens, budget=budget, fix=_FULL)


async def _shrink(
    shared: Shared, session: SessionState, turn: Turn, error: ContextOverflow
) -> None:
    """After the provider said that the request was too large: once, and only if it helps."""
    window, before = session.window, session.window.raw
    turn.overflows += 1
    if turn.overflows > 1:
        raise error
    learned = _learns_window(session, str(error))
    room = prepare(shared, session).budget.request if learned else 0
    if window.tokens <= room * OVERFLOW_SHARE and counts_reply(str(error)):
        return  # what was too large is the room kept for the reply, which is smaller now
    budget = max(LEAST_BUDGET, int(window.tokens * OVERFLOW_SHARE))
    await _lower(shared, session, turn, budget)
    if window.tokens > budget:
        await _compacted(shared, session, turn, window.squeeze(budget))
    if window.raw >= before and window.tokens > room:
        raise error


def _learns_window(session: SessionState, said: str) -> bool:
    """A server may hold less than was thought; for the rest of the session that is what counts."""
    held = window_in(said)
    if held is None or not LEAST_WINDOW <= held < session.context_window:
        return False
    log.info("window.learned", tokens=held, thought=session.context_window)
    session.context_window, session.prepared = held, None
    return True


async def _compacted(shared: Shared, session: SessionState, turn: Turn, step: Step | None) -> None:
    if step is None:
        return
    turn.restate = True
    session.emit(
        f"context.{step.name}",
        before_tokens=step.before_tokens,
        after_tokens=step.after_tokens,
        iterations=step.iterations,
    )
    if shared.plugins.has("context_compacted"):
        await turn.wait(
            shared.plugins.notify(
                "context_compacted",
                before_tokens=step.before_tokens,
                after_tokens=step.after_tokens,
                step=step.name,
                session=session.describe(),
            )
        )


def check_budgets(shared: Shared, session: SessionState, turn: Turn) -> None:
    """Ends the turn when its tokens, its cost or its time are used up, or those of whom it works for."""
    if turn.outer is not None:
        check_budgets(shared, turn.outer.session, turn.outer.turn)
    limits = session.config.limits
    if limits.max_total_tokens and turn.usage.total >= limits.max_total_tokens:
        raise TurnEnded(
            Status.BUDGET_EXHAUSTED,
            f"{turn.usage.total} tokens used of {limits.max_total_tokens} (limits.max_total_tokens)",
        )
    if limits.max_cost and turn.cost >= limits.max_cost:
        raise TurnEnded(
            Status.BUDGET_EXHAUSTED,
            f"${turn.cost:.4f} spent of ${limits.max_cost:.4f} (limits.max_cost)",
        )
    if turn.deadline is not None and shared.clock() >= turn.deadline:
        raise out_of_time(turn)


_BELOW = frozenset({"results", "pinned", "note"})  # what a note may follow in the same message
_FULL = "shorten the task or raise [model] context_window: what must stay does not fit"
_STOPS = ("\nResult of ", "\nUser:")

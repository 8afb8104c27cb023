"""One turn, top to bottom. Read this first.

goal → context.fit → model.ask → parsing → admit → batch(gate → execute) → shape → transcript
             ▲                                                                        │
             └──────────────── again while there are tool calls ─────────────────────┘
"""

from __future__ import annotations

import asyncio

from .asking import ask_model, check_budgets, closing_answer, note
from .calls.admit import Offer, admit
from .calls.batch import Item, run_batch
from .calls.finish import Allowance, refused
from .calls.schema import checker
from .context.loopguard import Verdict
from .endings import account, ended
from .errors import ModelError
from .memory import asks_to_remember
from .model.prompt import text_results
from .offering import Prepared
from .reading import Answer, Calls, Fault, Silence, assistant_message, read_reply
from .state import SessionState, Shared, Turn, TurnCancelled, TurnEnded
from .types import JSON, Kind, Message, Status, ToolCall, ToolResult, TurnResult

NUDGES = 2
EDIT_PATIENCE = 0.2  # seconds: the debounce, a second look and the building
MOST_CALLS = 64  # of one reply; no batch worth making is larger
NUDGE = "Your reply was empty. Answer the task now, or call a tool."


async def run_turn(shared: Shared, session: SessionState, turn: Turn) -> TurnResult:
    """Iterations until there is an answer or a brake ends the turn. Always a truthful result."""
    try:
        for turn.iteration in range(1, session.config.limits.max_iterations + 1):
            session.reporter.iteration = turn.iteration
            answer = await _iterate(shared, session, turn)
            if answer is not None:
                return ended(shared, session, turn, Status.COMPLETED, answer)
        return await _closed(shared, session, turn)
    except TurnEnded as brake:
        return ended(shared, session, turn, brake.status, account(turn, brake.reason))
    except TurnCancelled:
        return ended(
            shared, session, turn, Status.CANCELLED, account(turn, "cancelled by the user")
        )
    except ModelError as error:
        reason = shared.redactor.text(str(error))
        return ended(shared, session, turn, Status.FAILED, account(turn, reason), reason=reason)


async def _iterate(shared: Shared, session: SessionState, turn: Turn) -> str | None:
    """One model request and the calls it asked for. The answer, or None to go on."""
    if shared.edits_pending():
        await _saved_edits(shared, turn)
    check_budgets(shared, session, turn)
    _prepare_context(shared, session, turn)
    reply, prepared = await ask_model(shared, session, turn)
    reading = read_reply(session, reply, prepared)
    while isinstance(reading, Silence):
        _nudge(session, turn)
        reply, prepared = await ask_model(shared, session, turn)
        reading = read_reply(session, reply, prepared)
    turn.nudges = 0
    message = assistant_message(reading, reply)
    if message is not None:
        session.add(message)
    match reading:
        case Answer(text):
            return text
        case Calls():
            turn.faults = 0
            await _run_calls(shared, session, turn, reading, prepared)
        case Fault():
            turn.faults += 1
            _tell_fault(session, turn, reading)
    return None


async def _saved_edits(shared: Shared, turn: Turn) -> None:
    """A skill that was just saved is worth the moment it takes to be loaded."""
    until = shared.clock() + EDIT_PATIENCE
    while shared.edits_pending() and shared.clock() < until:
        await turn.wait(asyncio.sleep(0.01))


async def _run_calls(
    shared: Shared, session: SessionState, turn: Turn, reading: Calls, prepared: Prepared
) -> None:
    """Decides on every call, runs those admitted, and puts one result per call into the history."""
    offer, calls = prepared.offer, reading.calls
    signature = [_canonical(call, offer) for call in calls]
    repeatable = all(_repeatable(call, offer) for call in calls)
    items = await _admitted(shared, session, turn, calls, offer)
    verdict = turn.guard.before(signature, repeatable=repeatable)
    if verdict.action == "refuse":
        session.emit("loop.refused", form=verdict.form, count=verdict.count, tool=verdict.tools)
        items = [refused(call, Kind.LOOP_REFUSED, verdict.text) for call in calls]
    allowance = Allowance.of(
        prepared.budget.messages, shared.config.results.batch_chars, len(calls)
    )
    results = await run_batch(shared, session, turn, calls, items, allowance)
    _remember(session, turn, calls, results, offer, in_text=reading.in_text)
    if turn.cancelled:
        raise TurnCancelled
    _judge(session, turn.guard.after(signature, results, repeatable=repeatable), repeatable)


async def _admitted(
    shared: Shared, session: SessionState, turn: Turn, calls: tuple[ToolCall, ...], offer: Offer
) -> list[Item]:
    items: list[Item] = []
    for number, call in enumerate(calls):
        if number >= MOST_CALLS:
            why = f"not run: at most {MOST_CALLS} calls can be made in one reply; ask again for the rest"
            items.append(refused(call, Kind.BUSY, why))
            continue
        try:
            items.append(await admit(shared, session, turn, call, offer))
        except TurnCancelled:
            items.append(refused(call, Kind.CANCELLED, "not run: cancelled before it was decided"))
    return items


def _remember(
    session: SessionState,
    turn: Turn,
    calls: tuple[ToolCall, ...],
    results: list[ToolResult],
    offer: Offer,
    *,
    in_text: bool,
) -> None:
    """One message per result; results of calls that came as text go back as text, together."""
    if in_text:
        content = text_results((r.tool, r.content) for r in results)
        opened = any(r.tool == "use_skill" and r.ok for r in results)
        session.add(Message(role="user", content=content, mark="pinned" if opened else "results"))
    for call, result in zip(calls, results, strict=True):
        if not in_text:
            session.add(
                Message(
                    role="tool", content=result.content, tool_call_id=call.id, tool=result.tool,
                    mark="pinned" if result.tool == "use_skill" and result.ok else "",
                )
            )  # fmt: skip
        if result.kind is not Kind.LOOP_REFUSED:
            turn.findings.append(f"{result.tool}: {result.content}")
        if result.tool in offer.tools:
            turn.used[result.tool] = offer.tools[result.tool].parameters
    del turn.findings[:-6]


def _judge(session: SessionState, verdict: Verdict, repeatable: bool = False) -> None:
    """Passes a loop notice on, or stops the turn."""
    if verdict.action == "notice":
        session.emit(
            "loop.noticed",
            form=verdict.form,
            count=verdict.count,
            tool=verdict.tools,
            repeatable=repeatable,
        )
        note(session, verdict.text)
    elif verdict.action == "stop":
        raise TurnEnded(
            Status.LOOP_STOPPED,
            f"the model repeated itself {verdict.count} times without progress ({verdict.tools})",
        )


def _tell_fault(session: SessionState, turn: Turn, fault: Fault) -> None:
    note(session, f"[Not run: {fault.reason}] {fault.detail}")
    verdict = turn.guard.after((), (), text=f"{fault.reason}: {fault.said}")
    if verdict.action == "stop":
        _judge(session, verdict)


def _prepare_context(shared: Shared, session: SessionState, turn: Turn) -> None:
    """What the model has to hear before it is asked: changed tools, steering, the goal again."""
    tools = shared.registry.snapshot.tools
    for name, parameters in list(turn.used.items()):
        now = tools.get(name)
        if now is not None and now.parameters != parameters:
            turn.used[name] = now.parameters
            note(session, _changed_parameters(name, parameters, now.parameters))
    while turn.steered:
        text = turn.steered.pop(0)
        session.may_remember = session.may_remember or asks_to_remember(text)
        session.emit("note.added", text=text, below=False)
        session.add(Message(role="user", content=text))
    every = session.config.context.restate_goal_every
    if turn.iteration > 1 and (turn.iteration - 1) % every == 0:
        turn.restate = True


def _changed_parameters(name: str, before: JSON, now: JSON) -> str:
    old, new = before.get("properties") or {}, now.get("properties") or {}
    added, removed = [n for n in new if n not in old], [n for n in old if n not in new]
    changed = [n for n in new if n in old and new[n] != old[n]]
    parts = []
    if len(added) == len(removed) == 1:
        parts.append(f"{removed[0]} is now called {added[0]}")
    else:
        parts += [f"added: {', '.join(added)}"] if added else []
        parts += [f"removed: {', '.join(removed)}"] if removed else []
    parts += [f"changed: {', '.join(changed)}"] if changed else []
    what = "; ".join(parts) or "which are required has changed"
    return f"[Tool changed] {name} was edited; its parameters are now {', '.join(new) or 'none'} ({what})."


def _nudge(session: SessionState, turn: Turn) -> None:
    turn.nudges += 1
    if turn.nudges > NUDGES:
        raise TurnEnded(
            Status.FAILED,
            f"the model gave an empty reply {turn.nudges} times; another model or a larger window may help",
        )
    note(session, NUDGE)


async def _closed(shared: Shared, session: SessionState, turn: Turn) -> TurnResult:
    """The limit is reached: one request to answer with what there is; no call is executed."""
    most = session.config.limits.max_iterations
    reason = f"stopped after {most} iterations, the limit (limits.max_iterations)"
    request = (
        f"[Limit reached] This was iteration {most} of {most}: no more tools will run. Answer the "
        "task now with what you have found, and say what is missing."
    )
    try:
        check_budgets(shared, session, turn)
        text = await closing_answer(shared, session, turn, request)
    except ModelError:
        text = ""
    if text:
        session.add(Message(role="assistant", content=text))
    answer = f"{text}\n\n[{reason}]" if text else account(turn, reason)
    return ended(shared, session, turn, Status.MAX_ITERATIONS, answer)


def _canonical(call: ToolCall, offer: Offer) -> tuple[str, JSON]:
    tool = offer.tools.get(call.name)
    if tool is None or call.fault:
        return call.name, {**call.arguments, "_fault": call.fault} if call.fault else call.arguments
    return tool.name, checker(tool.parameters).with_defaults(call.arguments)


def _repeatable(call: ToolCall, offer: Offer) -> bool:
    tool = offer.tools.get(call.name)
    return tool is not None and tool.flags.repeatable

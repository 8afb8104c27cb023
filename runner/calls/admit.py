"""Decide before anything runs. Returns what to run, or already the result."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from ..log import get_logger
from ..parsing import resolve_name
from ..plugins import HookFailed
from ..state import SessionState, Shared, Turn, TurnCancelled
from ..types import Admitted, Decision, Kind, Tool, ToolCall, ToolResult
from .clean import clean
from .finish import named, refused
from .permissions import Verdict
from .schema import checker, describe

MOST_NAME = 200  # characters of a name that no tool has, in what is said about it
REPEAT = "repeat"  # what is asked about a call that was lost
log = get_logger()


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of one iteration: what the model was shown, and what exists besides."""

    tools: dict[str, Tool]
    known: dict[str, Tool]
    disabled: frozenset[str] = frozenset()
    generation: int = 0


async def admit(
    shared: Shared, session: SessionState, turn: Turn, call: ToolCall, offer: Offer
) -> Admitted | ToolResult:
    """Fault, snapshot, schema, policy, hooks, question: in this order, the first refusal counts."""
    if turn.cancelled:
        raise TurnCancelled
    if call.fault:
        return refused(call, Kind.UNPARSABLE, f"not run: {call.fault}")
    tool = _found(call, offer)
    if isinstance(tool, ToolResult):
        return tool
    admitted = _checked(shared, call, tool)
    if isinstance(admitted, ToolResult):
        return admitted
    return await _permitted(shared, session, turn, admitted)


def _found(call: ToolCall, offer: Offer) -> Tool | ToolResult:
    name = resolve_name(call.name, offer.tools)
    if name is not None:
        return offer.tools[name]
    name = resolve_name(call.name, offer.known) or call.name
    if name in offer.disabled:
        return refused(call, Kind.DISABLED, f"tool {name} is disabled; use another way")
    if name in offer.known:
        how = (
            "find it with tool_search first" if "tool_search" in offer.tools else "use one of those"
        )
        return refused(
            call,
            Kind.NOT_OFFERED,
            f"tool {name} exists but was not offered this time; {how}: {named(list(offer.tools))}",
        )
    said = clean(call.name[:MOST_NAME])  # the model made it up: it may hold anything
    near = get_close_matches(said, offer.tools, 1, 0.6)
    hint = f" Did you mean {near[0]}?" if near else ""
    there = f"Available: {named(list(offer.tools))}." if offer.tools else "There are no tools now."
    advice = "" if near else " What no tool does, work out yourself from the results, and answer."
    return refused(call, Kind.UNKNOWN_TOOL, f"unknown tool: {said}.{hint} {there}{advice}")


def _checked(shared: Shared, call: ToolCall, tool: Tool) -> Admitted | ToolResult:
    check = checker(tool.parameters)
    arguments = call.arguments
    coerced: tuple[str, ...] = ()
    if shared.config.limits.coerce == "lossless":
        arguments, coerced = check.coerced(arguments)
    problems = check.problems(arguments)
    if problems:
        text = describe(tool.name, tool.parameters, problems, tool.examples)
        return replace(refused(call, Kind.INVALID_ARGUMENTS, text), tool=tool.name)
    if arguments is not call.arguments or call.name != tool.name:
        call = replace(call, name=tool.name, arguments=arguments)
    return Admitted(call, tool, shared.redactor.value(arguments), coerced)


async def _permitted(
    shared: Shared, session: SessionState, turn: Turn, admitted: Admitted
) -> Admitted | ToolResult:
    call, tool = admitted.call, admitted.tool
    verdict = _verdict(shared, session, call, tool)
    if verdict.action == "deny":
        return refused(call, Kind.DENIED, f"not allowed: {verdict.reason}. Do without, or say so.")
    decision = await guarded(shared, session, turn, call, tool)
    if isinstance(decision, ToolResult):
        return decision
    if decision.arguments is not None:
        again = _checked(shared, replace(call, arguments=decision.arguments), tool)
        if isinstance(again, ToolResult):
            return again
        admitted = again
        verdict = _verdict(shared, session, again.call, tool)
        if verdict.action == "deny":
            return refused(call, Kind.DENIED, f"not allowed: {verdict.reason}")
    if verdict.action == "ask":
        asked = await _asked(shared, session, turn, admitted, verdict)
        if not isinstance(asked, Admitted):
            return asked
        admitted = asked
    if not session.ledger.any_lost:
        return admitted
    return await _repeat_approved(shared, session, turn, admitted)


def _verdict(shared: Shared, session: SessionState, call: ToolCall, tool: Tool) -> Verdict:
    return session.policy.decide(
        tool,
        call.arguments,
        extracted=call.source == "extracted",
        protected=shared.protected,
        workspace=session.workspace,
    )


async def guarded(
    shared: Shared, session: SessionState, turn: Turn, call: ToolCall, tool: Tool
) -> Decision | ToolResult:
    """What the `pre_tool_use` hooks say: go on, perhaps with other arguments, or already the result."""
    if not shared.plugins.has("pre_tool_use"):
        return _GO_ON
    try:
        decision: Decision | None = await turn.wait(
            shared.plugins.first(
                "pre_tool_use", Decision, call=_own(call), tool=tool, session=session.describe()
            )
        )
    except HookFailed as error:
        return refused(call, Kind.DENIED, f"not run: a guard failed, so it stays shut: {error}")
    if decision is None:
        return _GO_ON
    match decision.action:
        case "allow" if decision.arguments is None:
            return _GO_ON
        case "allow" if isinstance(decision.arguments, dict):
            return decision
        case "allow":
            what = type(decision.arguments).__name__
            return refused(call, Kind.DENIED, f"not run: a guard changed the arguments to {what}")
        case "deny":
            return refused(
                call, Kind.DENIED, f"not allowed: {decision.reason or 'a hook denied it'}"
            )
        case "answer":
            return replace(refused(call, Kind.OK, str(decision.content)), tool=tool.name)
    return refused(
        call, Kind.DENIED, f"pre_tool_use answered an unknown action {decision.action!r}"
    )


async def _asked(
    shared: Shared, session: SessionState, turn: Turn, admitted: Admitted, verdict: Verdict
) -> Admitted | ToolResult:
    """Asks a hook or a person; nobody to ask, no answer in time and a failing hook all mean no."""
    call, tool = admitted.call, admitted.tool
    remembered = f"{tool.name}:{verdict.capability}"
    lasting = verdict.capability != REPEAT  # each lost call is a question of its own
    if lasting and session.remembered.get(remembered):
        return replace(admitted, approved=True)
    somebody = shared.approver is not None or shared.plugins.has("permission_request")
    if not somebody:
        return refused(
            call,
            Kind.DENIED,
            f"not allowed: {verdict.reason}, and there is nobody to ask. Do without it, or tell the "
            "user that it needs permission.",
        )
    await turn.wait(shared.asking.acquire())  # one question at a time, whichever session asks
    try:
        session.emit(
            "approval.asked",
            call_id=call.id,
            tool=tool.name,
            capability=verdict.capability,
            reason=verdict.reason,
        )
        decision, why = await _answer(shared, session, turn, call, tool)
        session.emit(
            "approval.answered",
            call_id=call.id,
            tool=tool.name,
            capability=verdict.capability,
            decision=decision,
        )
    finally:
        shared.asking.release()
    if decision == "deny":
        return refused(call, Kind.DENIED, f"not allowed: {why}. Do without it, or ask the user.")
    if decision == "allow_session" and lasting:
        session.remembered[remembered] = True
    return replace(admitted, approved=True)


async def _answer(
    shared: Shared, session: SessionState, turn: Turn, call: ToolCall, tool: Tool
) -> tuple[str, str]:
    info, call = session.describe(), _own(call)
    try:
        said = await turn.wait(
            shared.plugins.first("permission_request", bool, call=call, tool=tool, session=info)
        )
    except HookFailed as error:
        return "deny", str(error)
    if said is not None:
        return ("allow", "") if said else ("deny", "permission was refused by a plugin")
    if shared.approver is None:
        return "deny", "there is nobody to ask"
    limit = shared.config.permissions.ask_timeout or None
    try:
        async with asyncio.timeout(limit):
            answer: Any = await turn.wait(shared.approver(call, tool, info))
    except TimeoutError:
        return "deny", f"nobody answered within {limit:g} s" if limit else "asking timed out"
    except TurnCancelled:
        raise
    except Exception as error:  # noqa: BLE001 - the host's own approver: who cannot ask, has no yes
        log.warning("approver.failed", error=repr(error))
        return "deny", f"the question could not be asked ({type(error).__name__})"
    if answer is True or (isinstance(answer, str) and answer in {"allow", "allow_session"}):
        return (answer, "") if isinstance(answer, str) else ("allow", "")
    return "deny", "the user refused it"


async def _repeat_approved(
    shared: Shared, session: SessionState, turn: Turn, admitted: Admitted
) -> Admitted | ToolResult:
    """A call whose outcome is unknown may be repeated when a person says so; not by `--yes`."""
    call, tool = admitted.call, admitted.tool
    lost = session.ledger.lost(session.ledger.fingerprint(tool.name, call.arguments))
    person = shared.approver is not None and not getattr(shared.approver, "automatic", False)
    if lost is None or not person or tool.flags.reconcile:
        return admitted
    verdict = Verdict("ask", REPEAT, f"this same call {lost.how} earlier and may have happened")
    answer = await _asked(shared, session, turn, admitted, verdict)
    return replace(admitted, repeat=True) if isinstance(answer, Admitted) else admitted


def _own(call: ToolCall) -> ToolCall:
    """For code that is not ours: what it does to the arguments does not reach the call."""
    return replace(call, arguments=copy.deepcopy(call.arguments))


_GO_ON = Decision("allow")

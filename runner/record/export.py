"""A session for other programs: plain data, or a test that plays it again."""

from __future__ import annotations

from pprint import pformat
from typing import Any

from ..errors import RecordError
from ..types import JSON, Kind
from .turns import RecordedCall, RecordedReply, RecordedTurn, Story

REPEATABLE = {"completed", "max_iterations", "loop_stopped"}
_RESULT = ("attempts", "duration", "degraded_by", "changes", "spilled_to", "coerced", "output")


def as_dict(told: Story) -> JSON:
    """The session as nested data: turns, iterations, calls."""
    return {
        "session": told.session,
        "model": told.model,
        "skills": list(told.skills),
        "turns": [_turn(turn) for turn in told.turns],
    }


def as_test(told: Story) -> str:
    """A pytest file: the recorded replies, the skills as they are, the same calls and answers.

    Turns from the first one on that cannot be repeated (cancelled, failed, out of budget) are
    left out. A turn that was taken back runs and is taken back again, for what its tools did stayed
    done; one that cannot be repeated is left out alone.
    """
    goals, turns, skipped = _repeated(told)
    if not turns:
        raise RecordError(
            f"session {told.session!r} has no finished turn that a test could repeat; "
            "export another session, or leave out --test"
        )
    calls = [call for turn in turns for reply in turn.replies for call in reply.calls]
    skip = _skip(calls)
    values = {
        "NAME": told.session,
        "LEFT_OUT": _left_out(len(told.turns) - len(turns) - skipped, skipped),
        "PYTEST": "import pytest\n\n" if skip else "",
        "SKIP": skip,
        "REPLIES": _literal([_scripted(r) for turn in turns for r in turn.replies]),
        "GOALS": _literal(goals),
        "CALLS": _literal([(c.tool, c.arguments, c.kind) for c in calls if c.finished]),
        "STATUSES": _literal([turn.status for turn in turns]),
        "ANSWERS": _literal([turn.answer for turn in turns if turn.status == "completed"]),
    }
    text = TEST
    for name, value in values.items():
        text = text.replace(f"@@{name}@@", value.replace("@@", "@\\x40"))
    return text


def _repeated(told: Story) -> tuple[list[str | None], list[RecordedTurn], int]:
    """The goals, None for a turn taken back; their turns; how many taken back cannot be repeated."""
    goals: list[str | None] = []
    turns: list[RecordedTurn] = []
    skipped = 0
    for turn in told.turns:
        if turn.status in REPEATABLE:
            turns.append(turn)
            goals.append(turn.goal)
        elif turn.undone_after:
            skipped += 1
        else:
            break
        goals += [None for undone in told.undone_after(turn) if undone in turns]
    return goals, turns, skipped


def _turn(turn: RecordedTurn) -> JSON:
    finished = turn.finished or {}
    return {
        "turn": turn.number,
        "goal": turn.goal,
        "status": turn.status,
        "answer": turn.answer,
        "undone": turn.undone_after > 0,
        "usage": finished.get("usage"),
        "cost": finished.get("cost"),
        "duration": finished.get("duration"),
        "iterations": [_reply(reply) for reply in turn.replies],
    }


def _reply(reply: RecordedReply) -> JSON:
    return {
        "number": reply.number,
        "iteration": reply.iteration,
        "text": reply.text,
        "finish_reason": reply.finish,
        "usage": dict(reply.usage) or None,
        "duration": reply.duration,
        "calls": [_call(call) for call in reply.calls],
        "brakes": [{k: b.get(k) for k in ("type", "form", "count", "tool")} for b in reply.brakes],
        "notes": [str(note.get("text", "")) for note in reply.notes],
    }


def _call(call: RecordedCall) -> JSON:
    finished = call.finished or {}
    return {
        "id": call.id,
        "tool": call.tool,
        "arguments": call.arguments,
        "kind": call.kind or None,
        "content": call.content,
        **{name: finished.get(name) for name in _RESULT},
    }


def _scripted(reply: RecordedReply) -> JSON:
    """The reply as a script of `ScriptedModel` has it."""
    made: dict[str, Any] = {}
    if reply.text:
        made["text"] = reply.text
    if reply.native:
        made["calls"] = [{"name": c.tool, "arguments": _sent(c)} for c in reply.calls]
    if reply.finish not in {"stop", "tool_calls"}:
        made["finish"] = reply.finish
    return made


def _sent(call: RecordedCall) -> JSON | str:
    return "unreadable" if call.kind == Kind.UNPARSABLE else call.arguments


def _literal(value: Any) -> str:
    return pformat(value, width=96, sort_dicts=False)


def _left_out(last: int, undone: int) -> str:
    said = ""
    if last:
        said += f"\nIts last {last} turn(s) are left out: they did not end by themselves.\n"
    if undone:
        said += f"\n{undone} turn(s) that were taken back are left out: they did not end by themselves.\n"
    return said


def _skip(calls: list[RecordedCall]) -> str:
    """A mark that says why the test cannot run as it is."""
    redacted = sum(call.redacted for call in calls)
    if redacted:
        reason = f"arguments of {redacted} call(s) were redacted when it was recorded; fill them in"
    elif any(call.tool == "agent" and call.queued for call in calls):
        reason = "it started sub-agents, whose replies are not in this file; add them to REPLIES"
    else:
        return ""
    return f"@pytest.mark.skip(reason={reason!r})\n"


TEST = '''\
"""Session @@NAME@@ as a test: what the model said then, run with the skills as they are now.
@@LEFT_OUT@@
Run it from the project's folder. Tools work in the workspace of config/runner.toml; set WORKSPACE
to a copy when they change files. It allows what was allowed when the session was recorded.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

@@PYTEST@@from runner import Runner, ScriptedModel

WORKSPACE: Path | None = None

GOALS = @@GOALS@@  # None: the last turn is taken back

REPLIES = @@REPLIES@@

CALLS = @@CALLS@@

STATUSES = @@STATUSES@@

ANSWERS = @@ANSWERS@@


@@SKIP@@def test_the_session_goes_as_it_was_recorded(tmp_path: Path) -> None:
    events: list[dict] = []
    results = asyncio.run(_run(tmp_path, events))
    assert _calls(events) == CALLS
    assert [result.status for result in results] == STATUSES
    assert [result.answer for result in results if result.status == "completed"] == ANSWERS


async def _run(folder: Path, events: list[dict]) -> list:
    options = {"paths.state": folder / "state", "watch.backend": "off"}
    if WORKSPACE is not None:
        options["paths.workspace"] = WORKSPACE
    runner = Runner.from_config(
        options=options, model=ScriptedModel({"replies": REPLIES}), approver=_as_recorded
    )
    async with runner, runner.session(listeners=[lambda e: events.append(e.to_dict())]) as session:
        results = [await (session.run(goal) if goal else session.undo()) for goal in GOALS]
    return [result for result, goal in zip(results, GOALS) if goal]


async def _as_recorded(call, tool, session) -> bool:
    return any(c[:2] == (call.name, call.arguments) and c[2] != "denied" for c in CALLS)


def _calls(events: list[dict]) -> list[tuple[str, dict, str]]:
    asked = {
        call["id"]: (call["name"], call["arguments"])
        for event in events
        if event["type"] in {"model.replied", "reply.parsed"}
        for call in event.get("calls") or []
    }
    finished = {e["call_id"]: e["kind"] for e in events if e["type"] == "tool.finished"}
    return [(*asked[call_id], finished[call_id]) for call_id in asked if call_id in finished]
'''

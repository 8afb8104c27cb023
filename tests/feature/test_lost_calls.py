"""A call whose outcome is unknown is repeated only when a person said so."""

from __future__ import annotations

import asyncio
import threading

import trajectories as t

from runner import Runner, ScriptedModel
from runner.catalog.functions import tool_from

CALL = t.call("pay", amount=5)


def asked(tmp_path, approver):
    """What two equal calls of a tool that needs a permission come to; the first one hangs."""
    ran, free, kinds = [], threading.Event(), []

    def pay(amount: int) -> str:
        """Pays."""
        ran.append(amount)
        if len(ran) == 1:
            free.wait(5)
        return "paid"

    tool = tool_from(pay, timeout=0.1, permissions=("net",), max_concurrency=2)

    def heard(event):
        if event.type == "tool.finished":
            kinds.append(event.data["kind"])

    async def run():
        model = ScriptedModel({"replies": [CALL, CALL, t.say("done")]})
        settings = t.config(tmp_path)
        async with Runner(model=model, skills=[tool], config=settings, approver=approver) as runner:
            await runner.run("pay", listeners=[heard])
        free.set()

    asyncio.run(run())
    return kinds, len(ran)


def test_yes_to_everything_is_no_leave_to_repeat_a_lost_call(tmp_path):
    async def yes(call, tool, session):
        return True

    yes.automatic = True
    assert asked(tmp_path, yes) == (["outcome_unknown", "outcome_unknown"], 1)


def test_leave_for_the_session_is_no_leave_to_repeat_a_lost_call(tmp_path):
    answers = iter(["allow_session", "deny"])

    async def person(call, tool, session):
        return next(answers)

    assert asked(tmp_path, person) == (["outcome_unknown", "outcome_unknown"], 1)


def test_a_person_may_have_a_lost_call_repeated(tmp_path):
    async def person(call, tool, session):
        return "allow"

    assert asked(tmp_path, person) == (["outcome_unknown", "ok"], 2)

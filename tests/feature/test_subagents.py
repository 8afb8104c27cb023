"""Sub-agents: their own context and limits, a truthful report, nothing that their parent may not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trajectories as t

from runner import Runner, ScriptedModel, SkillContext, TurnResult, hookimpl
from runner.catalog.functions import as_skill
from runner.events import Event
from runner.model.base import ModelInfo
from runner.record.resume import rebuild
from runner.subagent import REPORT_CHARS
from runner.types import Flags, Tool

CHILD = "You work on one task for another agent"  # of every sub-agent's system prompt, and no other


def echo(text: str) -> str:
    """Says the text."""
    return f"echo: {text}"


def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


def slow(seconds: float, ctx: SkillContext) -> str:
    """Waits."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not ctx.cancelled():
        time.sleep(0.01)
    return "waited"


def go_to(folder: str, ctx: SkillContext) -> str:
    """Changes the directory."""
    (ctx.workspace / folder).mkdir(exist_ok=True)
    ctx.change_directory(ctx.workspace / folder)
    return f"now in {folder}"


def where(ctx: SkillContext) -> str:
    """Where are we?"""
    return ctx.cwd.name


@dataclass
class Played:
    """What came of a run: its result, its events and what the model was sent."""

    result: TurnResult
    events: list[Event] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [e.to_dict() for e in self.events if e.type in types]

    def finished(self, tool: str) -> list[dict[str, Any]]:
        return [e for e in self.of("tool.finished") if e["tool"] == tool]

    def of_child(self) -> list[Any]:
        return [r for r in self.requests if CHILD in r.messages[0].content]

    @property
    def report(self) -> str:
        return str(next(e for e in self.finished("agent") if e["session"] == "s1")["content"])


def agent(task: str = "look around", **more: Any) -> dict[str, Any]:
    return t.call("agent", task=task, **more)


def together(*replies: dict[str, Any]) -> dict[str, Any]:
    return {"calls": [call for reply in replies for call in reply["calls"]]}


def tool(function: Any, *needs: str, **flags: Any) -> Tool:
    """A function as a tool that needs something."""
    made = as_skill(function).tools[0]
    return Tool(
        name=made.name, description=made.description, parameters=made.parameters,
        flags=Flags(permissions=needs, **flags), skill=made.skill, origin="object", load=made.load,
    )  # fmt: skip


def play(
    folder: Path, replies: list[Any], child: list[Any], *, goal: str = "the goal", during: Any = None,
    skills: Any = (echo, pay, slow, go_to, where), tables: Any = None, usage: Any = None, **objects: Any,
) -> Played:  # fmt: skip
    """Runs one goal; the parent takes `replies`, every sub-agent `child`."""
    rules = [{"contains": CHILD, "replies": child}]
    model = ScriptedModel({"replies": replies, "rules": rules, "context_length": 65536})
    events: list[Event] = []

    async def main() -> TurnResult:
        config = t.config(folder, **(tables or {}))
        async with (
            Runner(model=model, skills=skills, config=config, **objects) as runner,
            runner.session("s1", listeners=[events.append]) as session,
        ):
            task = asyncio.ensure_future(session.run(goal))
            if during is not None:
                await during(session, events, runner)
            return await asyncio.wait_for(task, 20)

    return Played(asyncio.run(main()), events, model.requests)


async def until(condition: Any, seconds: float = 5.0) -> None:
    """Waits for something that other tasks bring about."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


def seen(events: list[Event], type_: str, **fields: Any) -> bool:
    return any(
        e.type == type_ and all(e.to_dict().get(k) == v for k, v in fields.items()) for e in events
    )


# What it is


def test_an_agent_works_on_its_task_alone_and_the_parent_gets_its_report(tmp_path):
    played = play(tmp_path, [agent("count the files"), t.say("seven")], [t.say("there are 7")])
    assert played.result.answer == "seven"
    assert played.report == "there are 7"
    first = played.of_child()[0]
    assert [m.content for m in first.messages[1:]] == ["count the files"]
    assert "the goal" not in first.messages[0].content


def test_its_own_calls_stay_out_of_the_parents_context(tmp_path):
    child = [t.call("echo", text="child work"), t.say("done")]
    played = play(tmp_path, [agent(), t.say("ok")], child)
    parent = played.requests[-1].messages
    assert "child work" not in str(parent)
    assert [m.role for m in parent] == ["system", "user", "assistant", "tool"]


def test_its_events_are_in_the_parents_stream_with_its_session_and_its_parent(tmp_path):
    played = play(tmp_path, [agent(), t.say("ok")], [t.call("echo", text="a"), t.say("done")])
    own = [e for e in played.events if e.session == "s1.call_0001"]
    assert {e.to_dict()["parent"] for e in own} == {"s1"}
    assert [e.type for e in own][:2] == ["agent.started", "turn.started"]
    assert [e.type for e in own][-2:] == ["turn.finished", "agent.finished"]
    assert "tool.finished" in {e.type for e in own}
    started, finished = played.of("agent.started", "agent.finished")
    assert (started["agent"], finished["status"]) == ("default", "completed")
    assert [e.seq for e in played.events] == sorted(e.seq for e in played.events)


def test_several_agents_of_one_reply_work_at_the_same_time(tmp_path):
    child = [t.call("slow", seconds=0.4), t.call("slow", seconds=0.4), t.say("a"), t.say("b")]
    first = together(agent("one"), agent("two"))
    played = play(tmp_path, [first, t.say("ok")], child, skills=[_apart(slow)])
    order = [e["type"] for e in played.of("agent.started", "agent.finished")]
    assert order == ["agent.started"] * 2 + ["agent.finished"] * 2
    assert {e["content"] for e in played.finished("agent")} == {"a", "b"}
    assert [m.tool_call_id for m in played.requests[-1].messages if m.role == "tool"] == [
        *("call_0001", "call_0002")
    ]


def _apart(function: Any) -> Tool:
    return tool(function, concurrent=True)


# No recursion


@pytest.mark.parametrize(
    "asks",
    [
        agent("deeper"),
        t.say('{"tool": "agent", "params": {"task": "deeper"}}'),
        t.say('```json\n{"name": "agent", "arguments": {"task": "deeper"}}\n```'),
        agent("deeper", agent="deep"),
    ],
    ids=["natively", "as-text", "as-a-block", "by-its-own-role"],
)
@pytest.mark.parametrize("role", [{}, {"agent": "deep"}], ids=["default", "named"])
def test_an_agent_cannot_start_another_one(tmp_path, asks, role):
    tables = {"agents": {"deep": {"description": "digs", "skills": ["agent", "echo"]}}}
    child = [asks, t.say("did it alone")]
    played = play(tmp_path, [agent(**role), t.say("ok")], child, tables=tables)
    assert len(played.of("agent.started")) == 1
    assert all("agent" not in [s.name for s in r.tools] for r in played.of_child())
    refused = [e for e in played.finished("agent") if e["session"] != "s1"]
    assert {e["kind"] for e in refused} <= {"not_offered", "unknown_tool"}
    assert played.report == "did it alone"


def test_searching_for_tools_finds_no_agent_and_no_skill_it_may_not_have(tmp_path):
    many = [_named(f"tool_{n}") for n in range(50)]
    search = t.call("tool_search", query="agent helper tool_7 tool_8")
    child = [search, agent("deeper"), t.say("none")]
    tables = {"agents": {"narrow": {"skills": [as_skill(many[7]).name]}}, "limits": {"max_offered_tools": 2}}  # fmt: skip
    for role in ({}, {"agent": "narrow"}):
        played = play(tmp_path, [agent(**role), t.say("ok")], list(child), skills=many, tables=tables)  # fmt: skip
        assert len(played.of("agent.started")) == 1
        assert "tool_8" not in str(played.finished("tool_search")) or not role
        assert "- agent" not in str(played.finished("tool_search"))


def _named(name: str) -> Any:
    def function(text: str = "") -> str:
        """Does something."""
        return text

    function.__name__ = name
    return function


# Truthful reports


def _finds(count: int) -> list[Any]:
    words = ["river", "stone", "cloud", "maple", "amber", "copper", "violet", "meadow", "harbor"]
    return [t.call("echo", text=f"{word} was found") for word in words[:count]]


def test_an_agent_gets_ten_requests_and_the_last_one_is_for_its_report(tmp_path):
    tables = {"loop": {"warn": 50, "refuse": 60, "stop": 70}}
    played = play(tmp_path, [agent(), t.say("ok")], [*_finds(9), t.say("what I have")], tables=tables)  # fmt: skip
    assert len(played.of_child()) == 10
    assert played.of_child()[-1].tools == ()
    assert played.of("agent.finished")[0]["status"] == "max_iterations"
    assert played.finished("agent")[0]["kind"] == "failed"
    assert "max_iterations" in played.report
    assert "what I have" in played.report


def test_a_capped_agent_without_words_of_its_own_reports_what_it_found(tmp_path):
    tables = {"loop": {"warn": 50, "refuse": 60, "stop": 70}, "agents": {"short": {"max_iterations": 4}}}  # fmt: skip
    played = play(tmp_path, [agent(agent="short"), t.say("ok")], _finds(10), tables=tables)
    assert len(played.of_child()) == 4
    assert "cloud was found" in played.report
    assert "completed" not in played.report


def test_a_parent_with_fewer_iterations_lends_no_more_than_it_has(tmp_path):
    tables = {"loop": {"warn": 50, "refuse": 60, "stop": 70}, "limits": {"max_iterations": 5}}
    played = play(tmp_path, [agent(), t.say("ok")], _finds(10), tables=tables)
    assert len(played.of_child()) == 5


def test_an_agent_in_a_loop_says_that_it_was_stopped(tmp_path):
    child = [t.call("echo", text="again")] * 9
    played = play(tmp_path, [agent(), t.say("ok")], child)
    assert played.of("agent.finished")[0]["status"] == "loop_stopped"
    assert "loop_stopped" in played.report
    assert "again" in played.report


def test_an_agent_whose_model_fails_says_why(tmp_path):
    child = [t.call("echo", text="half of it"), {"status": 401, "body": "no such key"}]
    played = play(tmp_path, [agent(), t.say("ok")], child)
    assert played.result.status == "completed"
    assert played.of("agent.finished")[0]["status"] == "failed"
    assert "failed" in played.report
    assert "half of it" in played.report


def test_a_tool_that_crashes_in_an_agent_is_the_agents_matter(tmp_path):
    def broken() -> str:
        """Raises."""
        raise RuntimeError("boom")

    child = [t.call("broken"), t.say("it broke")]
    played = play(tmp_path, [agent(), t.say("ok")], child, skills=[broken])
    assert played.finished("broken")[0]["kind"] == "crashed"
    assert played.report == "it broke"


def test_a_model_that_cannot_be_had_is_a_failed_call_that_names_the_agent(tmp_path):
    tables = {"agents": {"lost": {"model": "scripted/nowhere.json"}}}
    played = play(tmp_path, [agent(agent="lost"), t.say("ok")], [], tables=tables)
    assert played.finished("agent")[0]["kind"] == "failed"
    assert "lost" in played.report
    assert "nowhere.json" in played.report
    assert played.of("agent.started") == []


@pytest.mark.parametrize(
    "text", ["HEAD " + "many words " * 5000, "HEAD\n" + "many\nlines\n" * 9000]
)
def test_a_long_report_is_cut_and_kept_whole_in_a_file(tmp_path, text):
    played = play(
        tmp_path,
        [agent(), t.call("read_result", name="X", offset=1, limit=2), t.say("ok")],
        [t.say(text)],
    )
    assert played.report.startswith("HEAD")
    assert 4500 < len(played.report) <= REPORT_CHARS
    name = played.report.split('read_result("')[1].split('"')[0]
    assert (tmp_path / "state" / "spills" / "s1" / name).read_text() == text.strip()
    assert "read_result" in [s.name for s in played.requests[-1].tools]


def test_a_report_of_just_the_size_is_left_alone(tmp_path):
    text = "x" * 3000 + "\n" + "y" * (REPORT_CHARS - 3001)
    played = play(tmp_path, [agent(), t.say("ok")], [t.say(text)])
    assert played.report == text


# Money and time


def test_what_an_agent_uses_is_its_parents(tmp_path):
    child = [t.call("echo", text="a"), t.say("done")]
    played = play(tmp_path, [agent(), t.say("ok")], child)
    assert (played.result.usage.input_tokens, played.result.usage.output_tokens) == (400, 80)
    own = next(e for e in played.of("turn.finished") if e["session"] != "s1")
    assert own["usage"] == {"input_tokens": 200, "output_tokens": 40}


class Priced(ScriptedModel):
    """A scripted model whose tokens cost something."""

    def cost(self, usage: Any) -> float:
        return usage.total / 100.0


def test_what_an_agent_costs_is_its_parents(tmp_path):
    script = {"replies": [agent(), t.say("ok")], "rules": [{"contains": CHILD, "replies": [t.say("done")]}]}  # fmt: skip

    async def main() -> TurnResult:
        async with Runner(model=Priced(script), config=t.config(tmp_path)) as runner:
            return await runner.run("go")

    assert asyncio.run(main()).cost == pytest.approx(3 * 1.2)


def test_the_parents_budget_ends_the_agent_and_then_the_parent(tmp_path):
    tables = {"limits": {"max_total_tokens": 400}}
    child = [t.call("echo", text=f"{n}") for n in range(9)]
    played = play(tmp_path, [agent(), t.say("never")], child, tables=tables)
    assert len(played.requests) == 4  # 480 tokens: the fifth request is never made
    assert played.of("agent.finished")[0]["status"] == "budget_exhausted"
    assert played.result.status == "budget_exhausted"


def test_agents_side_by_side_share_the_parents_budget(tmp_path):
    tables = {"limits": {"max_total_tokens": 700}}
    child = [t.call("echo", text=f"{n}") for n in range(20)]
    played = play(tmp_path, [together(agent("a"), agent("b")), t.say("never")], child, tables=tables)  # fmt: skip
    assert len(played.requests) <= 7
    assert played.result.status == "budget_exhausted"


def test_an_agents_own_budget_leaves_its_parent_going(tmp_path):
    tables = {"agents": {"poor": {"max_total_tokens": 200}}}
    child = [t.call("echo", text=f"{n}") for n in range(9)]
    played = play(tmp_path, [agent(agent="poor"), t.say("went on")], child, tables=tables)
    assert played.of("agent.finished")[0]["status"] == "budget_exhausted"
    assert played.result.answer == "went on"


def test_an_agent_ends_with_its_parents_time(tmp_path):
    tables = {"limits": {"turn_timeout": 0.5}, "agents": {"long": {"turn_timeout": 60}}}
    child = [t.call("slow", seconds=20.0), t.say("never")]
    began = time.monotonic()
    played = play(tmp_path, [agent(agent="long"), t.say("never")], child, tables=tables)
    assert time.monotonic() - began < 3
    assert played.of("agent.finished")[0]["status"] == "budget_exhausted"
    assert played.result.status == "budget_exhausted"


# Ending it


@pytest.mark.parametrize(
    "doing",
    [
        {"hang": True},
        t.call("slow", seconds=30.0),
        together(t.call("slow", seconds=30.0), t.call("slow", seconds=29.0)),
    ],
    ids=["while-it-asks", "while-it-runs-a-tool", "while-it-runs-several"],
)
def test_cancelling_the_parent_cancels_the_agent_within_two_seconds(tmp_path, doing):
    took = 0.0

    async def during(session, events, runner):
        nonlocal took
        await until(lambda: seen(events, "model.requested", session="s1.call_0001"))
        if "calls" in doing:
            await until(lambda: seen(events, "tool.started", tool="slow"))
        began = time.monotonic()
        session.cancel()
        await until(lambda: seen(events, "turn.finished", session="s1"))
        took = time.monotonic() - began

    child = [doing, t.say("never")]
    played = play(tmp_path, [agent(), t.say("never")], child, during=during, skills=[_apart(slow)])
    assert took < 2
    assert played.result.status == "cancelled"
    assert played.of("agent.finished")[0]["status"] == "cancelled"
    assert played.finished("agent")[0]["kind"] == "cancelled"
    calls = [e for e in played.of("tool.finished") if e["session"] != "s1"]
    assert {e["kind"] for e in calls} <= {"cancelled"}


def test_one_agent_can_be_cancelled_and_its_findings_are_kept(tmp_path):
    async def during(session, events, runner):
        await until(lambda: seen(events, "tool.started", tool="slow"))
        assert session.cancel_call("call_0001")

    child = [t.call("echo", text="river"), t.call("slow", seconds=30.0), t.say("never")]
    played = play(tmp_path, [agent(), t.say("went on")], child, during=during)
    assert played.result.answer == "went on"
    assert played.finished("agent")[0]["kind"] == "cancelled"
    assert "river" in played.report


def test_a_cancelled_agent_can_be_called_again(tmp_path):
    async def during(session, events, runner):
        await until(lambda: seen(events, "tool.started", tool="slow"))
        assert session.cancel_call("call_0001")

    child = [t.call("slow", seconds=30.0), t.say("done now")]
    played = play(tmp_path, [agent("same"), agent("same"), t.say("ok")], child, during=during)
    assert [e["kind"] for e in played.finished("agent")] == ["cancelled", "ok"]


def test_saying_something_to_the_parent_ends_the_agent_so_that_it_is_heard(tmp_path):
    async def during(session, events, runner):
        await until(lambda: seen(events, "tool.started", tool="slow"))
        began = time.monotonic()
        session.steer("never mind the files")
        await until(lambda: seen(events, "note.added", text="never mind the files"))
        assert time.monotonic() - began < 2

    child = [t.call("echo", text="river"), t.call("slow", seconds=30.0), t.say("never")]
    played = play(tmp_path, [agent(), t.say("as you wish")], child, during=during)
    assert played.result.answer == "as you wish"
    assert "river" in played.report
    assert played.requests[-1].messages[-1].content.endswith("never mind the files")


# Roles


def test_a_role_has_its_own_model_prompt_skills_and_limits(tmp_path):
    script = {"replies": [t.call("echo", text="hi"), t.call("pay", amount=1), t.say("planned")]}
    (tmp_path / "plan.json").write_text(json.dumps(script))
    skills = [echo, pay]
    role = {
        "model": "scripted/plan.json", "prompt": "You plan.", "skills": [as_skill(echo).name],
        "description": "plans the work",
    }  # fmt: skip
    played = play(
        tmp_path, [agent(agent="planner"), t.say("ok")], [], skills=skills,
        tables={"agents": {"planner": role}},
    )  # fmt: skip
    assert played.report == "planned"
    assert played.of("agent.started")[0]["model"] == "scripted/plan.json"
    asked = [e for e in played.of("model.requested") if e["session"] != "s1"]
    assert {tuple(e["tools"]) for e in asked} == {("echo",)}
    assert played.finished("pay")[0]["kind"] == "not_offered"
    spec = next(s for s in played.requests[0].tools if s.name == "agent")
    assert spec.parameters["properties"]["agent"]["enum"] == ["planner"]
    assert "plans the work" in spec.parameters["properties"]["agent"]["description"]


def test_a_role_that_does_not_exist_is_named_with_those_that_do(tmp_path):
    tables = {"agents": {"planner": {}}}
    played = play(tmp_path, [agent(agent="painter"), t.say("ok")], [], tables=tables)
    assert played.finished("agent")[0]["kind"] == "invalid_arguments"
    assert "planner" in played.report


def test_a_role_with_a_skill_nobody_has_is_a_warning(tmp_path):
    async def main() -> list[str]:
        config = t.config(tmp_path, agents={"reader": {"skills": ["fils"]}})
        async with Runner(model=ScriptedModel({}), config=config) as runner:
            return runner.warnings

    assert asyncio.run(main()) == ["agents.reader.skills: there is no skill 'fils'"]


def test_a_role_sees_only_the_instructions_of_its_own_skills(tmp_path):
    for name in ("mine", "other"):
        folder = tmp_path / "skills" / name
        folder.mkdir(parents=True)
        front = f"---\nname: {name}\ndescription: How {name} is done.\n---\n"
        (folder / "SKILL.md").write_text(f"{front}Do {name}.\n")
    tables = {"agents": {"narrow": {"skills": ["mine"]}}, "paths": {"skills": ["skills"]}}
    child = [
        t.call("use_skill", name="mine"),
        t.call("use_skill", name="other"),
        t.call("read_skill_file", name="other", path="SKILL.md"),
        t.say("done"),
    ]
    played = play(tmp_path, [agent(agent="narrow"), t.say("ok")], child, skills=[], tables=tables)
    kinds = [e["kind"] for e in played.of("tool.finished") if e["session"] != "s1"]
    assert kinds == ["ok", "failed", "failed"]
    assert "How mine is done" in played.of_child()[0].messages[0].content
    assert "How other is done" not in str(played.of_child())
    assert "How other is done" in played.requests[0].messages[0].content


@pytest.mark.parametrize(
    ("policy", "role", "kind"),
    [
        ({"exec": "allow"}, {"exec": "deny"}, "denied"),
        ({"exec": "deny"}, {"exec": "allow"}, "denied"),
        ({"exec": "ask"}, {"exec": "allow"}, "denied"),  # nobody to ask
        ({"exec": "allow"}, {"exec": "allow"}, "ok"),
        ({"exec": "allow"}, {"tools": {"pay": "deny"}}, "denied"),
        ({"tools": {"pay": "deny"}, "exec": "allow"}, {"tools": {"pay": "allow"}}, "denied"),
    ],
)
def test_a_role_only_narrows_what_its_parent_may(tmp_path, policy, role, kind):
    played = play(
        tmp_path, [agent(agent="worker"), t.say("ok")], [t.call("pay", amount=1), t.say("done")],
        skills=[tool(pay, "exec")], tables={"permissions": policy, "agents": {"worker": {"permissions": role}}},
    )  # fmt: skip
    assert played.finished("pay")[0]["kind"] == kind


def test_an_agents_calls_ask_the_same_person_who_is_told_which_agent_asks(tmp_path):
    asked = []

    async def approver(call, tool, session):
        asked.append((call.arguments["amount"], session.agent, session.parent))
        return "allow_session"

    pays = [t.call("pay", amount=n) for n in (1, 2)]
    played = play(
        tmp_path, [agent(agent="cashier"), t.call("pay", amount=3), t.say("ok")], [*pays, t.say("done")],
        skills=[tool(pay, "exec")], tables={"agents": {"cashier": {}}}, approver=approver,
    )  # fmt: skip
    assert [e["kind"] for e in played.finished("pay")] == ["ok"] * 3
    assert asked == [(1, "cashier", "s1")]  # an answer for the session holds for all of it


def test_hooks_see_an_agents_calls_and_whose_they_are(tmp_path):
    heard = []

    class Guard:
        @hookimpl
        def pre_tool_use(self, call, session):
            heard.append((call.name, session.id, session.parent, session.agent))

    child = [t.call("echo", text="a"), t.say("done")]
    play(tmp_path, [agent(), t.say("ok")], child, plugins=[Guard()])
    assert heard == [
        ("agent", "s1", None, None),
        ("echo", "s1.call_0001", "s1", "default"),
    ]


def test_an_agents_working_directory_is_its_own(tmp_path):
    child = [t.call("where"), t.call("go_to", folder="below"), t.call("where"), t.say("done")]
    first = [t.call("go_to", folder="above"), agent(), t.call("where"), t.say("ok")]
    played = play(tmp_path, first, child)
    assert [e["content"] for e in played.finished("where")] == ["above", "below", "above"]


def test_a_call_an_agent_lost_is_not_made_again_by_anyone(tmp_path):
    tables = {"limits": {"tool_timeout": 0.2}}
    lost = t.call("slow", seconds=1.0)
    child = [lost, lost, t.say("not known"), lost, t.say("still not")]
    played = play(tmp_path, [agent("a"), agent("b"), lost, t.say("ok")], child, tables=tables)
    assert [e["kind"] for e in played.finished("slow")] == ["outcome_unknown"] * 4
    assert len([e for e in played.of("tool.started") if e["tool"] == "slow"]) == 1


# The record


def test_a_resumed_parent_knows_the_report_and_none_of_the_agents_own_work(tmp_path):
    child = [t.call("echo", text="child work"), t.say("done")]
    play(tmp_path, [agent(), t.say("ok")], child)
    rebuilt = rebuild(t.records(tmp_path / "state/sessions/s1.jsonl"), "s1")
    assert [(m.role, m.content) for m in rebuilt.messages] == [
        *(("user", "the goal"), ("assistant", ""), ("tool", "done"), ("assistant", "ok"))
    ]
    assert (rebuilt.turns, rebuilt.ids) == (1, 1)
    assert rebuilt.lost == {}


def test_a_crash_in_an_agents_call_leaves_that_call_lost_for_its_parent(tmp_path):
    child = [t.call("pay", amount=7), t.say("done")]
    play(tmp_path, [agent(), t.say("ok")], child)
    records = t.records(tmp_path / "state/sessions/s1.jsonl")
    cut = next(i for i, r in enumerate(records) if r["type"] == "tool.finished")
    rebuilt = rebuild(records[:cut], "s1")
    assert {lost.tool for lost in rebuilt.lost.values()} == {"agent", "pay"}


def test_the_status_board_shows_agents_at_work(tmp_path):
    board: dict[str, Any] = {}

    async def during(session, events, runner):
        await until(lambda: seen(events, "tool.started", tool="slow"))
        board.update(runner.status())
        session.cancel()

    play(tmp_path, [agent(), t.say("ok")], [t.call("slow", seconds=30.0)], during=during)
    assert [(s["id"], s["parent"], s["agent"]) for s in board["sessions"]] == [
        *(("s1", None, None), ("s1.call_0001", "s1", "default"))
    ]
    assert sorted((c["session"], c["tool"]) for c in board["calls"]) == [
        *(("s1", "agent"), ("s1.call_0001", "slow"))
    ]
    assert board["slots"]["used"] == 1


def test_an_agent_whose_model_hangs_ends_with_its_parents_time(tmp_path):
    tables = {"limits": {"turn_timeout": 0.5}}
    began = time.monotonic()
    played = play(tmp_path, [agent(), t.say("never")], [{"hang": True}], tables=tables)
    assert time.monotonic() - began < 3
    assert played.of("agent.finished")[0]["status"] == "budget_exhausted"
    assert played.result.status == "budget_exhausted"


@pytest.mark.parametrize("reply", [{"hang": True}, {"text": "x" * 5000, "delay": 9}])
def test_a_turns_time_is_up_whatever_its_model_is_doing(tmp_path, reply):
    began = time.monotonic()
    played = play(tmp_path, [reply], [], tables={"limits": {"turn_timeout": 0.3}})
    assert time.monotonic() - began < 3
    assert played.result.status == "budget_exhausted"
    assert "0.3 s (limits.turn_timeout)" in played.result.answer


def test_an_agents_own_time_leaves_its_parent_going(tmp_path):
    tables = {"agents": {"quick": {"turn_timeout": 0.3}}}
    child = [t.call("echo", text="river"), t.call("slow", seconds=20.0), t.say("never")]
    played = play(tmp_path, [agent(agent="quick"), t.say("went on")], child, tables=tables)
    assert played.result.answer == "went on"
    assert played.of("agent.finished")[0]["status"] == "budget_exhausted"
    assert "river" in played.report


def test_a_question_an_agent_asks_ends_when_the_parent_is_cancelled(tmp_path):
    asked = asyncio.Event()

    async def approver(call, tool, session):
        asked.set()
        await asyncio.Event().wait()

    async def during(session, events, runner):
        await asyncio.wait_for(asked.wait(), 5)
        session.cancel()

    played = play(
        tmp_path, [agent(), t.say("never")], [t.call("pay", amount=1), t.say("never")],
        skills=[tool(pay, "exec")], approver=approver, during=during,
    )  # fmt: skip
    assert played.result.status == "cancelled"
    assert played.of("agent.finished")[0]["status"] == "cancelled"
    assert played.of("tool.started")[-1]["tool"] == "agent"


def test_a_model_that_is_given_tools_as_text_has_agents_when_roles_are_configured(tmp_path):
    def asks(**params: Any) -> dict[str, Any]:
        return t.say(json.dumps({"tool": "agent", "params": params}))

    tables = {"model": {"tool_mode": "json"}, "agents": {"helper": {"description": "helps"}}}
    child = [t.say('{"tool": "echo", "params": {"text": "hi"}}'), t.say("it said hi")]
    played = play(tmp_path, [asks(task="look", agent="helper"), t.say("ok")], child, tables=tables)
    assert played.report == "it said hi"
    assert '"agent"' not in played.of_child()[0].messages[0].content


def test_a_replay_of_the_parent_takes_the_report_as_it_was(tmp_path):
    config = tmp_path / "config/runner.toml"
    config.parent.mkdir()
    config.write_text('[paths]\nstate = "state"\nskills = []\n')
    child = [t.call("echo", text="child work"), t.say("done")]
    play(tmp_path, [agent(), t.say("ok")], child)
    line = [sys.executable, "-m", "runner", "trace", "replay", "s1", "--json"]
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "diverge" not in done.stderr


KILLED = """
import asyncio, os, sys
from runner import Runner, ScriptedModel, SkillContext

def pay(amount: int) -> str:
    '''Pays.'''
    with open("paid.txt", "a") as file:
        file.write(f"{amount}\\n")
    os._exit(9)

CHILD = "You work on one task for another agent"
pays = {"calls": [{"name": "pay", "arguments": {"amount": 7}}]}
lead = [{"calls": [{"name": "agent", "arguments": {"task": sys.argv[1]}}]}, {"text": "ok"}]
rules = [{"contains": CHILD, "replies": [pays, {"text": "the agent could not"}]}]
config = {"paths": {"skills": [], "state": "state"}}
model = ScriptedModel({"replies": lead, "rules": rules})
events = []
result = Runner(model=model, skills=[pay], config=config).run_sync("go", session="s1", listeners=[events.append])
kinds = [(e.data["tool"], e.data["kind"]) for e in events if e.type == "tool.finished"]
print(result.status, kinds)
"""


def test_a_process_that_died_in_an_agents_payment_never_pays_again(tmp_path):
    def run(task: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", KILLED, task]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip

    assert run("pay the bill").returncode == 9
    again = run("pay the bill")
    assert again.stdout.split("\n")[0] == "completed [('agent', 'outcome_unknown')]", again.stderr
    other = run("pay it after all")
    assert "('pay', 'outcome_unknown'), ('agent', 'ok')" in other.stdout, other.stderr
    assert (tmp_path / "paid.txt").read_text() == "7\n"


def test_models_of_this_machine_share_their_requests_and_every_other_has_its_own(tmp_path):
    async def main() -> None:
        async with Runner(model=ScriptedModel({}), config=t.config(tmp_path)) as runner:
            gate = runner.shared.asking_gate
            here, there = ModelInfo(name="x", local=True), ModelInfo(name="x")
            assert gate(here, "ollama/a") is gate(here, "ollama/b")
            assert gate(there, "openai/a") is not gate(there, "anthropic/b")
            assert (gate(here, "ollama/a").limit, gate(there, "openai/a").limit) == (1, 5)
            assert gate(runner.info, runner.info.name) is runner.shared.model_gate

    asyncio.run(main())


# A planner and its executors

PLAN = """\
[model]
name = "scripted/lead.json"
[limits]
max_iterations = 6
[paths]
skills = []
state = "state"
[watch]
backend = "off"
[agents.planner]
description = "splits a job into tasks that can be done side by side"
model = "scripted/planner.json"
prompt = "Write one task per line into plan.txt. Each task names its input and its output file."
permissions = { exec = "deny" }
[agents.executor]
description = "does one task of the plan"
model = "scripted/executor.json"
"""


def note(name: str, text: str, ctx: SkillContext) -> str:
    """Writes a file of the workspace."""
    ctx.path(name, write=True).write_text(text)
    return f"wrote {name}"


def read(name: str, ctx: SkillContext) -> str:
    """Reads a file of the workspace."""
    return ctx.path(name).read_text()


def test_a_planner_and_executors_share_their_work_through_files_and_task_texts(tmp_path):
    write, look = tool(note, "fs.write"), tool(read, "fs.read", read_only=True, concurrent=True)
    scripts = {
        "lead": [
            agent("Plan: count the words of a.txt and b.txt", agent="planner"),
            t.call("read", name="plan.txt"),
            together(agent("a.txt -> a.out", agent="executor"), agent("b.txt -> b.out", agent="executor")),
            together(t.call("read", name="a.out"), t.call("read", name="b.out")),
            t.say("a has 2, b has 3"),
        ],
        "planner": [t.call("note", name="plan.txt", text="a.txt -> a.out\nb.txt -> b.out"), t.say("planned 2 tasks")],
    }  # fmt: skip
    rules = [
        {"contains": f"{n}.txt ->", "replies": [t.call("note", name=f"{n}.out", text=f"{k} words"), t.say(f"{n} done")]}
        for n, k in (("a", 2), ("b", 3))
    ]  # fmt: skip
    for name, replies in scripts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"replies": replies}))
    (tmp_path / "executor.json").write_text(json.dumps({"replies": [], "rules": rules}))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/runner.toml").write_text(PLAN + '[permissions]\n"fs.write" = "allow"\n')
    events: list[Event] = []

    async def main() -> TurnResult:
        runner = Runner.from_config(tmp_path / "config/runner.toml", skills=[write, look])
        async with runner:
            return await runner.run("Count the words", listeners=[events.append])

    result = asyncio.run(main())
    assert result.answer == "a has 2, b has 3"
    assert (tmp_path / "a.out").read_text() == "2 words"
    agents = [e.to_dict() for e in events if e.type == "agent.finished"]
    assert [(e["agent"], e["status"]) for e in agents] == [
        ("planner", "completed"),
        *[("executor", "completed")] * 2,
    ]
    assert result.usage.input_tokens == 100 * 11

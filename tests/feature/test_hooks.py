"""Hooks: shell commands, plugins and a skill's own. Guards stay shut when they fail, observers only watch."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
import turn_kit as k
from skill_kit import one_tool, write

from runner import Decision, PluginError, hookimpl

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def echo(text: str) -> str:
    """Says it again."""
    RAN.append(text)
    return f"echo {text}"


ONE = [k.call("echo", text="a"), k.say("done")]


def shell(tmp_path, before=(), after=(), timeout=5.0, replies=ONE):
    """One turn with shell hooks."""
    return k.run(
        tmp_path, replies, echo,
        config=k.settings(
            tmp_path, hooks={"pre_tool_use": list(before), "post_tool_use": list(after)},
            plugins={"hook_timeout": timeout},
        ),
    )  # fmt: skip


def gone(pid: int) -> bool:
    """True once the process does not run any more."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


# ---- shell commands -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("command", "kind", "says"),
    [
        ("exit 0", "ok", "echo a"),
        ("echo 'not on Sundays' >&2; exit 2", "denied", "not on Sundays"),
        ("exit 2", "denied", "denied it"),
        ("echo broken >&2; exit 1", "denied", "exit code 1"),
        ("/no/such/command", "denied", "exit code 127"),
        ("kill -9 $$", "denied", "exit code -9"),
        ('grep -q \'"text": "a"\'', "ok", "echo a"),
        ("yes | head -c 30000000 >&2; exit 2", "denied", "y"),
        ("yes | head -c 30000000; exit 0", "ok", "echo a"),
        ("exec 0<&- 1>&- 2>&-; exit 0", "ok", "echo a"),
    ],
)
def test_a_command_before_a_call_decides_by_its_exit_code(tmp_path, command, kind, says):
    made = shell(tmp_path, before=[command])
    assert made.kinds == [kind]
    assert says in made.finished[0]["content"]
    assert len(made.finished[0]["content"]) < 10_000
    assert (RAN == ["a"]) == (kind == "ok")


def test_the_first_command_that_denies_ends_the_question(tmp_path):
    file = tmp_path / "asked"
    made = shell(tmp_path, before=[f"echo 1 >> {file}; exit 2", f"echo 2 >> {file}"])
    assert made.kinds == ["denied"]
    assert file.read_text() == "1\n"


def test_a_command_is_told_the_call_and_afterwards_its_result(tmp_path):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    shell(tmp_path, before=[f"cat > {before}"], after=[f"cat > {after}; exit 1"])
    asked, told = json.loads(before.read_text()), json.loads(after.read_text())
    assert asked["call"]["name"] == "echo"
    assert asked["call"]["arguments"] == {"text": "a"}
    assert told["result"] == {"kind": "ok", "ok": True, "content": "echo a"}
    assert asked["session"] == told["session"] == "s1"


def test_a_command_that_hangs_denies_and_is_killed_with_all_it_started(tmp_path):
    pids = tmp_path / "pids"
    command = f"sleep 60 & echo $! >> {pids}; sh -c 'echo $$ >> {pids}; sleep 60' & echo $$ >> {pids}; wait"
    made = shell(tmp_path, before=[command], timeout=0.5)
    assert made.kinds == ["denied"]
    assert RAN == []
    found = [int(pid) for pid in pids.read_text().split()]
    assert len(found) == 3
    assert all(map(gone, found))


def test_a_command_that_leaves_a_child_with_its_output_is_not_waited_for_longer_than_its_time(
    tmp_path,
):
    pids = tmp_path / "pids"
    made = shell(tmp_path, before=[f"sleep 60 & echo $! > {pids}; exit 0"], timeout=0.5)
    assert made.kinds == ["denied"]
    assert gone(int(pids.read_text()))


def test_a_command_that_puts_work_into_the_background_properly_is_left_to_it(tmp_path):
    pids = tmp_path / "pids"
    made = shell(tmp_path, before=[f"sleep 60 >/dev/null 2>&1 & echo $! > {pids}"])
    assert made.kinds == ["ok"]
    pid = int(pids.read_text())
    os.kill(pid, 0)
    os.kill(pid, 9)


def test_commands_after_a_call_only_watch(tmp_path):
    made = shell(tmp_path, after=["exit 2", "echo no >&2; exit 1", "sleep 60"], timeout=0.2)
    assert made.kinds == ["ok"]
    assert made.finished[0]["content"] == "echo a"


def test_a_cancelled_turn_kills_the_command_it_waits_for(tmp_path):
    pids = tmp_path / "pids"

    async def test():
        config = k.settings(tmp_path, hooks={"pre_tool_use": [f"echo $$ > {pids}; sleep 60"]})
        async with k.turns(tmp_path, ONE, echo, config=config) as made, k.opened(made) as session:
            task = asyncio.ensure_future(session.run("go"))
            while not pids.exists() or not pids.read_text():  # noqa: ASYNC110 - a process says so
                await asyncio.sleep(0.005)
            session.cancel()
            assert (await asyncio.wait_for(task, 2)).status == "cancelled"
        assert gone(int(pids.read_text()))
        assert made.kinds == ["cancelled"]

    k.go(test)


# ---- plugins --------------------------------------------------------------------------------------
class Everything:
    """Implements every observing hook and notes what it was told."""

    def __init__(self):
        self.told: list[tuple[str, object]] = []

    @hookimpl
    def session_started(self, session):
        self.told.append(("session_started", session.id))

    @hookimpl
    async def turn_finished(self, result, session):
        self.told.append(("turn_finished", result.status.value))

    @hookimpl
    def session_finished(self, session):
        self.told.append(("session_finished", session.id))

    @hookimpl
    def transform_context(self, messages, session):
        self.told.append(("transform_context", len(messages)))

    @hookimpl
    def pre_tool_use(self, call, tool, session):
        self.told.append(("pre_tool_use", call.name))

    @hookimpl
    def post_tool_use(self, call, result, session):
        self.told.append(("post_tool_use", result.kind.value))


def test_hooks_are_reached_in_the_order_of_a_turn(tmp_path):
    plugin = Everything()
    k.run(tmp_path, ONE, echo, plugins=[plugin])
    assert plugin.told == [
        ("session_started", "s1"),
        ("transform_context", 2),
        ("pre_tool_use", "echo"),
        ("post_tool_use", "ok"),
        ("transform_context", 4),
        ("turn_finished", "completed"),
        ("session_finished", "s1"),
    ]


def test_a_turn_that_never_began_is_finished_too(tmp_path):
    plugin = Everything()

    async def test():
        config = k.settings(tmp_path, limits={"slots": 1})
        hang = k.Hang()

        def long() -> str:
            hang.wait()
            return "x"

        replies = [k.call("long"), k.say("1")]
        tool = k.tool(long, timeout=60)
        async with k.turns(tmp_path, replies, tool, plugins=[plugin], config=config) as made:
            first = asyncio.ensure_future(k.one_turn(made, session="a"))
            await hang.reached()
            async with k.opened(made, "b") as session:
                second = asyncio.ensure_future(session.run("go"))
                await made.heard("slot.waiting")
                session.cancel()
                await second
            hang.free.set()
            await first
        assert plugin.told.count(("turn_finished", "cancelled")) == 1

    k.go(test)


def test_a_plugin_that_fails_everywhere_changes_nothing_but_what_it_guards(tmp_path):
    class Broken:
        @hookimpl
        def session_started(self, session):
            raise RuntimeError

        @hookimpl
        def transform_context(self, messages, session):
            raise SystemExit("x")

        @hookimpl
        def post_tool_use(self, call, result, session):
            raise KeyError("x")

        @hookimpl
        def event_emitted(self, event):
            raise ValueError(event.type)

        @hookimpl
        def turn_finished(self, result, session):
            raise RuntimeError

        @hookimpl
        async def session_finished(self, session):
            raise RuntimeError

    working = Everything()
    made = k.run(tmp_path, ONE, echo, plugins=[Broken(), working])
    assert (made.result.status, made.kinds, RAN) == ("completed", ["ok"], ["a"])
    assert len(working.told) == 7, "one plugin's failure hides nothing from another"


def test_messages_may_be_transformed_for_one_request_only(tmp_path):
    from runner.types import Message

    class Adds:
        @hookimpl
        def transform_context(self, messages, session):
            return [*messages, Message(role="user", content="added by a plugin")]

    made = k.run(tmp_path, ONE, echo, plugins=[Adds()])
    assert [str(r.messages).count("added by a plugin") for r in made.model.requests] == [1, 1]
    assert made.all_valid()


def test_a_transformation_that_breaks_the_history_is_mended(tmp_path):
    class Breaks:
        @hookimpl
        def transform_context(self, messages, session):
            return [m for m in messages if m.role != "tool"]

    made = k.run(tmp_path, ONE, echo, plugins=[Breaks()])
    assert made.result.answer == "done"
    assert made.all_valid()


def test_plugins_hear_that_the_context_was_made_smaller(tmp_path):
    heard = []

    class Hears:
        @hookimpl
        def context_compacted(self, before_tokens, after_tokens, step, session):
            heard.append((step, before_tokens > after_tokens))

    def large() -> str:
        return "a long text of many words " * 300

    replies = [*(k.call("large") for _ in range(6)), k.say("done")]
    made = k.run(
        tmp_path, replies, k.tool(large, repeatable=True), plugins=[Hears()],
        model={"context_window": 4096, "max_tokens": 256}, context={"summarise": False},
    )  # fmt: skip
    told = [t.removeprefix("context.") for t in made.types if t.startswith("context.")]
    assert heard == [(step, True) for step in told]
    assert heard


def test_every_event_reaches_plugins_in_order_and_no_turn_waits_for_them(tmp_path):
    hang = k.Hang()
    seen: list[int] = []

    class Slow:
        @hookimpl
        def event_emitted(self, event):
            if not seen:
                hang.wait()
            seen.append(event.seq)

    async def test():
        config = k.settings(tmp_path, plugins={"hook_timeout": 30.0})
        async with k.turns(tmp_path, ONE, echo, plugins=[Slow()], config=config) as made:
            result = await asyncio.wait_for(k.one_turn(made), 10)
            assert result.status == "completed"
            assert seen == [], "the turn ended while the plugin was still at the first event"
            hang.free.set()
        assert seen == [e.seq for e in made.events if e.type != "session.started"] or seen == [
            e.seq for e in made.events
        ]

    k.go(test)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def pre_tool_uze(call, tool, session): ...", "pre_tool_use"),
        ("def pre_tool_use(call, tol, session): ...", "tol"),
    ],
)
def test_a_misspelt_hook_or_argument_is_an_error_at_the_start(tmp_path, source, says):
    (tmp_path / "guard.py").write_text(f"from runner import hookimpl\n@hookimpl\n{source}\n")
    with pytest.raises(PluginError, match=says):
        k.run(tmp_path, ONE, echo, config=k.settings(tmp_path, plugins={"modules": ["guard.py"]}))


def test_a_guard_in_a_file_of_the_project_is_loaded_by_its_path(tmp_path):
    (tmp_path / "guard.py").write_text(
        "from runner import Decision, hookimpl\n@hookimpl\n"
        "def pre_tool_use(call):\n    return Decision('deny', 'by the file')\n"
    )
    made = k.run(
        tmp_path, ONE, echo, config=k.settings(tmp_path, plugins={"modules": ["guard.py"]})
    )
    assert made.kinds == ["denied"]
    assert "by the file" in made.finished[0]["content"]


# ---- a skill's own hooks --------------------------------------------------------------------------
GUARD = """
from runner import Decision, hookimpl

def guard():
    return "ok"

@hookimpl
{kind} pre_tool_use(call, tool, session):
    {body}
"""


def guard_skill(folder: Path, body: str, kind: str = "def", hooks: str = "pre_tool_use") -> None:
    """Writes the skill whose module guards calls."""
    source = GUARD.format(body=body, kind=kind)
    write(folder / "skills", one_tool("guard", source, top=f"hooks = ['{hooks}']"))


def deny(text: str) -> str:
    return f"return Decision('deny', '{text}') if call.name == 'echo' else None"


def live(tmp_path):
    """A config that loads the skills folder."""
    return {"paths": {"skills": [str(tmp_path / "skills")]}}


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_skill_guards_from_the_start_and_off_the_core_loop(tmp_path, kind):
    body = "import threading; " + deny("on ' + threading.current_thread().name + '")
    guard_skill(tmp_path, body, kind)
    made = k.run(tmp_path, ONE, echo, **live(tmp_path))
    assert made.kinds == ["denied"]
    assert "on runner-worker" in made.finished[0]["content"]


def test_a_skills_hooks_are_swapped_kept_when_broken_and_gone_with_it(tmp_path):
    guard_skill(tmp_path, deny("first version"))

    async def test():
        replies = [*([k.call("echo", text="a")] * 4), k.say("x")]
        async with k.turns(
            tmp_path, replies, echo, loop={"warn": 50, "refuse": 60, "stop": 70}, **live(tmp_path)
        ) as made:
            hooks, registry = made.runner._skill_hooks, made.runner.shared.registry

            async def reloaded():
                made.runner.shared.registry.refresh()
                await hooks.follow(registry.snapshot)

            step = iter(
                [
                    lambda: None,
                    lambda: guard_skill(tmp_path, deny("second version")),
                    lambda: guard_skill(tmp_path, "raise Syntax Error("),
                    lambda: __import__("shutil").rmtree(tmp_path / "skills" / "guard"),
                ]
            )

            class Edits:
                @hookimpl
                async def transform_context(self, messages, session):
                    change = next(step, None)
                    if change is not None:
                        change()
                        await reloaded()

            made.runner.shared.plugins.register(Edits(), "edits")
            await k.one_turn(made)
        assert made.kinds == ["denied", "denied", "denied", "ok"]
        said = [one["content"] for one in made.finished]
        assert "first version" in said[0]
        assert "second version" in said[1]
        assert "second version" in said[2], "a broken edit keeps the last good guard"

    k.go(test)


def test_of_two_reloads_at_once_the_newer_wins(tmp_path):
    guard_skill(tmp_path, deny("one"))

    async def test():
        async with k.turns(tmp_path, ONE, echo, **live(tmp_path)) as made:
            hooks, registry = made.runner._skill_hooks, made.runner.shared.registry
            guard_skill(tmp_path, "import time; time.sleep(0); " + deny("two"))
            registry.refresh()
            two = registry.snapshot
            guard_skill(tmp_path, deny("three"))
            registry.refresh()
            await asyncio.gather(hooks.follow(two), hooks.follow(registry.snapshot))
            await k.one_turn(made)
        assert "three" in made.finished[0]["content"]

    k.go(test)


def test_a_hook_named_but_not_marked_is_a_fault_of_the_skill(tmp_path):
    source = "def guard():\n    return 'ok'\ndef pre_tool_use(call):\n    return None\n"
    write(tmp_path / "skills", one_tool("guard", source, top="hooks = ['pre_tool_use']"))

    async def test():
        async with k.turns(tmp_path, ONE, echo, **live(tmp_path)) as made:
            problems = made.runner.status()["skills"]["problems"]
            assert [(p["name"], p["state"]) for p in problems] == [("guard", "failed")]
            assert "pre_tool_use" in problems[0]["reason"]

    k.go(test)


def test_decision_is_what_a_guard_answers_with():
    assert Decision("deny", "why").reason == "why"

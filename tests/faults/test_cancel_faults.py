"""The fault list, row 13: wherever a turn waits, its cancel ends it at once and leaves a valid history."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest
import turn_kit as k
from skill_kit import one_tool, write

from runner import hookimpl

row = pytest.mark.row
AT_ONCE = 2.0  # seconds


class World:
    """What a place to wait at needs: replies, tools, plugins, settings, and how one knows it is reached."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        self.hang = k.Hang()
        self.entered = asyncio.Event()
        self.replies: list[Any] = [k.call("act"), k.say("not reached")]
        self.tools: list[Any] = [self.tool(lambda: "acted", read_only=True)]
        self.more: dict[str, Any] = {}
        self.until: Any = self.entered.wait

    def tool(self, does: Any, name: str = "act", **flags: Any) -> Any:
        def function() -> str:
            return does()

        function.__name__ = name
        return k.tool(function, **{"timeout": 60.0, **flags})

    async def forever(self, *_arguments: Any) -> None:
        """Never ends."""
        self.entered.set()
        await asyncio.Event().wait()

    def hanging(self) -> str:
        """A thread that hangs until the test is over."""
        self.hang.wait()
        return "late"

    def hook(self, name: str, arguments: str) -> None:
        """A plugin whose hook never answers."""
        space: dict[str, Any] = {"forever": self.forever}
        exec(f"async def {name}(self, {arguments}):\n    await forever()", space)
        self.more["plugins"] = [type("Hangs", (), {name: hookimpl(space[name])})()]

    def ask(self) -> None:
        """The tool needs a permission that is asked for."""
        self.tools = [self.tool(lambda: "acted", permissions=("net",))]
        self.more["permissions"] = {"net": "ask"}


def model(world: World) -> None:
    world.replies = [{"hang": True}]
    world.until = None


def model_backoff(world: World) -> None:
    down = {"status": 503, "headers": {"retry-after": "30"}, "body": {"error": {"message": "busy"}}}
    world.replies = [down, k.say("x")]
    world.more["model"] = {"retries": 3}
    world.until = "model.retried"


def context_hook(world: World) -> None:
    world.hook("transform_context", "messages, session")


def compacting_hook(world: World) -> None:
    world.hook("context_compacted", "before_tokens, after_tokens, step, session")
    world.tools = [world.tool(lambda: "many words in a row " * 400, repeatable=True)]
    world.replies = [*(k.call("act") for _ in range(6)), k.say("x")]
    world.more["model"] = {"context_window": 4096, "max_tokens": 256}


def guard(world: World) -> None:
    world.hook("pre_tool_use", "call, tool, session")


def permission_hook(world: World) -> None:
    world.ask()
    world.hook("permission_request", "call, tool, session")


def approval(world: World) -> None:
    world.ask()
    world.more["approver"] = world.forever


def tool_thread(world: World) -> None:
    world.tools = [world.tool(world.hanging)]
    world.until = world.hang.reached


def tool_async(world: World) -> None:
    async def act() -> None:
        world.hang.began.release()
        await asyncio.Event().wait()

    world.tools = [k.tool(act, timeout=60.0)]
    world.until = world.hang.reached


def tool_async_blocking(world: World) -> None:
    async def act() -> str:
        return world.hanging()

    world.tools = [k.tool(act, timeout=60.0)]
    world.until = world.hang.reached


def tool_process(world: World) -> None:
    mark = world.folder / "began"
    body = f"import time\ndef act():\n    open({str(mark)!r}, 'w').close()\n    time.sleep(60)\n"
    write(
        world.folder / "skills", one_tool("act", body, flags="isolation = 'process'\ntimeout = 60")
    )
    world.tools = []
    world.more["paths"] = {"skills": [str(world.folder / "skills")]}

    async def began() -> None:
        while not mark.exists():  # noqa: ASYNC110 - another process says so
            await asyncio.sleep(0.005)

    world.until = began


def gate(world: World) -> None:
    world.tools = [world.tool(world.hanging, read_only=True, concurrent=True, max_concurrency=1)]
    world.replies = [k.calls(("act", {}), ("act", {})), k.say("x")]
    world.more["limits"] = {"gate_wait": 60.0}
    world.until = world.hang.reached


def equal_call(world: World) -> None:
    world.tools = [world.tool(world.hanging, concurrent=True)]
    world.replies = [k.calls(("act", {}), ("act", {})), k.say("x")]
    world.until = world.hang.reached


def tool_backoff(world: World) -> None:
    def down() -> str:
        raise ConnectionError("down")

    world.tools = [world.tool(down, idempotent=True, retries=50)]
    world.until = "tool.retried"


def fallback(world: World) -> None:
    def down() -> str:
        raise ConnectionError("down")

    world.tools = [
        world.tool(down, read_only=True, retries=0, fallbacks=("other",)),
        world.tool(world.hanging, "other", read_only=True),
    ]
    world.until = world.hang.reached


def reconcile(world: World) -> None:
    world.tools = [
        world.tool(lambda: time.sleep(0.3) or "late", timeout=0.05, reconcile="other"),
        world.tool(world.hanging, "other", read_only=True),
    ]
    world.until = world.hang.reached


def result_hook(world: World) -> None:
    world.hook("post_tool_use", "call, result, session")
    world.replies = [k.calls(*[("act", {})] * 5), k.say("x")]


def agent(world: World) -> None:
    world.replies = [k.call("agent", task="something"), {"hang": True}]
    world.until = "agent.started"


def end_hook(world: World) -> None:
    world.hook("turn_finished", "result, session")
    world.replies = [k.say("the answer")]


PLACES = [
    model, model_backoff, context_hook, compacting_hook, guard, permission_hook, approval,
    tool_thread, tool_async, tool_async_blocking, tool_process, gate, equal_call, tool_backoff,
    fallback, reconcile, result_hook, agent, end_hook,
]  # fmt: skip


@row(13)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_cancel_ends_the_turn_wherever_it_waits(tmp_path, place):
    async def test():
        world = World(tmp_path)
        place(world)
        config = {"context": {"summarise": False}, **world.more}
        async with (
            k.turns(tmp_path, world.replies, *world.tools, **config) as made,
            k.opened(made) as session,
        ):
            task = asyncio.ensure_future(session.run("go"))
            if world.until is None:
                await made.heard("model.requested")
            elif isinstance(world.until, str):
                await made.heard(world.until)
            else:
                await asyncio.wait_for(world.until(), 20)
            began = time.monotonic()
            session.cancel()
            session.cancel()
            result = await asyncio.wait_for(task, 10)
            took = time.monotonic() - began
            world.hang.free.set()
            assert took < AT_ONCE
            assert result.status == ("completed" if place is end_hook else "cancelled")
            assert result.answer
            for plugin in world.more.get("plugins", ()):
                made.runner.shared.plugins.unregister(f"{type(plugin).__name__}-0")
            made.model._replies[:] = [k.say("goes on")]
            assert (await session.run("go on")).answer == "goes on"
            assert made.all_valid()
            assert made.runner.status()["slots"]["used"] == 0
            assert made.runner.status()["model"]["used"] == 0
        ends = [r for r in made.records() if r["type"] == "turn.finished" and r["session"] == "s1"]
        assert len(ends) == 2

    k.go(test)


@row(13)
def test_a_session_that_waits_to_ask_can_be_cancelled_while_another_asks(tmp_path):
    async def test():
        world = World(tmp_path)
        world.ask()
        rules = [
            {"contains": f"goal {n}", "replies": [k.call("act"), k.say(f"done {n}")]} for n in "ab"
        ]
        async with (
            k.turns(
                tmp_path, [], *world.tools, rules=rules, approver=world.forever,
                limits={"slots": 2}, **world.more,
            ) as made,
            k.opened(made, "a") as one,
            k.opened(made, "b") as two,
        ):  # fmt: skip
            first = asyncio.ensure_future(one.run("goal a"))
            await made.heard("approval.asked")
            second = asyncio.ensure_future(two.run("goal b"))
            await made.heard("model.replied", count=2)
            await asyncio.sleep(0)
            began = time.monotonic()
            two.cancel()
            assert (await second).status == "cancelled"
            assert time.monotonic() - began < AT_ONCE
            assert not first.done()
            one.cancel()
            await first
            assert len(made.of("approval.asked")) == 1

    k.go(test)


@row(13)
def test_a_signal_reaches_a_host_that_wants_it_and_the_turn_ends_in_order(tmp_path):
    async def test():
        world = World(tmp_path)
        tool_thread(world)
        async with (
            k.turns(tmp_path, world.replies, *world.tools) as made,
            k.opened(made) as session,
        ):
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, session.cancel)
            task = asyncio.ensure_future(session.run("go"))
            await world.hang.reached()
            os.kill(os.getpid(), signal.SIGUSR1)
            assert (await asyncio.wait_for(task, AT_ONCE)).status == "cancelled"
            asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
        world.hang.free.set()

    k.go(test)

"""Slots bound the turns, the model gate the requests; both first come, first served."""

from __future__ import annotations

import asyncio
import random

import pytest
import turn_kit as k

from runner import ScriptedModel, SessionError
from runner.slots import Slots


class Gated(ScriptedModel):
    """A scripted model whose requests wait until the test lets each go; says who asks."""

    def __init__(self, script):
        super().__init__(script, "scripted/gated")
        self.asking: list[str] = []
        self.now = 0
        self.most = 0
        self.came = asyncio.Semaphore(0)
        self.free = asyncio.Semaphore(0)

    async def complete(self, request):
        self.asking.append(next(m.content for m in request.messages if m.role == "user"))
        self.now += 1
        self.most = max(self.most, self.now)
        self.came.release()
        await self.free.acquire()
        self.now -= 1
        async for chunk in super().complete(request):
            yield chunk


def rules(*names, replies=None):
    """One rule per goal."""
    return [{"contains": n, "replies": replies or [k.say(f"done {n}")]} for n in names]


NAMES = ["first", "second", "third", "fourth"]


def test_turns_beyond_the_slots_wait_in_order_and_are_told_their_place(tmp_path):
    async def test():
        model = Gated({"rules": rules(*NAMES)})
        config = {"limits": {"slots": 1}, "model": {"max_concurrency": 5}}
        async with k.turns(tmp_path, [], model_object=model, **config) as made:
            tasks = []
            for name in NAMES:
                tasks.append(asyncio.ensure_future(k.one_turn(made, name, session=name)))
                if len(tasks) == 1:
                    await model.came.acquire()
                else:
                    await made.heard("slot.waiting", count=len(tasks) - 1)
            assert made.runner.status()["slots"] == {"limit": 1, "used": 1, "waiting": 3}
            for _ in NAMES:
                model.free.release()
            await asyncio.gather(*tasks)
            assert model.asking == NAMES
            assert model.most == 1
            waited = [
                (e.session, e.data["position"]) for e in made.events if e.type == "slot.waiting"
            ]
            assert waited == [("second", 1), ("third", 2), ("fourth", 3)]
            assert [e.session for e in made.events if e.type == "slot.acquired"] == NAMES
            assert made.runner.status()["slots"] == {"limit": 1, "used": 0, "waiting": 0}

    k.go(test)


def test_a_session_that_waits_for_a_tool_gives_the_model_to_the_next(tmp_path):
    hang = k.Hang()

    def long() -> str:
        hang.wait()
        return "at last"

    async def test():
        wants = [k.call("long"), k.say("late")]
        model = Gated({"rules": [*rules("first", replies=wants), *rules("second")]})
        config = {"limits": {"slots": 2}, "model": {"max_concurrency": 1}}
        tool = k.tool(long, timeout=60)
        async with k.turns(tmp_path, [], tool, model_object=model, **config) as made:
            one = asyncio.ensure_future(k.one_turn(made, "first", session="a"))
            await model.came.acquire()
            model.free.release()
            await hang.reached()
            model.free.release()
            two = await asyncio.wait_for(k.one_turn(made, "second", session="b"), 10)
            assert two.answer == "done second"
            assert not one.done(), "the second turn ran while the first waited for its tool"
            hang.free.set()
            model.free.release()
            assert (await one).answer == "late"
            assert model.most == 1

    k.go(test)


def test_no_more_requests_at_once_than_the_model_takes(tmp_path):
    async def test():
        model = Gated({"rules": rules(*NAMES)})
        config = {"limits": {"slots": 4}, "model": {"max_concurrency": 2}}
        async with k.turns(tmp_path, [], model_object=model, **config) as made:
            tasks = [asyncio.ensure_future(k.one_turn(made, n, session=n)) for n in NAMES]
            for _ in range(2):
                await model.came.acquire()
            assert made.runner.status()["model"] == {"limit": 2, "used": 2, "waiting": 2}
            for _ in NAMES:
                model.free.release()
            await asyncio.gather(*tasks)
            assert model.most == 2
            assert model.asking == NAMES

    k.go(test)


@pytest.mark.parametrize("waits_for", ["slot", "model"])
def test_a_turn_that_only_waits_can_be_cancelled_and_leaves_the_queue(tmp_path, waits_for):
    async def test():
        model = Gated({"rules": rules(*NAMES)})
        config = {
            "limits": {"slots": 1 if waits_for == "slot" else 5},
            "model": {"max_concurrency": 1},
        }
        async with k.turns(tmp_path, [], model_object=model, **config) as made:
            first = asyncio.ensure_future(k.one_turn(made, "first", session="a"))
            await model.came.acquire()
            async with k.opened(made, "b") as session:
                second = asyncio.ensure_future(session.run("second"))
                await asyncio.sleep(0)
                third = asyncio.ensure_future(k.one_turn(made, "third", session="c"))
                await made.heard("turn.started", goal="third")
                await asyncio.sleep(0)
                session.cancel()
                result = await asyncio.wait_for(second, 2)
                assert result.status == "cancelled"
                assert result.answer
            model.free.release()
            model.free.release()
            assert (await first).status == "completed"
            assert (await third).status == "completed"
            assert model.asking == ["first", "third"]

    k.go(test)


def test_two_turns_of_one_session_at_once_are_refused(tmp_path):
    async def test():
        model = Gated({"rules": rules(*NAMES)})
        async with k.turns(tmp_path, [], model_object=model) as made, k.opened(made) as session:
            task = asyncio.ensure_future(session.run("first"))
            await model.came.acquire()
            with pytest.raises(SessionError, match="in the middle of a turn"):
                await session.run("second")
            model.free.release()
            assert (await task).status == "completed"

    k.go(test)


def test_one_session_is_open_once(tmp_path):
    async def test():
        async with k.turns(tmp_path, [k.say("x")]) as made, k.opened(made):
            with pytest.raises(SessionError, match="in use by process"):
                await made.runner.run("go", session="s1")

    k.go(test)


def test_closing_a_session_waits_for_its_turn_to_end_in_order(tmp_path):
    hang = k.Hang()

    def long() -> str:
        hang.wait()
        return "late"

    async def test():
        async with k.turns(tmp_path, [k.call("long")], k.tool(long, timeout=60)) as made:
            async with k.opened(made) as session:
                task = asyncio.ensure_future(session.run("go"))
                await hang.reached()
            assert task.done()
            assert (await task).status == "cancelled"
        hang.free.set()
        assert made.records()[-1]["type"] == "turn.finished"

    k.go(test)


def test_a_host_that_cancels_its_own_task_gets_its_cancel_and_a_whole_record(tmp_path):
    hang = k.Hang()

    def long() -> str:
        hang.wait()
        return "late"

    async def test():
        async with k.turns(tmp_path, [k.call("long")], k.tool(long, timeout=60)) as made:
            task = asyncio.ensure_future(k.one_turn(made))
            await hang.reached()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        hang.free.set()
        assert [r["type"] for r in made.records()][-2:] == ["tool.finished", "turn.finished"]

    k.go(test)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_cancelled_no_slot_is_lost_and_none_is_given_twice(seed):
    rng = random.Random(seed)

    async def test():
        slots, inside, most = Slots(3), 0, 0

        async def turn():
            nonlocal inside, most
            async with slots.slot():
                inside += 1
                most = max(most, inside)
                try:
                    for _ in range(rng.randrange(4)):
                        await asyncio.sleep(0)
                finally:
                    inside -= 1

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.ensure_future(turn()))
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            if rng.random() < 0.4:
                rng.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not [t for t in tasks if not t.cancelled() and t.exception()]
        assert (slots.used, slots.waiting, inside) == (0, 0, 0)
        assert most <= 3

    k.go(test)


def test_a_place_whose_waiter_cannot_be_told_is_given_on(tmp_path):
    async def test():
        slots = Slots(1)
        await slots.enter()

        def broken(_place):
            raise RuntimeError("nobody hears this")

        with pytest.raises(RuntimeError):
            await slots.enter(broken)
        slots.leave()
        await asyncio.wait_for(slots.enter(), 1)

    k.go(test)


def test_the_board_names_what_runs(tmp_path):
    hang = k.Hang()

    def long(tag: str) -> str:
        hang.wait()
        return "late"

    async def test():
        wants = {name: [k.call("long", tag=name), k.say("x")] for name in "ab"}
        some = [{"contains": f"goal {n}", "replies": r} for n, r in wants.items()]
        tool = k.tool(long, timeout=60, max_concurrency=2)
        async with k.turns(tmp_path, [], tool, rules=some, limits={"slots": 2}) as made:
            tasks = [asyncio.ensure_future(k.one_turn(made, f"goal {n}", session=n)) for n in "ab"]
            await hang.reached(2)
            board = made.runner.status()
            assert sorted(c["session"] for c in board["calls"]) == ["a", "b"]
            assert {c["tool"] for c in board["calls"]} == {"long"}
            assert sorted(s["id"] for s in board["sessions"] if s["running"]) == ["a", "b"]
            hang.free.set()
            await asyncio.gather(*tasks)
            assert made.runner.status()["calls"] == []

    k.go(test)

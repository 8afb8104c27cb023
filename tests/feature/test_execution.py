"""What becomes of a call that runs: deadlines, retries, keys, lost calls, breakers, fallbacks, cancel."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import turn_kit as k
from skill_kit import one_tool, write

from runner import SkillContext, ToolError
from runner.calls.processjob import STUCK_THREADS

QUIET_LOOP = {"loop": {"warn": 50, "refuse": 60, "stop": 70}}
QUICK = {"limits": {"tool_retries": 0}}


class Peer:
    """A service behind a skill: what it was asked, and what it does about it."""

    def __init__(self, *does: Any) -> None:
        self.does = list(does)
        self.keys: list[str] = []
        self.asked: list[Any] = []

    def ask(self, ctx: SkillContext, what: Any = None) -> Any:
        self.keys.append(ctx.idempotency_key)
        self.asked.append(what)
        do = self.does.pop(0) if len(self.does) > 1 else self.does[0]
        if isinstance(do, BaseException):
            raise do
        return do() if callable(do) else do


def peer_tool(peer: Peer, name: str = "peer", **flags: Any) -> Any:
    """A tool that asks the peer."""

    def function(what: str, ctx: SkillContext) -> Any:
        return peer.ask(ctx, what)

    function.__name__ = name
    function.__doc__ = "Asks a peer."
    return k.tool(function, **flags)


ONE = [k.call("peer", what="a"), k.say("done")]


def many(count: int, *more: Any) -> list[Any]:
    """The same call so often, then the rest."""
    return [*(k.call("peer", what=f"w{n}") for n in range(count)), *more, k.say("done")]


# ---- deadlines ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("flags", "limits", "named"),
    [
        ({"timeout": 0.05}, {}, "the timeout of skill"),
        ({}, {"tool_timeout": 0.05}, "[limits] tool_timeout"),
        ({"open_world": True}, {"network_timeout": 0.05}, "[limits] network_timeout"),
        ({"timeout": 30.0}, {"max_tool_timeout": 0.05}, "[limits] max_tool_timeout"),
        ({"timeout": 30.0}, {"turn_timeout": 0.3}, "[limits] turn_timeout"),
    ],
)
def test_the_message_says_which_limit_fired_and_what_to_do(tmp_path, flags, limits, named):
    hang = k.Hang()
    tool = peer_tool(Peer(hang.wait), idempotent=True, **flags)
    made = k.run(tmp_path, ONE, tool, limits={**limits, "tool_retries": 0})
    hang.free.set()
    said = made.finished[0]["content"]
    assert made.kinds == ["timeout"]
    assert named in said
    assert "timed out after 0." in said
    assert all(word in said for word in ("Retry", "another approach", "skip"))


def test_a_skill_is_told_how_long_it_has(tmp_path):
    left = []

    def look(ctx: SkillContext) -> str:
        left.append(ctx.remaining())
        return "ok"

    k.run(tmp_path, [k.call("look"), k.say("x")], k.tool(look, timeout=3.0))
    assert 2.0 < left[0] <= 3.0


def test_a_call_that_ends_after_its_deadline_is_reported_and_reaches_no_later_call(tmp_path):
    hang = k.Hang()
    slow = peer_tool(Peer(lambda: hang.wait() or "too late"), timeout=0.05)

    def later() -> str:
        return "on time"

    async def test():
        replies = [k.call("peer", what="a"), k.call("later"), k.say("done")]
        async with k.turns(tmp_path, replies, slow, later) as made, k.opened(made) as session:
            await session.run("go")
            assert made.runner.status()["abandoned"] == ["peer"]
            hang.free.set()
            late = await made.heard("tool.late")
            assert (late.data["tool"], late.data["ok"]) == ("peer", True)
            assert made.runner.status()["abandoned"] == []
        assert made.kinds == ["outcome_unknown", "ok"]
        assert "unknown" in made.finished[0]["content"]
        assert "too late" not in str(made.events)
        assert made.finished[1]["content"] == "on time"

    k.go(test)


def test_an_async_tool_that_blocks_stalls_nobody_and_its_loop_is_replaced(tmp_path):
    hang = k.Hang()

    async def block() -> str:
        hang.wait()
        return "late"

    async def quick() -> str:
        await asyncio.sleep(0)
        return "quick"

    async def test():
        replies = [k.call("block"), k.call("quick"), k.say("done")]
        block_tool = k.tool(block, read_only=True, timeout=0.05)
        async with (
            k.turns(tmp_path, replies, block_tool, quick, **QUICK) as made,
            k.opened(made) as session,
        ):
            await session.run("go")
            assert made.kinds == ["timeout", "ok"]
            assert made.runner.status()["skill_loops_replaced"] == 1
            loops = [t for t in threading.enumerate() if t.name == "runner-skill-loop"]
            hang.free.set()
            await made.heard("tool.late")
            for thread in loops[:1]:
                await asyncio.to_thread(thread.join, 5)
                assert not thread.is_alive(), "the blocked loop ends once it can"

    k.go(test)


def test_an_async_tool_that_ignores_its_cancel_is_left_behind(tmp_path):
    stop = threading.Event()

    async def stubborn() -> str:
        while not stop.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
        return "at last"

    async def test():
        replies = [k.call("stubborn"), k.say("done")]
        tool = k.tool(stubborn, read_only=True, timeout=0.05)
        async with k.turns(tmp_path, replies, tool, **QUICK) as made, k.opened(made) as session:
            await session.run("go")
            assert made.kinds == ["timeout"]
            stop.set()
            await made.heard("tool.late")

    k.go(test)


def test_a_stuck_skill_is_called_no_more_than_it_has_places(tmp_path):
    hang = k.Hang()
    tool = peer_tool(Peer(hang.wait), read_only=True, timeout=0.05, max_concurrency=2)
    made = k.run(
        tmp_path, many(5), tool, limits={"tool_retries": 0, "gate_wait": 0.02}, **QUIET_LOOP
    )
    hang.free.set()
    assert made.kinds == ["timeout", "timeout", "busy", "busy", "busy"]
    assert hang.count == 2
    assert "Retry later" in made.finished[2]["content"]


STICKY = """
import os, time
def sticky(what):
    if what == "pid": return str(os.getpid())
    pass
    time.sleep(60)
"""


def test_a_skill_whose_threads_stay_stuck_moves_to_a_process(tmp_path):
    flags = "timeout = 0.1\nread_only = true\nretries = 0"
    parameters = "required = ['what']\nproperties.what = { type = 'string' }"
    write(tmp_path / "skills", one_tool("sticky", STICKY, parameters, flags))
    marker = str(tmp_path / "ran")
    replies = [
        *(k.call("sticky", what=marker) for _ in range(STUCK_THREADS)),
        k.call("sticky", what="pid"),
        k.say("done"),
    ]
    made = k.run(
        tmp_path,
        replies,
        paths={"skills": [str(tmp_path / "skills")]},
        limits={"gate_wait": 0.02},
        **QUIET_LOOP,
    )
    assert made.kinds[0] == "timeout"
    assert made.kinds[-1] == "ok"
    assert made.finished[-1]["content"] != str(os.getpid())


# ---- retries and keys -----------------------------------------------------------------------------
def test_an_idempotent_call_is_retried_with_one_key_and_growing_pauses(tmp_path):
    peer = Peer(ConnectionError("reset"), ConnectionError("reset"), "answer")
    made = k.run(tmp_path, ONE, peer_tool(peer, idempotent=True))
    assert made.kinds == ["ok"]
    assert len(peer.keys) == 3
    assert len(set(peer.keys)) == 1
    assert made.finished[0]["attempts"] == 3
    first, second = (one["delay"] for one in made.of("tool.retried"))
    assert 0.1 <= first <= 0.2 < second <= 0.4 or 0.1 <= first <= 0.2 <= second <= 0.4


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("bad"), "failed"),
        (PermissionError("no"), "failed"),
        (FileNotFoundError("x"), "failed"),
        (ToolError("no"), "failed"),
        (KeyError("x"), "crashed"),
        (ToolError("later", retryable=True), "unavailable"),
        (TimeoutError("socket"), "unavailable"),
    ],
)
def test_only_what_may_pass_is_tried_again(tmp_path, error, kind):
    peer = Peer(error)
    made = k.run(tmp_path, ONE, peer_tool(peer, idempotent=True, retries=1))
    assert made.kinds == [kind]
    assert len(peer.keys) == (2 if kind == "unavailable" else 1)


def test_a_tool_that_is_not_idempotent_is_never_tried_again_whatever_the_config_says(tmp_path):
    peer = Peer(ConnectionError("reset"))
    made = k.run(tmp_path, ONE, peer_tool(peer, retries=5), limits={"tool_retries": 5})
    assert made.kinds == ["unavailable"]
    assert len(peer.keys) == 1


def test_a_deliberate_repeat_has_a_new_key_and_another_call_another(tmp_path):
    peer = Peer("sent")
    replies = [
        k.calls(("peer", {"what": "a"}), ("peer", {"what": "a"}), ("peer", {"what": "b"})),
        k.say("done"),
    ]
    made = k.run(tmp_path, replies, peer_tool(peer))
    assert made.kinds == ["ok"] * 3
    assert len(set(peer.keys)) == 3


def test_a_call_that_failed_keeps_its_key_when_the_model_asks_again(tmp_path):
    peer = Peer(ToolError("not now"), "sent")
    k.run(tmp_path, [*ONE[:1], *ONE], peer_tool(peer))
    assert len(peer.keys) == 2
    assert len(set(peer.keys)) == 1


def test_an_idempotent_call_that_timed_out_keeps_its_key_in_the_next_turn(tmp_path):
    hang = k.Hang()
    peer = Peer(hang.wait, "done")

    async def test():
        tool = peer_tool(peer, idempotent=True, timeout=0.05, max_concurrency=2)
        async with (
            k.turns(tmp_path, [*ONE, *ONE], tool, **QUICK) as made,
            k.opened(made) as session,
        ):
            await session.run("one")
            await session.run("two")
            assert made.kinds == ["timeout", "ok"]
        assert len(set(peer.keys)) == 1
        hang.free.set()

    k.go(test)


def test_equal_calls_with_effects_run_one_after_the_other_even_in_one_batch(tmp_path):
    now, most = [0], [0]

    def busy() -> str:
        now[0] += 1
        most[0] = max(most[0], now[0])
        time.sleep(0.01)
        now[0] -= 1
        return "sent"

    peer = Peer(busy)
    batch = k.calls(*[("peer", {"what": "same"})] * 4)
    made = k.run(tmp_path, [batch, k.say("x")], peer_tool(peer, concurrent=True))
    assert made.kinds == ["ok"] * 4
    assert most == [1]
    assert len(set(peer.keys)) == 4


def test_once_per_turn_gives_the_recorded_result_again_in_that_turn_only(tmp_path):
    numbers = itertools.count(1)
    peer = Peer(lambda: f"number {next(numbers)}")
    batch = k.calls(*[("peer", {"what": "a"})] * 3)

    async def test():
        tool = peer_tool(peer, once_per_turn=True, concurrent=True)
        replies = [batch, k.say("1"), k.call("peer", what="a"), k.say("2")]
        async with k.turns(tmp_path, replies, tool) as made, k.opened(made) as session:
            await session.run("one")
            assert len(peer.keys) == 1
            assert all("number 1" in one["content"] for one in made.finished)
            assert "recorded" in made.finished[2]["content"]
            await session.run("two")
            assert "number 2" in made.finished[3]["content"]

    k.go(test)


# ---- lost is not broken ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "kind", "says", "again"),
    [
        ("done", "ok", "it had happened", "ok"),
        ({"outcome": "done", "result": "id 7"}, "ok", "id 7", "ok"),
        ("not_done", "timeout", "did not happen", "ok"),
        ({"outcome": "not_done"}, "timeout", "did not happen", "ok"),
        ("unknown", "outcome_unknown", "refused", "outcome_unknown"),
        ("rubbish", "outcome_unknown", "refused", "outcome_unknown"),
        (None, "outcome_unknown", "refused", "outcome_unknown"),
        (RuntimeError("no"), "outcome_unknown", "refused", "outcome_unknown"),
    ],
)
def test_a_lost_call_is_asked_about(tmp_path, answer, kind, says, again):
    hang = k.Hang()
    peer, asked = Peer(hang.wait, "sent"), Peer(answer)
    tool = peer_tool(peer, timeout=0.05, reconcile="became", max_concurrency=2)
    became = peer_tool(asked, "became", read_only=True)
    made = k.run(tmp_path, [ONE[0], *ONE], tool, became)
    hang.free.set()
    assert made.kinds == [kind, again]
    assert says in made.finished[0]["content"]
    assert len(peer.keys) == (2 if again == "ok" else 1)
    assert set(asked.keys) == {peer.keys[0]}, "the question bears the key of the call"


def test_a_lost_call_is_refused_in_later_turns_but_other_calls_are_not(tmp_path):
    hang = k.Hang()
    peer = Peer(hang.wait, "sent")

    async def test():
        replies = [*ONE, k.calls(("peer", {"what": "a"}), ("peer", {"what": "b"})), k.say("2")]
        tool = peer_tool(peer, timeout=0.05, max_concurrency=2)
        async with k.turns(tmp_path, replies, tool) as made, k.opened(made) as session:
            await session.run("one")
            await session.run("two")
            assert made.kinds == ["outcome_unknown", "outcome_unknown", "ok"]
            assert peer.asked == ["a", "b"]
            assert "not run" in made.finished[1]["content"]
        hang.free.set()

    k.go(test)


# ---- breaker --------------------------------------------------------------------------------------
class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def test_a_breaker_opens_probes_grows_its_pause_and_closes_again(tmp_path):
    peer = Peer(*[ConnectionError("down")] * 3, "up", "up")

    async def test():
        clock = Clock()
        replies = [
            *(k.call("peer", what=str(n)) for n in range(4)),
            k.say("1"),
            k.call("peer", what="probe"),
            k.call("peer", what="shut"),
            k.say("2"),
            k.call("peer", what="probe 2"),
            k.call("peer", what="open"),
            k.say("3"),
        ]
        tool = peer_tool(peer, read_only=True)
        config = {"breaker": {"failures": 2, "pause": 60.0, "max_pause": 100.0}, **QUICK}
        async with k.turns(tmp_path, replies, tool, **config, **QUIET_LOOP) as made:
            made.runner.shared.clock = clock
            async with k.opened(made) as session:
                await session.run("one")
                assert made.kinds == ["unavailable"] * 2 + ["breaker_open"] * 2
                assert peer.asked == ["0", "1"]
                assert "60 s" in made.finished[2]["content"]
                assert "peer" in made.runner.status()["breakers"]
                clock.ahead += 61
                await session.run("two")
                assert made.kinds[4:] == ["unavailable", "breaker_open"]
                clock.ahead += 101
                await session.run("three")
                assert made.kinds[6:] == ["ok", "ok"]
        told = [(t, e["pause"]) for t in ("opened", "closed") for e in made.of(f"breaker.{t}")]
        assert told == [("opened", 60.0), ("opened", 100.0), ("closed", 0.0)]
        assert len(made.of("breaker.probed")) == 2

    k.go(test)


def test_mistakes_of_the_caller_open_no_breaker(tmp_path):
    peer = Peer(ToolError("wrong"), ToolError("wrong"), ToolError("wrong"), "ok")
    replies = [
        *(k.call("peer", wrong=str(n)) for n in range(3)),
        *(k.call("peer", what=str(n)) for n in range(4)),
        k.say("done"),
    ]
    tool = peer_tool(peer, read_only=True)
    made = k.run(tmp_path, replies, tool, breaker={"failures": 2}, **QUIET_LOOP)
    assert made.kinds == ["invalid_arguments"] * 3 + ["failed"] * 3 + ["ok"]
    assert not [t for t in made.types if t.startswith("breaker.")]


def test_a_cancelled_call_counts_neither_way(tmp_path):
    hang = k.Hang()

    async def test():
        tool = peer_tool(Peer(hang.wait), read_only=True, max_concurrency=8, concurrent=True)
        replies = [k.calls(*(("peer", {"what": str(n)}) for n in range(6))), k.say("x")]
        async with (
            k.turns(tmp_path, replies, tool, breaker={"failures": 1}) as made,
            k.opened(made) as session,
        ):
            task = asyncio.ensure_future(session.run("go"))
            await hang.reached(6)
            session.cancel()
            await task
        hang.free.set()
        assert made.kinds == ["cancelled"] * 6
        assert made.runner._shared is None
        assert not [t for t in made.types if t.startswith("breaker.")]

    k.go(test)


# ---- fallbacks ------------------------------------------------------------------------------------
def test_the_first_fallback_that_works_answers_and_says_so(tmp_path):
    down = peer_tool(
        Peer(ConnectionError("refused")), idempotent=True, retries=0,
        fallbacks=("worse", "cache"),
    )  # fmt: skip
    worse = peer_tool(Peer(ConnectionError("also down")), "worse", read_only=True)
    cache = peer_tool(Peer({"qty": 7, "age_s": 600}), "cache", read_only=True)
    made = k.run(tmp_path, ONE, down, worse, cache)
    one = made.finished[0]
    assert (one["kind"], one["ok"], one["degraded_by"]) == ("ok", True, "cache")
    assert all(text in one["content"] for text in ("degraded", "cache", '"qty":7', "refused"))


def test_when_every_fallback_fails_one_reason_names_them_all(tmp_path):
    down = peer_tool(
        Peer(ConnectionError("refused")), idempotent=True, retries=0,
        fallbacks=("worse", "nowhere", "mod:function"),
    )  # fmt: skip
    worse = peer_tool(Peer(ConnectionError("also down")), "worse", read_only=True)
    made = k.run(tmp_path, ONE, down, worse)
    one = made.finished[0]
    assert (one["kind"], one["degraded_by"]) == ("unavailable", None)
    assert all(
        text in one["content"] for text in ("refused", "also down", "nowhere", "mod:function")
    )


def test_a_function_of_the_skill_may_be_a_fallback(tmp_path):
    body = (
        "def stock(sku):\n    raise ConnectionError('down')\n"
        "def last_known(sku):\n    return f'{sku}: 7'\n"
        "def broken(sku):\n    raise SystemExit('x')\n"
    )
    flags = "idempotent = true\nretries = 0\nfallbacks = ['skill:broken', 'skill:nope', 'skill:last_known']"
    parameters = "required = ['sku']\nproperties.sku = { type = 'string' }"
    write(tmp_path / "skills", one_tool("stock", body, parameters, flags))
    made = k.run(
        tmp_path,
        [k.call("stock", sku="A"), k.say("x")],
        paths={"skills": [str(tmp_path / "skills")]},
    )
    assert made.finished[0]["degraded_by"] == "skill:last_known"
    assert "A: 7" in made.finished[0]["content"]


def test_a_fallback_is_held_to_policy_guards_and_its_own_schema(tmp_path):
    from runner import Decision, hookimpl

    class Guard:
        @hookimpl
        def pre_tool_use(self, call, tool, session):
            return Decision("deny", "never") if call.name == "guarded" else None

    calls = {name: Peer("reached") for name in ("asking", "guarded", "other")}

    def other(differently: str) -> str:
        """Takes something else."""
        calls["other"].asked.append(differently)
        return "x"

    down = peer_tool(
        Peer(ConnectionError("refused")), idempotent=True, retries=0,
        fallbacks=("asking", "guarded", "other"),
    )  # fmt: skip
    made = k.run(
        tmp_path,
        ONE,
        down,
        peer_tool(calls["asking"], "asking", permissions=("net",)),
        peer_tool(calls["guarded"], "guarded"),
        other,
        plugins=[Guard()],
        permissions={"net": "ask"},
    )
    assert made.kinds == ["unavailable"]
    assert not any(peer.asked for peer in calls.values())
    assert "never" in made.finished[0]["content"]


def test_a_fallback_that_hangs_holds_no_more_threads_than_it_has_places(tmp_path):
    hang = k.Hang()
    down = peer_tool(Peer(ConnectionError("x")), read_only=True, retries=0, fallbacks=("stuck",))
    stuck = peer_tool(Peer(hang.wait), "stuck", read_only=True, timeout=0.03)
    made = k.run(tmp_path, many(4), down, stuck, breaker={"failures": 99}, **QUIET_LOOP)
    hang.free.set()
    assert made.kinds == ["unavailable"] * 4
    assert hang.count == 1
    assert "busy" in made.finished[3]["content"]


def test_a_fallback_with_effects_is_not_started_twice_when_nobody_knows_what_it_did(tmp_path):
    hang = k.Hang()
    down = peer_tool(Peer(ConnectionError("x")), read_only=True, retries=0, fallbacks=("mail",))
    mail = Peer(hang.wait, "mailed")
    tool = peer_tool(mail, "mail", timeout=0.03, max_concurrency=2)
    made = k.run(tmp_path, [ONE[0], *ONE], down, tool, **QUIET_LOOP)
    hang.free.set()
    assert made.kinds == ["unavailable", "unavailable"]
    assert len(mail.asked) == 1
    assert "may have happened" in made.finished[1]["content"]


# ---- what a skill prints and says -----------------------------------------------------------------
def test_what_a_call_prints_belongs_to_it_and_the_streams_stay_what_they_were(tmp_path):
    both = threading.Barrier(2, timeout=10)

    def chatty(tag: str) -> str:
        both.wait()
        for number in range(50):
            print(f"{tag}{number}", file=sys.stderr if number % 2 else sys.stdout)
            time.sleep(0)
        return "finished"

    before = sys.stdout, sys.stderr
    batch = k.calls(("chatty", {"tag": "A"}), ("chatty", {"tag": "B"}))
    made = k.run(tmp_path, [batch, k.say("x")], k.tool(chatty, read_only=True, concurrent=True))
    one, two = made.finished
    assert one["output"].split() == [f"A{n}" for n in range(50)]
    assert two["output"].split() == [f"B{n}" for n in range(50)]
    assert one["content"] == "finished"
    assert (sys.stdout, sys.stderr) == before


def test_what_is_printed_is_kept_to_two_thousand_characters(tmp_path):
    def loud() -> str:
        for _ in range(1000):
            print("z" * 1000)
        return "ok"

    made = k.run(tmp_path, [k.call("loud"), k.say("x")], loud)
    assert len(made.finished[0]["output"]) == 2000


def test_progress_is_an_event_in_its_order_and_never_fails(tmp_path):
    kept = []

    def steps(ctx: SkillContext) -> str:
        kept.append(ctx)
        for number in range(3):
            ctx.progress(f"step {number}")
        return "ok"

    made = k.run(tmp_path, [k.call("steps"), k.say("x")], steps)
    assert [e["text"] for e in made.of("tool.progressed")] == ["step 0", "step 1", "step 2"]
    kept[0].progress("long after everything ended")


def test_a_skill_that_reports_every_step_does_not_fill_the_record(tmp_path):
    def steps(ctx: SkillContext) -> str:
        for number in range(5000):
            ctx.progress(f"step {number}")
        return "ok"

    made = k.run(tmp_path, [k.call("steps"), k.say("x")], steps)
    assert len(made.of("tool.progressed")) <= 1000


# ---- batches --------------------------------------------------------------------------------------
def test_neighbours_run_together_and_a_call_with_effects_is_a_barrier(tmp_path):
    running: set[str] = set()
    seen: list[tuple[str, frozenset[str]]] = []
    lock = threading.Lock()

    def log(tag: str) -> str:
        with lock:
            running.add(tag)
            seen.append((tag, frozenset(running)))
        time.sleep(0.02)
        with lock:
            running.discard(tag)
        return tag

    def read(tag: str) -> str:
        return log(tag)

    def edit(tag: str) -> str:
        return log(tag)

    batch = k.calls(
        ("read", {"tag": "r1"}), ("read", {"tag": "r2"}), ("edit", {"tag": "e"}),
        ("read", {"tag": "r3"}),
    )  # fmt: skip
    reader = k.tool(read, read_only=True, concurrent=True)
    made = k.run(tmp_path, [batch, k.say("x")], reader, edit)
    assert [one["content"] for one in made.finished] == ["r1", "r2", "e", "r3"]
    assert dict(seen)["e"] == {"e"}
    assert dict(seen)["r3"] == {"r3"}
    assert max(len(who) for _, who in seen) == 2
    queued = [i for i, t in enumerate(made.types) if t == "tool.queued"]
    assert max(queued) < made.types.index("tool.started")


def test_results_keep_the_order_asked_for_with_a_refusal_among_them(tmp_path):
    first = threading.Event()

    def slow(tag: str) -> str:
        if tag == "one":
            first.wait(10)
        else:
            first.set()
        return tag

    batch = k.calls(("slow", {"tag": "one"}), ("never", {}), ("slow", {"tag": "three"}))
    made = k.run(tmp_path, [batch, k.say("x")], k.tool(slow, read_only=True, concurrent=True))
    one, two, three = made.tool_messages()
    assert (one, three) == ("one", "three")
    assert "unknown tool" in two
    assert made.all_valid()


def test_no_more_calls_run_at_once_than_allowed(tmp_path):
    now, most = [0], [0]
    lock = threading.Lock()

    def count(n: int) -> str:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        return "ok"

    batch = k.calls(*(("count", {"n": n}) for n in range(12)))
    made = k.run(
        tmp_path,
        [batch, k.say("x")],
        k.tool(count, read_only=True, concurrent=True, max_concurrency=50),
        limits={"max_parallel": 3},
    )
    assert made.kinds == ["ok"] * 12
    assert most == [3]


def test_parallel_edits_of_one_file_lose_nothing_however_its_path_is_spelt(tmp_path):
    def replace_text(path: str, old: str, new: str, ctx: SkillContext) -> str:
        file = ctx.path(path, write=True)
        text = file.read_text()
        time.sleep(0.005)
        file.write_text(text.replace(old, new))
        return "ok"

    (tmp_path / "n.txt").write_text("\n".join(map(str, range(1, 101))))
    wanted = [
        ("replace_text", {"path": path, "old": f"\n{n}\n", "new": f"\nN{n}N\n"})
        for n, path in zip(range(10, 90, 10), itertools.cycle(["n.txt", "./n.txt", "x/../n.txt"]))
    ]
    (tmp_path / "x").mkdir()
    made = k.run(
        tmp_path, [k.calls(*wanted), k.say("x")],
        k.tool(replace_text, concurrent=True, permissions=("fs.write",)),
    )  # fmt: skip
    assert made.kinds == ["ok"] * 8
    text = (tmp_path / "n.txt").read_text()
    assert all(f"N{n}N" in text for n in range(10, 90, 10))
    assert len(text.splitlines()) == 100


def test_each_session_has_its_own_working_directory_and_the_process_keeps_its_own(tmp_path):
    def go_to(folder: str, ctx: SkillContext) -> str:
        ctx.change_directory(ctx.workspace / folder)
        return "moved"

    def where(ctx: SkillContext) -> str:
        return ctx.cwd.name

    before = Path.cwd()

    async def test():
        rules = [
            {
                "contains": f"to {name}",
                "replies": [
                    *[k.calls(("go_to", {"folder": name}), ("where", {}), ("where", {}))] * 5,
                    k.say("x"),
                ],
            }
            for name in "ab"
        ]
        async with k.turns(tmp_path, [], go_to, where, rules=rules, **QUIET_LOOP) as made:
            await asyncio.gather(
                *(k.one_turn(made, f"to {name}", session=f"s-{name}") for name in "ab")
            )
            for name in "ab":
                heard = [
                    e.data["content"]
                    for e in made.events
                    if e.session == f"s-{name}"
                    and e.data.get("tool") == "where"
                    and e.type == "tool.finished"
                ]
                assert heard == [name] * 10

    k.go(test)
    assert Path.cwd() == before


# ---- what is left behind --------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["raise", "hang", "cancel"])
def test_what_a_call_changed_is_told_however_it_ended(tmp_path, how):
    hang = k.Hang()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "b.txt").write_text("old")
    (tmp_path / "w" / "c.txt").write_text("going")

    def half(ctx: SkillContext) -> str:
        (ctx.workspace / "a.txt").write_text("new")
        (ctx.workspace / "b.txt").write_text("changed")
        (ctx.workspace / "c.txt").unlink()
        if how == "raise":
            raise RuntimeError("half way")
        hang.wait()
        return "never"

    async def test():
        config = {"paths": {"workspace": str(tmp_path / "w")}}
        timeout = 0.1 if how == "hang" else 20
        replies = [k.call("half"), k.say("x")]
        async with (
            k.turns(tmp_path, replies, k.tool(half, timeout=timeout), **config) as made,
            k.opened(made) as session,
        ):
            task = asyncio.ensure_future(session.run("go"))
            if how == "cancel":
                await hang.reached()
                session.cancel()
            await task
        hang.free.set()
        one = made.finished[0]
        assert one["changes"] == {"created": ["a.txt"], "modified": ["b.txt"], "deleted": ["c.txt"]}
        for line in (
            "+ a.txt (created, 3 B)",
            "~ b.txt (modified, 3 B → 7 B)",
            "- c.txt (deleted)",
        ):
            assert line in one["content"]

    k.go(test)


# ---- cancel ---------------------------------------------------------------------------------------
def test_a_cancelled_batch_keeps_what_ended_marks_what_ran_and_never_starts_the_rest(tmp_path):
    hang = k.Hang()

    def quick() -> str:
        return "real result"

    async def test():
        replies = [
            k.calls(("quick", {}), ("peer", {"what": "a"}), ("quick", {})),
            k.say("continued"),
        ]
        tool = peer_tool(Peer(hang.wait), timeout=60)
        async with k.turns(tmp_path, replies, quick, tool) as made, k.opened(made) as session:
            task = asyncio.ensure_future(session.run("go"))
            await hang.reached()
            began = time.monotonic()
            session.cancel()
            assert (await task).status == "cancelled"
            assert time.monotonic() - began < 2
            assert (await session.run("go on")).answer == "continued"
            one, two, three = made.tool_messages()
            assert one == "real result"
            assert "may have happened" in two
            assert "not run" in three
            assert made.all_valid()
        hang.free.set()

    k.go(test)


def test_one_call_is_cancelled_and_the_turn_goes_on(tmp_path):
    hang = k.Hang()

    async def test():
        batch = k.calls(("peer", {"what": "a"}), ("other", {"what": "b"}))
        tools = (
            peer_tool(Peer(hang.wait), read_only=True, concurrent=True, timeout=60),
            peer_tool(Peer("fine"), "other", read_only=True, concurrent=True),
        )
        async with (
            k.turns(tmp_path, [batch, k.say("done")], *tools) as made,
            k.opened(made) as session,
        ):
            task = asyncio.ensure_future(session.run("go"))
            await hang.reached()
            (one, _two) = (e["call_id"] for e in made.of("tool.queued"))
            assert session.cancel_call(one)
            assert (await task).answer == "done"
            assert not session.cancel_call(one)
        hang.free.set()
        assert made.kinds == ["cancelled", "ok"]

    k.go(test)


def test_a_call_that_waits_for_a_place_or_between_attempts_can_be_cancelled_alone(tmp_path):
    hang = k.Hang()

    async def test():
        batch = k.calls(("peer", {"what": "a"}), ("peer", {"what": "b"}))
        tool = peer_tool(
            Peer(hang.wait), read_only=True, concurrent=True, timeout=60, max_concurrency=1
        )
        config = {"limits": {"gate_wait": 60.0}}
        async with (
            k.turns(tmp_path, [batch, k.say("done")], tool, **config) as made,
            k.opened(made) as session,
        ):
            task = asyncio.ensure_future(session.run("go"))
            await hang.reached()
            one, two = (e["call_id"] for e in made.of("tool.queued"))
            assert session.cancel_call(two)
            assert session.cancel_call(one)
            assert (await task).answer == "done"
        hang.free.set()
        assert made.kinds == ["cancelled", "cancelled"]
        assert "not run" in made.finished[1]["content"]

    k.go(test)


def test_what_is_said_in_between_reaches_the_model_with_the_next_request(tmp_path):
    hang = k.Hang()

    async def test():
        replies = [k.call("peer", what="a"), k.say("done")]
        tool = peer_tool(Peer(lambda: hang.wait() or "ok"), timeout=60)
        async with k.turns(tmp_path, replies, tool) as made, k.opened(made) as session:
            task = asyncio.ensure_future(session.run("go"))
            await hang.reached()
            session.steer("look at b, too")
            hang.free.set()
            await task
            assert made.sent()[-1].content.endswith("look at b, too")
            assert made.all_valid()

    k.go(test)

"""A session goes on where it stopped: with what was said and done, and knowing what it does not know."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import turn_kit as k
import victim
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.record.resume import MOST_INTERRUPTIONS, NOT_RUN, UNKNOWN, rebuild
from runner.record.trajectory import Trajectory, read


def file_of(folder: Path) -> Path:
    """The session's record."""
    return folder / "state" / "sessions" / "s1.jsonl"


def look(name: str) -> str:
    """Looks."""
    return f"{name} was looked at"


def cut(folder: Path, upto: str, drop: str = "tool.finished") -> None:
    """What a crash leaves: everything up to that record, and without those of the other kind."""
    lines = k.lines(file_of(folder))
    last = max(i for i, line in enumerate(lines) if line["type"] == upto)
    kept = [line for line in lines[: last + 1] if line["type"] != drop]
    file_of(folder).write_text("".join(json.dumps(line) + "\n" for line in kept))


def test_what_was_said_and_done_is_there_and_ids_stay_unique(tmp_path):
    first = k.run(tmp_path, [k.call("look", name="a"), k.say("seen a")], look, goals=["see a"])
    made = k.run(
        tmp_path, [k.calls(("look", {"name": "b"}), ("look", {"name": "c"})), k.say("x")], look,
        goals=["see more"],
    )  # fmt: skip
    said = [(m.role, m.content) for m in made.sent(0)][1:]
    assert said == [
        ("user", "see a"), ("assistant", ""), ("tool", "a was looked at"), ("assistant", "seen a"),
        ("user", "see more"),
    ]  # fmt: skip
    ids = [c.id for m in made.sent() for c in m.tool_calls]
    assert len(set(ids)) == len(ids) == 3
    assert made.all_valid()
    assert made.events[0].seq == first.events[-1].seq + 1


def test_a_batch_that_was_cut_off_has_an_answer_for_every_call(tmp_path):
    batch = k.calls(
        ("look", {"name": "a"}),
        ("put", {"to": "b"}),
        ("send", {"to": "c"}),
        ("look", {"name": "d"}),
    )
    k.run(tmp_path, [batch, k.say("x")], k.tool(look, read_only=True), *victim.tools())
    lines = k.lines(file_of(tmp_path))
    third = [i for i, one in enumerate(lines) if one["type"] == "tool.started"][2]
    kept, finished = [], 0
    for line in lines[: third + 1]:
        finished += line["type"] == "tool.finished"
        if line["type"] != "tool.finished" or finished == 1:
            kept.append(line)
    file_of(tmp_path).write_text("".join(json.dumps(line) + "\n" for line in kept))
    made = k.run(tmp_path, [k.say("ok")], look, goals=["continue"])
    one, two, three, four = made.tool_messages(0)
    assert one == "a was looked at"
    assert "no harm" in two
    assert three == UNKNOWN
    assert four == NOT_RUN
    assert made.sent(0)[-1].content == "continue"
    assert made.all_valid()


def test_a_lost_call_is_refused_after_the_resume_until_somebody_knows(tmp_path):
    ask = k.call("send", to="bob")
    k.run(tmp_path, [ask, k.say("x")], *victim.tools())
    cut(tmp_path, "tool.started")
    for _ in range(2):
        made = k.run(tmp_path, [ask, k.say("x")], *victim.tools())
        assert made.kinds == ["outcome_unknown"]
        assert "was interrupted" in made.finished[0]["content"]

    async def person(call, tool, session):
        return True

    made = k.run(tmp_path, [ask, k.say("x")], *victim.tools(), approver=person)
    assert made.kinds == ["ok"]
    assert made.of("approval.asked")[0]["capability"] == "repeat"
    keys = {e["key"] for e in victim.effects(tmp_path)}
    assert len(victim.effects(tmp_path)) == 2
    assert len(keys) == 1, "the peer can tell that it is the same call"
    made = k.run(tmp_path, [ask, k.say("x")], *victim.tools())
    assert made.kinds == ["ok"], "it is known now"


def test_what_was_settled_stays_settled(tmp_path):
    asked = []

    def send(to: str) -> str:
        """Sends."""
        return "sent"

    def became(to: str) -> Any:
        asked.append(to)
        return {"outcome": "done", "result": "id 7"}

    tools = (k.tool(send, reconcile="became"), k.tool(became, read_only=True))
    ask = k.call("send", to="bob")
    k.run(tmp_path, [ask, k.say("x")], *tools)
    cut(tmp_path, "tool.started")
    made = k.run(tmp_path, [ask, k.say("x")], *tools)
    assert "id 7" in made.finished[0]["content"]
    made = k.run(tmp_path, [ask, k.say("x")], *tools)
    assert made.finished[0]["content"] == "sent"
    assert asked == ["bob"], "nobody is asked again about what is known"


def test_a_cancelled_call_that_never_began_is_not_lost(tmp_path):
    async def test():
        async def forever(_call, _tool, _session):
            await asyncio.Event().wait()

        batch = k.calls(("slow", {}), ("send", {"to": "bob"}))
        hang = k.Hang()

        def slow() -> str:
            hang.wait()
            return "late"

        tools = (k.tool(slow, timeout=60.0), *victim.tools())
        async with k.turns(tmp_path, [batch], *tools) as made, k.opened(made) as session:
            task = asyncio.ensure_future(session.run("go"))
            await hang.reached()
            session.cancel()
            await task
            hang.free.set()

    k.go(test)
    made = k.run(tmp_path, [k.call("send", to="bob"), k.say("x")], *victim.tools())
    assert made.kinds == ["ok"]


def test_an_interrupted_turn_is_told_and_a_finished_one_is_not(tmp_path):
    k.run(tmp_path, [k.call("look", name="a"), k.say("x")], look)
    records = k.lines(file_of(tmp_path))
    assert not rebuild(records, "s1").interrupted
    assert rebuild(records[:-1], "s1").interrupted


@pytest.mark.parametrize("count", range(1, MOST_INTERRUPTIONS + 2))
def test_a_call_interrupted_again_and_again_is_taken_for_the_cause(count):
    started = {
        "type": "tool.started", "session": "s1", "call_id": "c", "tool": "put", "key": "k",
        "fingerprint": "f", "idempotent": True,
    }  # fmt: skip
    replied = {"type": "model.replied", "session": "s1", "calls": [{"id": "c", "name": "put"}]}
    made = rebuild(
        [{"type": "turn.started", "session": "s1", "goal": "g"}, replied, started] * count, "s1"
    )
    assert made.open_keys == {"f": "k"}
    assert bool(made.lost) == (count >= MOST_INTERRUPTIONS)
    assert k.fault(made.messages) == ""


def test_results_that_were_spilled_can_still_be_read(tmp_path):
    def report() -> str:
        return "".join(f"line {n}\n" for n in range(9000))

    first = k.run(tmp_path, [k.call("report"), k.say("x")], report)
    name = Path(first.finished[0]["spilled_to"]).name
    made = k.run(
        tmp_path, [k.call("read_result", name=name, offset=8000, limit=1), k.say("x")], report
    )
    assert "line 7999" in made.finished[0]["content"]


def test_notes_and_what_a_person_said_in_between_are_part_of_the_conversation(tmp_path):
    async def test():
        hang = k.Hang()

        def slow() -> str:
            hang.wait()
            return "done it"

        replies = [k.call("slow"), k.say("x")]
        async with (
            k.turns(tmp_path, replies, k.tool(slow, timeout=60.0)) as made,
            k.opened(made) as session,
        ):
            task = asyncio.ensure_future(session.run("go"))
            await hang.reached()
            session.steer("and look at b")
            hang.free.set()
            await task

    k.go(test)
    made = k.run(tmp_path, [k.say("y")], goals=["what now"])
    assert "and look at b" in [m.content for m in made.sent(0)]
    assert made.all_valid()


def test_append_load_append_load_never_glues_records(tmp_path):
    path = tmp_path / "s1.jsonl"
    path.write_text('{"type":"a"}\n{"type":"b"}\n{"type":"c"}\n{"type":"tool","text":"tor')
    from runner.events import Event

    first = Trajectory(path)
    assert [r["type"] for r in first.load().records] == ["a", "b", "c"]
    first.append(Event(4, "t", "s1", 1, 1, "d", {}))
    first.close()
    loaded = read(path)
    assert [r["type"] for r in loaded.records] == ["a", "b", "c", "d"]
    assert loaded.damage == []
    assert path.with_suffix(".torn").read_text() == '{"type":"tool","text":"tor\n'


def test_many_writers_each_have_whole_lines_in_their_order(tmp_path):
    def shout(n: int) -> str:
        return f"{n} " * 5000

    async def test():
        rules = [
            {
                "contains": f"goal {s}",
                "replies": [
                    *(k.calls(*(("shout", {"n": 10 * r + i}) for i in range(4))) for r in range(5)),
                    k.say("x"),
                ],
            }
            for s in "ab"
        ]
        tool = k.tool(shout, read_only=True, concurrent=True)
        config = {"limits": {"slots": 2}, "results": {"max_chars": 30_000}}
        async with k.turns(tmp_path, [], tool, rules=rules, **config) as made:
            await asyncio.gather(*(k.one_turn(made, f"goal {s}", session=s) for s in "ab"))
        for name in "ab":
            records = made.records(name)
            assert [r["seq"] for r in records] == [*range(1, len(records) + 1)]
            begun = [r["call_id"] for r in records if r["type"] == "tool.started"]
            ended = [r["call_id"] for r in records if r["type"] == "tool.finished"]
            assert sorted(begun) == sorted(ended)
            assert len(begun) == 20

    k.go(test)


# ---- any record at all ----------------------------------------------------------------------------
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
TYPES = [
    "session.started", "turn.started", "model.requested", "model.replied", "reply.parsed",
    "tool.queued", "tool.started", "tool.settled", "fallback.started", "tool.finished", "note.added",
    "turn.finished", "turn.undone", "something.else",
]  # fmt: skip
KEYS = [
    "seq", "calls", "call_id", "tool", "text", "goal", "kind", "content", "idempotent", "key",
    "fingerprint", "below", "status", "spilled_to", "attempts",
]  # fmt: skip
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["c1", "c2", "call_0003", ""]), "name": st.just("t")}
    ),
    max_size=3,
)
RECORDS = st.builds(
    lambda type_, more, calls: {
        "session": "s1",
        **more,
        "type": type_,
        **({"calls": calls} if calls else {}),
    },
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(KEYS), JSON_VALUES, max_size=6),
    CALLS,
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(RECORDS, max_size=12))
def test_whatever_the_records_hold_the_rebuilt_history_can_be_sent(records):
    from runner.context.history import valid
    from runner.types import Message

    made = rebuild(records, "s1")
    head = Message(role="system", content="x")
    sent = valid([head, *made.messages, Message(role="user", content="go on")])
    assert k.fault(sent) == ""

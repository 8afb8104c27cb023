"""A session goes on: from a fork of it, after a turn was taken back, with a smaller context."""

from __future__ import annotations

import asyncio

import pytest
import trajectories as t

from runner import Runner, ScriptedModel, SessionError
from runner.events import KINDS
from runner.record.fork import fork, free_id
from runner.record.overview import overview
from runner.record.resume import UNKNOWN, rebuild


def look(name: str) -> str:
    """Looks at something."""
    return f"{name} was looked at"


def pay(amount: int) -> str:
    """Pays."""
    raise SystemExit("gone")


def large(name: str) -> str:
    """A long text."""
    return f"{name} " * 3000


THREE = [t.call("look", name="a"), t.call("look", name="b"), t.say("both seen")]


def run(settings, replies, *goals, session="s1", skills=(look,), before=None):
    """Runs goals in a session and gives what the model was last sent."""

    async def main():
        model = ScriptedModel({"replies": list(replies)})
        async with (
            Runner(model=model, skills=skills, config=settings) as runner,
            runner.session(session) as opened,
        ):
            if before is not None:
                await before(opened)
            for goal in goals:
                await opened.run(goal)
            return [(m.role, m.content) for m in model.requests[-1].messages[1:]]

    return asyncio.run(main())


@pytest.fixture(name="settings")
def _settings(tmp_path):
    settings = t.config(tmp_path)
    t.record(settings, THREE, skills=[look])
    return settings


def test_a_fork_holds_what_there_was_up_to_its_iteration_and_goes_on_from_there(settings):
    fork(settings.paths.state, "s1", "s2", at=1)
    sent = run(settings, [t.say("ok")], "another way", session="s2")
    assert [content for role, content in sent] == [
        *("the goal", "", "a was looked at", "another way")
    ]


def test_a_fork_leaves_the_original_as_it_was(settings):
    before = t.file_of(settings).read_bytes()
    fork(settings.paths.state, "s1", "s2", at=2)
    assert t.file_of(settings).read_bytes() == before


def test_a_fork_bears_its_own_name_in_every_record_and_is_private(settings):
    fork(settings.paths.state, "s1", "s2", at=2)
    path = t.file_of(settings, "s2")
    assert {record["session"] for record in t.records(path)} == {"s2"}
    assert t.records(path)[-1]["type"] == "session.forked"
    assert t.records(path)[-1]["of"] == "s1"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_fork_at_the_last_iteration_holds_the_whole_turn(settings):
    fork(settings.paths.state, "s1", "s2", at=3)
    assert not rebuild(t.records(t.file_of(settings, "s2")), "s2").interrupted


def test_a_fork_may_begin_in_an_earlier_turn(tmp_path):
    settings = t.config(tmp_path)
    t.record(settings, [*THREE, t.say("second")], skills=[look], goals=["one", "two"])
    fork(settings.paths.state, "s1", "s2", at=2, turn=1)
    made = rebuild(t.records(t.file_of(settings, "s2")), "s2")
    assert (made.turns, made.interrupted) == (1, True)
    assert [m.content for m in made.messages if m.role == "user"] == ["one"]


@pytest.mark.parametrize(
    ("at", "turn", "says"), [(4, None, "--at takes 0 to 3"), (1, 7, "has no turn 7")]
)
def test_a_point_that_is_not_there_is_refused_and_nothing_written(settings, at, turn, says):
    with pytest.raises(SessionError, match=says):
        fork(settings.paths.state, "s1", "s2", at=at, turn=turn)
    assert not t.file_of(settings, "s2").exists()


def test_a_fork_is_never_written_over_another_session(settings):
    fork(settings.paths.state, "s1", "s2", at=1)
    with pytest.raises(SessionError, match="'s2' already"):
        fork(settings.paths.state, "s1", "s2", at=2)
    assert free_id(settings.paths.state, "s1", 2) == "s1-at-2"
    fork(settings.paths.state, "s1", "s1-at-2", at=2)
    assert free_id(settings.paths.state, "s1", 2) == "s1-at-2-2"


def test_a_call_that_was_lost_is_refused_in_the_fork_too(tmp_path):
    settings = t.config(tmp_path)
    t.record(settings, [t.call("pay", amount=5), t.say("hm")], skills=[pay])
    path = t.file_of(settings)
    lines = [r for r in t.records(path) if r["iteration"] < 2 and r["type"] != "tool.finished"]
    t.write(path, lines)  # the process died while it paid
    fork(settings.paths.state, "s1", "s2", at=1)
    sent = run(
        settings, [t.call("pay", amount=5), t.say("no")], "go on", session="s2", skills=[pay]
    )
    assert UNKNOWN in [content for _role, content in sent]
    assert sent[-1][1].startswith("not run: this same call of pay was interrupted earlier")


def test_a_fork_can_read_the_whole_results_of_its_original(tmp_path):
    settings = t.config(tmp_path, results={"spill_chars": 2000})
    t.record(settings, [t.call("large", name="x"), t.say("long")], skills=[large])
    fork(settings.paths.state, "s1", "s2", at=1)
    (spilled,) = [
        r["spilled_to"] for r in t.records(t.file_of(settings, "s2")) if r.get("spilled_to")
    ]
    name = spilled.rsplit("/", 1)[1]
    assert "/spills/s2/" in spilled
    replies = [t.call("read_result", name=name, limit=1), t.say("read")]
    sent = run(settings, replies, "read it", session="s2", skills=[large])
    assert sent[-1][1].startswith("x x x")


def test_what_was_taken_back_is_gone_from_the_conversation_now_and_after_a_resume(settings):
    async def twice(session):
        await session.run("forget this")
        assert await session.undo() == "forget this"

    replies = [t.say("secret"), t.say("now")]
    now = run(settings, replies, "what now?", before=twice)
    later = run(settings, [t.say("later")], "and later?")
    assert "forget this" not in str(now) + str(later)
    assert [content for role, content in later if role == "user"] == [
        *("the goal", "what now?", "and later?")
    ]


@pytest.fixture(name="undone")
def _undone(tmp_path):
    """Two turns, the second of which was taken back by the next process."""
    settings = t.config(tmp_path)
    replies = [t.say("first"), t.call("look", name="a"), t.say("second")]
    t.record(settings, replies, skills=[look], goals=["one", "two"])
    t.record(settings, [], goals=[None])
    return settings


def test_a_fork_counts_in_the_last_turn_that_stands(undone):
    assert fork(undone.paths.state, "s1", "s2", at=1).turn == 1
    made = rebuild(t.records(t.file_of(undone, "s2")), "s2")
    assert [m.content for m in made.messages] == ["one", "first"]


def test_a_fork_in_a_turn_that_was_taken_back_brings_it_back(undone):
    fork(undone.paths.state, "s1", "s2", at=2, turn=2)
    made = rebuild(t.records(t.file_of(undone, "s2")), "s2")
    assert [m.content for m in made.messages][-2:] == ["a was looked at", "second"]


def test_the_list_of_sessions_leaves_out_what_was_taken_back(undone):
    line = overview(t.file_of(undone))
    assert (line.turns, line.goal, line.status) == (1, "one", "completed")


def test_a_session_whose_broken_off_turn_was_gone_on_with_is_no_longer_unfinished(settings):
    path = t.file_of(settings)
    t.write(path, [r for r in t.records(path) if r["type"] != "turn.finished"])
    assert overview(path).status == "unfinished"
    t.record(settings, [t.say("now")], goals=["go on"])
    assert overview(path).status == "completed"


def test_there_is_nothing_to_take_back_before_the_first_turn(tmp_path):
    async def undo(session):
        with pytest.raises(SessionError, match="no turn that could be taken back"):
            await session.undo()

    run(t.config(tmp_path), [t.say("x")], "goal", before=undo)


def test_compacting_on_request_makes_the_context_smaller_and_says_how(tmp_path):
    settings = t.config(tmp_path, model={"context_window": 100_000}, context={"summarise": False})
    seen = []

    async def main():
        replies = [*(t.call("large", name=n) for n in "abc"), t.say("all seen")]
        async with (
            Runner(model=ScriptedModel({"replies": replies}), skills=[large], config=settings) as r,
            r.session("s1", listeners=[lambda e: seen.append(e.type)]) as session,
        ):
            await session.run("look at all")
            before = session.state.window.tokens
            steps = await session.compact()
            return before, session.state.window.tokens, steps

    before, after, steps = asyncio.run(main())
    assert after < before / 2
    assert [s.name for s in steps] == ["truncated"]
    assert "context.truncated" in seen


def test_the_kinds_of_events_that_were_added_are_listed():
    assert {"session.forked", "turn.undone"} <= set(KINDS)

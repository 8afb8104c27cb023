"""Replay looks and does nothing; with live skills it tells where today is not yesterday."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from skill_kit import one_tool
from skill_kit import write as write_skill
from trajectories import call, config, file_of, record, records, say, write

import runner
from runner import Event, Runner, ScriptedModel
from runner.errors import RecordError, SessionError
from runner.record.replay import Replayed, replay

ran: list[str] = []


def note(text: str) -> dict[str, object]:
    """Keeps a note."""
    ran.append(text)
    return {"kept": text}


def broken() -> str:
    """Does not work."""
    ran.append("broken")
    raise KeyError("no such key")


SKILLS = (note, broken)
HARD = [
    {
        "calls": [
            {"name": "note", "arguments": {"text": "a"}},
            {"name": "note", "arguments": {"txt": 1}},
        ]
    },
    say('<tool_call>{"name": "note", "arguments": {"text": "in words"}}</tool_call>'),
    say('<tool_call>{"name": "note", "arguments": {"text": }</tool_call>'),
    call("nothing_like_it", text="a"),
    call("broken"),
    say(""),
    *[call("note", text="again")] * 4,
    say("  the final words\n"),
]


def replayed(settings: object, **options: object) -> Replayed:
    return asyncio.run(replay(settings, "s1", **options))  # type: ignore[arg-type]


def skill(body: str, flags: str = "read_only = true") -> dict[str, str]:
    parameters = "properties.text = { type = 'string' }"
    return one_tool("note", body=body, parameters=parameters, flags=flags)


def shown(text: str) -> str:
    return f"def note(text='-'):\n    return {text}\n"


def test_a_pure_replay_gives_the_same_transcript_and_runs_nothing(tmp_path: Path) -> None:
    settings = config(tmp_path, limits={"max_iterations": 40})
    first = record(settings, HARD, skills=SKILLS)
    before, size = len(ran), file_of(settings).stat().st_size
    done = replayed(settings)
    assert first.results[0].answer == done.story.answer == "the final words"
    assert done.divergence is None
    assert done.messages == first.messages
    assert len(ran) == before
    assert file_of(settings).stat().st_size == size
    assert done.ran == 0
    assert done.compared == 9


@pytest.mark.parametrize(
    ("status", "replies", "limits"),
    [
        ("max_iterations", [call("note", text=str(n)) for n in range(3)] + [say("so far")], {}),
        ("max_iterations", [call("note", text=str(n)) for n in range(4)], {}),
        ("loop_stopped", [call("note", text="again")] * 9, {"max_iterations": 20}),
        ("failed", [call("note", text="a"), {"status": 401}], {}),
        ("failed", [say("")] * 4, {}),
        ("budget_exhausted", [call("note", text="a"), say("b")], {"max_total_tokens": 100}),
    ],
)
def test_a_turn_that_a_brake_ended_ends_again_as_it_did(
    tmp_path: Path, status: str, replies: list[dict[str, object]], limits: dict[str, object]
) -> None:
    settings = config(tmp_path, limits={"max_iterations": 3, **limits})
    first = record(settings, replies, skills=SKILLS)
    assert first.results[0].status == status
    done = replayed(settings)
    assert done.divergence is None
    assert done.messages == first.messages


def test_the_turns_of_a_session_are_replayed_in_order(tmp_path: Path) -> None:
    settings = config(tmp_path)
    replies = [call("note", text="a"), say("one"), call("note", text="a"), say("two")]
    first = record(settings, replies, skills=SKILLS, goals=["first", "second"])
    done = replayed(settings)
    assert done.divergence is None
    assert done.messages == first.messages
    assert done.to_dict()["turns"] == [
        {"turn": n, "status": "completed", "iterations": 2, "undone": False} for n in (1, 2)
    ]


def test_a_turn_that_was_taken_back_is_gone_from_the_replayed_transcript_too(
    tmp_path: Path,
) -> None:
    settings = config(tmp_path)
    replies = [say("one"), call("note", text="a"), say("two"), {"status": 401}, say("three")]
    goals = ["first", "second", "third", None, None, "fourth"]
    first = record(settings, replies, skills=SKILLS, goals=goals)
    done = replayed(settings)
    assert done.divergence is None
    assert done.messages == first.messages
    assert [m.content for m in done.messages] == ["first", "one", "fourth", "three"]
    assert [turn["undone"] for turn in done.to_dict()["turns"]] == [False, True, True, False]


def test_the_answer_of_a_replay_is_that_of_the_last_turn_that_stands(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record(settings, [say("one"), say("two")], goals=["first", "second", None])
    assert replayed(settings).to_dict()["answer"] == "one"


def test_a_turn_that_died_and_was_taken_back_by_the_next_process_is_replayed(
    tmp_path: Path,
) -> None:
    settings = config(tmp_path)
    record(settings, [call("note", text="a"), say("never said")], skills=SKILLS)
    lines = records(file_of(settings))
    cut = next(i for i, r in enumerate(lines) if r["type"] == "tool.finished")
    write(file_of(settings), lines[:cut])
    second = record(settings, [say("fine")], skills=SKILLS, goals=[None, "again"])
    done = replayed(settings)
    assert done.divergence is None
    assert done.messages == second.messages
    assert [m.content for m in done.messages] == ["again", "fine"]


def test_a_session_that_died_in_a_call_is_replayed_up_to_there(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record(settings, [call("note", text="a"), say("never said")], skills=SKILLS)
    lines = records(file_of(settings))
    cut = next(i for i, r in enumerate(lines) if r["type"] == "tool.finished")
    write(file_of(settings), lines[:cut])
    done = replayed(settings)
    assert done.divergence is None
    assert "outcome is unknown" in done.messages[-1].content


def test_a_changed_record_shows_where_it_goes_another_way(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record(settings, [*[call("note", text="again")] * 2, say("ok")], skills=SKILLS)
    lines = [r for r in records(file_of(settings)) if r["type"] != "loop.noticed"]
    write(file_of(settings), lines)
    found = replayed(settings).divergence
    assert found is not None
    assert (found.what, found.number) == ("the loop guard", 2)
    assert "+loop.noticed identical × 2 (note)" in found.diff()


def test_a_reply_that_is_read_differently_now_is_a_divergence(tmp_path: Path) -> None:
    settings = config(tmp_path)
    text = '<tool_call>{"name": "note", "arguments": {"text": "a"}}</tool_call>'
    record(settings, [say(text), say("ok")], skills=SKILLS)
    lines = records(file_of(settings))
    for line in lines:
        if line["type"] == "reply.parsed":
            line["calls"][0]["arguments"] = {"text": "b"}
    write(file_of(settings), lines)
    found = replayed(settings).divergence
    assert found is not None
    assert found.what == "what was read in the reply"


def test_live_skills_that_do_the_same_are_no_divergence(tmp_path: Path) -> None:
    write_skill(
        tmp_path / "skills", skill("import time\n" + shown("f'{text} at {time.time_ns():x}abcdef'"))
    )
    settings = config(tmp_path, paths={"skills": ["skills"]})
    record(settings, [call("note", text="a"), say("ok")])
    done = replayed(settings, live=True)
    assert done.divergence is None
    assert (done.compared, done.ran) == (1, 1)


def test_an_edited_skill_is_shown_as_a_difference(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", skill(shown("text * 2")))
    settings = config(tmp_path, paths={"skills": ["skills"]})
    record(settings, [call("note", text="a"), call("note", text="b"), say("ok")])
    write_skill(tmp_path / "skills", skill(shown("'aa' if text == 'a' else text * 3")))
    assert replayed(settings).divergence is None
    found = replayed(settings, live=True).divergence
    assert found is not None
    assert (found.number, found.tool, found.arguments) == (2, "note", {"text": "b"})
    assert "-bb" in found.diff()
    assert "+bbb" in found.diff()


def test_what_stands_before_the_start_is_not_run(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", skill(shown("text * 2")))
    settings = config(tmp_path, paths={"skills": ["skills"]})
    record(settings, [call("note", text="a"), call("note", text="b"), say("ok")])
    write_skill(tmp_path / "skills", skill(shown("'new' if text == 'a' else 'bb'")))
    done = replayed(settings, live=True, start=2)
    assert done.divergence is None
    assert done.ran == 1


def test_a_call_whose_arguments_were_redacted_is_never_run(tmp_path: Path) -> None:
    log = str(tmp_path / "ran.log")
    body = f"from pathlib import Path\n\ndef note(text):\n    Path({log!r}).write_text(text)\n"
    body += "    return 'kept'\n"
    write_skill(tmp_path / "skills", skill(body))
    settings = config(tmp_path, paths={"skills": ["skills"]})
    secret = "sk-proj-" + "A1b2C3d4" * 5
    record(settings, [call("note", text=secret), say("ok")])
    (tmp_path / "ran.log").unlink()
    done = replayed(settings, live=True)
    assert not (tmp_path / "ran.log").exists()
    assert done.divergence is None
    assert done.left_out == {"call_0001": "its arguments were redacted on disk"}


def test_a_call_that_needs_permission_asks_and_without_a_yes_is_left_out(tmp_path: Path) -> None:
    write_skill(
        tmp_path / "skills", skill(shown("'sent'"), "destructive = true\npermissions = ['net']")
    )
    allowed = config(tmp_path, paths={"skills": ["skills"]}, permissions={"net": "allow"})
    record(allowed, [call("note", text="a"), say("ok")])
    asking = config(tmp_path, paths={"skills": ["skills"]}, permissions={"net": "ask"})
    done = replayed(asking, live=True)
    assert (done.ran, done.divergence) == (0, None)
    assert list(done.left_out) == ["call_0001"]

    async def yes(call: object, tool: object, session: object) -> bool:
        return True

    done = replayed(asking, live=True, approver=yes)
    assert (done.ran, done.left_out, done.divergence) == (1, {}, None)


def test_corrupt_lines_are_skipped_and_reported(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record(settings, [call("note", text="a"), say("ok")], skills=SKILLS)
    path = file_of(settings)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        b"".join([*whole[:2], b"\xff\x00 not json\n", *whole[2:], b'{"type":"tool.fin'])
    )
    done = replayed(settings)
    assert done.divergence is None
    assert len(done.damage) == 2
    assert path.read_bytes().endswith(b'"tool.fin')


@pytest.mark.parametrize("first", [0, 1])
def test_values_of_an_odd_shape_end_in_no_exception(tmp_path: Path, first: int) -> None:
    odd = (None, [1], "x", {"a": None}, -1, 1e40)
    settings = config(tmp_path)
    record(settings, HARD, skills=SKILLS)
    whole = records(file_of(settings))
    fixed = {"seq", "time", "session", "type", "schema", "arguments"}
    keys = {(line["type"], key) for line in whole for key in line if key not in fixed}
    for number, (type_, key) in enumerate(sorted(keys), first):
        junk = odd[number % len(odd)]
        write(file_of(settings), [{**r, key: junk} if r["type"] == type_ else r for r in whole])
        assert isinstance(replayed(settings), Replayed)


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    settings = config(tmp_path)
    write(file_of(settings), [{"type": "session.started", "session": "s1", "schema": 99}])
    with pytest.raises(RecordError, match="newer version"):
        replayed(settings)


def test_a_session_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no session 's1'"):
        replayed(config(tmp_path))


def test_a_replay_needs_neither_the_skills_nor_the_server(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", skill(shown("text")))
    settings = config(tmp_path, paths={"skills": ["skills"]})
    record(settings, [call("note", text="a"), say("ok")])
    shutil.rmtree(tmp_path / "skills")
    assert replayed(settings).divergence is None


def test_what_a_sub_agent_did_belongs_to_it_alone(tmp_path: Path) -> None:
    settings = config(tmp_path)
    replies = [call("agent", task="look"), call("note", text="a"), say("child done"), say("ok")]
    first = record(settings, replies, skills=SKILLS)
    assert first.results[0].answer == "ok"
    done = replayed(settings)
    assert done.divergence is None
    assert done.messages == first.messages


def test_the_report_is_plain_data(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record(settings, [call("note", text="a"), say("ok")], skills=SKILLS)
    report = json.loads(json.dumps(replayed(settings).to_dict()))
    assert report["mode"] == "pure"
    assert report["divergence"] is None
    assert report["answer"] == "ok"


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runner", "trace", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(runner.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_ends_with_the_recorded_answer_and_says_zero(tmp_path: Path) -> None:
    record(config(tmp_path), HARD, skills=SKILLS)
    done = command(tmp_path, "replay", "s1", "--state", "state")
    assert (done.returncode, done.stdout) == (0, "the final words\n")
    assert "none of them run" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_shows_the_first_difference_and_says_one(tmp_path: Path) -> None:
    record(config(tmp_path), HARD, skills=SKILLS)
    done = command(tmp_path, "replay", "s1", "--state", "state", "--live")
    assert done.returncode == 1
    assert "--- recorded\n+++ now" in done.stderr
    assert "+unknown_tool" in done.stderr
    report = json.loads(command(tmp_path, "replay", "s1", "--state", "state", "--json").stdout)
    assert report["divergence"] is None


def test_a_session_whose_calls_are_text_is_replayed_as_text(tmp_path: Path) -> None:
    settings = config(tmp_path, model={"tool_mode": "json"})
    replies = [
        say('{"tool_calls": [{"name": "note", "arguments": {"text": "a"}}]}'),
        say('```json\n{"name": "note", "arguments": {"txt": 5}}\n```'),
        say('{"answer": "all is noted"}'),
    ]
    first = record(settings, replies, skills=SKILLS)
    assert first.results[0].answer == "all is noted"
    done = replayed(config(tmp_path))
    assert done.divergence is None
    assert done.messages == first.messages


def test_what_a_user_said_in_between_is_said_again(tmp_path: Path) -> None:
    settings = config(tmp_path)

    async def run() -> tuple[object, ...]:
        model = ScriptedModel({"replies": [call("note", text="a"), say("ok")]})
        runner = Runner(model=model, skills=SKILLS, config=settings)
        async with runner, runner.session("s1") as session:

            def hurry(event: Event) -> None:
                if event.type == "tool.started":
                    session.steer("hurry")

            session.listen(hurry)
            await session.run("the goal")
            assert session.state is not None
            return tuple(session.state.transcript)

    before = asyncio.run(run())
    done = replayed(settings)
    assert done.divergence is None
    assert done.messages == before
    assert "hurry" in [m.content for m in done.messages]


def test_a_process_killed_before_the_last_record_of_its_turn_is_no_divergence(
    tmp_path: Path,
) -> None:
    settings = config(tmp_path)
    record(settings, [call("note", text="a"), say("all done")], skills=SKILLS)
    lines = records(file_of(settings))
    kinds = [line["type"] for line in lines]
    write(file_of(settings), lines[: kinds.index("turn.finished")])
    done = replayed(settings)
    assert done.divergence is None
    assert done.messages[-1].content == "all done"


def test_a_cancelled_turn_ends_where_it_was_cancelled(tmp_path: Path) -> None:
    settings = config(tmp_path)

    async def run() -> tuple[object, ...]:
        replies = [call("note", text="a"), call("note", text="b"), {"hang": True}]
        model = ScriptedModel({"replies": replies})
        runner = Runner(model=model, skills=SKILLS, config=settings)
        async with runner, runner.session("s1") as session:
            asked: list[str] = []

            def stop(event: Event) -> None:
                if event.type == "model.requested":
                    asked.append(event.type)
                    if len(asked) == 3:
                        session.cancel()

            session.listen(stop)
            result = await session.run("the goal")
            assert result.status == "cancelled"
            assert session.state is not None
            return tuple(session.state.transcript)

    before = asyncio.run(run())
    done = replayed(settings)
    assert done.divergence is None
    assert done.messages == before


def test_a_result_that_was_cut_is_compared_whole(tmp_path: Path) -> None:
    long = "'\\n'.join(f'line {n}' for n in range(9000))"
    write_skill(tmp_path / "skills", skill(shown(long)))
    settings = config(tmp_path, paths={"skills": ["skills"]})
    record(settings, [call("note", text="a"), say("ok")])
    kept = [r for r in records(file_of(settings)) if r["type"] == "tool.finished"]
    assert kept[0]["spilled_to"]
    assert replayed(settings, live=True).divergence is None
    write_skill(tmp_path / "skills", skill(shown(long + ".replace('line 4500', 'another')")))
    assert replayed(settings, live=True).divergence is not None
    assert sorted(p.name for p in (tmp_path / "state" / "spills" / "s1").iterdir()) == [
        Path(kept[0]["spilled_to"]).name
    ]

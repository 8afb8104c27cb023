"""The whole batch is decided before anything runs, in order, and a refusal is a result."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import turn_kit as k
from skill_kit import one_tool, write

from runner import Decision, SkillContext, hookimpl
from runner.loop import MOST_CALLS

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def echo(text: str) -> str:
    """Says it again."""
    RAN.append(text)
    return f"echo {text}"


def search(query: str, page: int = 1) -> list[str]:
    """Searches."""
    RAN.append((query, page))
    return [f"{query}-{page}"]


def typed(n: int, b: bool, x: float) -> str:
    """Takes three types."""
    RAN.append((n, b, x))
    return "ok"


def tagged(tags: list[str], opts: dict | None = None) -> str:
    """Takes lists and objects."""
    RAN.append((tags, opts))
    return "ok"


def write_note(name: str) -> str:
    """Writes."""
    RAN.append(name)
    return f"wrote {name}"


WRITES = k.tool(write_note, permissions=("fs.write",))
ASK = {"permissions": {"fs.write": "ask"}}


# ---- is it there? ---------------------------------------------------------------------------------
def test_an_unknown_tool_is_named_with_its_nearest(tmp_path):
    made = k.run(tmp_path, [k.call("ecko", text="a"), k.say("x")], echo)
    assert made.kinds == ["unknown_tool"]
    assert "unknown tool: ecko" in made.finished[0]["content"]
    assert "echo" in made.finished[0]["content"]
    assert RAN == []


def test_a_name_that_no_tool_has_is_told_cleaned_and_cut(tmp_path):
    made = k.run(tmp_path, [k.call(f"echo\x1b[2J{'o' * 100_000}", text="a"), k.say("x")], echo)
    assert made.kinds == ["unknown_tool"]
    assert made.finished[0]["content"].startswith("unknown tool: echooo")
    assert len(made.finished[0]["content"]) < 500


def test_a_tool_beyond_the_limit_is_deferred_and_found_by_searching(tmp_path):
    def numbered(number):
        def one() -> str:
            RAN.append(number)
            return "ran"

        one.__name__, one.__doc__ = f"part_{number:02d}", f"Handles subject{number}."
        return one

    replies = [
        k.call("part_07"),
        k.call("tool_search", query="subject7"),
        k.call("part_07"),
        k.say("done"),
    ]
    made = k.run(
        tmp_path, replies, *(numbered(n) for n in range(9)), limits={"max_offered_tools": 4}
    )
    assert made.kinds == ["not_offered", "ok", "ok"]
    assert "tool_search" in made.finished[0]["content"]
    assert RAN == [7]
    offered = [[t.name for t in request.tools] for request in made.model.requests]
    assert all(len(names) <= 6 for names in offered)
    assert "part_07" not in offered[1]
    assert "part_07" in offered[2]


def test_a_tool_of_a_skill_that_the_config_disables_is_not_offered_and_refused_as_such(tmp_path):
    write(tmp_path / "skills", one_tool("gone"))
    write(tmp_path / "skills", one_tool("here"))
    config = k.settings(tmp_path, plugins={"disabled": ["gone"]}, paths={"skills": ["skills"]})
    made = k.run(tmp_path, [k.calls(("gone", {}), ("here", {})), k.say("done")], config=config)
    assert made.kinds == ["disabled", "ok"]
    assert "tool gone is disabled" in made.finished[0]["content"]
    assert [t.name for t in made.model.requests[0].tools if t.name == "gone"] == []


def test_a_disabled_name_that_nothing_has_is_told_with_what_it_may_have_been(tmp_path):
    write(tmp_path / "skills", one_tool("weather"))
    disabled = {"disabled": ["wether", "weather", "other.py", "it"], "modules": ["other.py"]}
    config = k.settings(tmp_path, plugins=disabled, paths={"skills": ["skills"]})

    async def test():
        async with k.turns(tmp_path, [], config=config) as made:
            assert made.runner.warnings == [
                "plugins.disabled: there is no skill and no plugin 'wether'; did you mean 'weather'?",
                "plugins.disabled: there is no skill and no plugin 'it'",
            ]

    k.go(test)


# ---- do the arguments fit? ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "came", "coerced"),
    [
        ({"n": "5", "b": "true", "x": "1.5"}, (5, True, 1.5), ["n", "b", "x"]),
        ({"n": 5.0, "b": True, "x": 1}, (5, True, 1), ["n"]),
        ({"n": True, "b": 1, "x": 1}, None, []),
        ({"n": "5.5", "b": "yes", "x": "abc"}, None, []),
    ],
)
def test_only_what_loses_nothing_is_converted_and_the_tool_gets_what_was_checked(
    tmp_path, given, came, coerced
):
    made = k.run(tmp_path, [k.call("typed", **given), k.say("x")], typed)
    assert ([came] if came else []) == RAN
    if came:
        assert [type(part) for part in RAN[0]] == [type(part) for part in came]
        assert sorted(made.finished[0]["coerced"]) == sorted(coerced)
    else:
        assert made.kinds == ["invalid_arguments"]
        assert all(name in made.finished[0]["content"] for name in given)


@pytest.mark.parametrize(
    ("given", "came"),
    [
        ({"tags": '["a","b"]', "opts": '{"k":1}'}, (["a", "b"], {"k": 1})),
        ({"tags": "a,b"}, None),
        ({"tags": '["a"'}, None),
    ],
)
def test_a_list_written_as_text_is_read_and_anything_like_it_is_refused(tmp_path, given, came):
    made = k.run(tmp_path, [k.call("tagged", **given), k.say("x")], tagged)
    assert ([came] if came else []) == RAN
    assert made.kinds == ["ok" if came else "invalid_arguments"]


def test_a_renamed_parameter_is_explained_in_one_short_message(tmp_path):
    made = k.run(
        tmp_path,
        [k.call("search", keyword="x"), k.call("search", query="x"), k.say("done")],
        search,
    )
    said = made.finished[0]["content"]
    assert made.kinds == ["invalid_arguments", "ok"]
    assert all(word in said for word in ("keyword", "query", "page"))
    assert len(said) < 600
    assert RAN == [("x", 1)]


def test_a_bound_is_part_of_the_refusal(tmp_path):
    from dataclasses import replace

    def analyse(count: int) -> str:
        RAN.append(count)
        return "ok"

    bounded = k.tool(analyse)
    schema = {
        **bounded.parameters,
        "properties": {"count": {"type": "integer", "minimum": 1, "maximum": 100}},
    }
    made = k.run(
        tmp_path,
        [k.call("analyse", count=-3), k.call("analyse", count=3), k.say("ok")],
        replace(bounded, parameters=schema),
    )
    assert made.kinds == ["invalid_arguments", "ok"]
    assert "1" in made.finished[0]["content"]
    assert "-3" in made.finished[0]["content"]
    assert RAN == [3]


@pytest.mark.parametrize("depth", [50, 300, 900, 5000])
def test_deeply_nested_arguments_never_break_the_turn(tmp_path, depth):
    def swallow(data: list) -> str:
        RAN.append("ran")
        return "ok"

    nested: Any = []
    for _ in range(depth):
        nested = [nested]
    made = k.run(tmp_path, [k.call("swallow", data=nested), k.say("done")], swallow)
    assert made.result.status == "completed"
    assert len(made.kinds) == 1
    assert made.all_valid()


@pytest.mark.parametrize(
    "raw", ['{"text": ', "", "[1]", '{"text":"a"}{"text":"b"}', '{"text": NaN}', '"text"', "null"]
)
def test_arguments_that_are_no_object_run_nothing_and_leave_a_valid_history(tmp_path, raw):
    reply = {"calls": [{"name": "echo", "arguments": raw}]}
    made = k.run(tmp_path, [reply, k.say("done")], echo)
    assert made.result.answer == "done"
    assert made.kinds in (["unparsable"], ["invalid_arguments"])
    assert RAN == []
    assert made.all_valid()


def test_calls_beyond_the_most_of_one_reply_are_answered_without_running(tmp_path):
    many = k.calls(*(("echo", {"text": str(n)}) for n in range(MOST_CALLS + 20)))
    made = k.run(tmp_path, [many, k.say("done")], k.tool(echo, read_only=True, concurrent=True))
    assert len(RAN) == MOST_CALLS
    assert made.kinds == ["ok"] * MOST_CALLS + ["busy"] * 20
    assert "not run" in made.finished[-1]["content"]
    assert made.all_valid()
    assert len(made.tool_messages()) == MOST_CALLS + 20


@pytest.mark.parametrize("ids", [("same", "same"), ("", ""), ("call_0001", "call_0001")])
def test_calls_that_share_an_id_are_all_run_and_all_answered(tmp_path, ids):
    first = k.calls(("echo", {"text": "a"}, ids[0]), ("echo", {"text": "b"}, ids[1]))
    again = k.calls(("echo", {"text": "c"}, ids[0]), ("echo", {"text": "d"}, ids[1]))
    made = k.run(tmp_path, [first, again, k.say("done")], echo)
    assert [*"abcd"] == RAN
    assert made.all_valid()
    assert made.tool_messages() == [f"echo {text}" for text in "abcd"]


# ---- may it? --------------------------------------------------------------------------------------
class Person:
    """Answers from a list and remembers what it was asked, and what had run by then."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.ran_before: list[int] = []
        self.at_once = 0
        self.most = 0

    async def __call__(self, call, tool, session):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.asked.append(call.arguments.get("name", call.name))
        self.ran_before.append(len(RAN))
        await asyncio.sleep(0.001)
        self.at_once -= 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


BATCH = k.calls(*(("write_note", {"name": name}) for name in "abc"))


def test_questions_come_one_after_the_other_in_order_before_anything_runs(tmp_path):
    person = Person("allow", "deny", "allow")
    made = k.run(tmp_path, [BATCH, k.say("done")], WRITES, approver=person, **ASK)
    assert person.asked == ["a", "b", "c"]
    assert person.ran_before == [0, 0, 0]
    assert RAN == ["a", "c"]
    assert made.kinds == ["ok", "denied", "ok"]
    assert "refused" in made.finished[1]["content"]
    asked = [t for t in made.types if t.startswith("approval.")]
    assert asked == ["approval.asked", "approval.answered"] * 3
    assert [e["decision"] for e in made.of("approval.answered")] == ["allow", "deny", "allow"]


def test_yes_for_the_session_is_not_asked_again_now_or_in_the_next_turn(tmp_path):
    person = Person("allow_session")

    async def test():
        async with (
            k.turns(
                tmp_path, [BATCH, k.say("1"), BATCH, k.say("2")], WRITES, approver=person, **ASK
            ) as made,
            k.opened(made) as session,
        ):
            await session.run("one")
            await session.run("two")
        assert [*"abcabc"] == RAN
        assert person.asked == ["a"]

    k.go(test)


def test_yes_for_the_session_does_not_cover_the_runners_own_files(tmp_path):
    def save(path: str, ctx: SkillContext) -> str:
        ctx.write_bytes(path, b"x")
        RAN.append(path)
        return "ok"

    answers = iter(["allow_session", "deny"])

    async def person(_call, _tool, _session):
        return next(answers)

    places = ["a.txt", "b.txt", "config/runner.toml"]
    (tmp_path / "config").mkdir()
    made = k.run(
        tmp_path,
        [k.calls(*(("save", {"path": p}) for p in places)), k.say("x")],
        k.tool(save, permissions=("fs.write",)),
        approver=person,
        **ASK,
    )
    assert made.kinds == ["ok", "ok", "denied"]
    assert places[:2] == RAN
    asked = made.of("approval.asked")
    assert [one["capability"] for one in asked] == ["fs.write", "fs.write:config"]
    assert "runner's own files" in asked[1]["reason"]


def test_yes_for_one_session_says_nothing_for_another(tmp_path):
    person = Person("allow_session", "deny")

    async def test():
        one = k.call("write_note", name="a")
        async with k.turns(
            tmp_path, [one, k.say("1"), one, k.say("2")], WRITES, approver=person, **ASK
        ) as made:
            await k.one_turn(made, session="s1")
            await k.one_turn(made, session="s2")
        assert RAN == ["a"]
        assert len(person.asked) == 2

    k.go(test)


def test_only_one_question_is_open_however_many_sessions_ask(tmp_path):
    person = Person(*(["allow"] * 9))

    async def test():
        rules = [{"contains": f"goal {n}", "replies": [BATCH, k.say("done")]} for n in range(3)]
        async with k.turns(
            tmp_path, [], WRITES, approver=person, rules=rules, limits={"slots": 3}, **ASK
        ) as made:
            await asyncio.gather(
                *(k.one_turn(made, f"goal {n}", session=f"s{n}") for n in range(3))
            )
        assert person.most == 1
        assert len(RAN) == 9

    k.go(test)


@pytest.mark.parametrize("answer", [False, None, "deny", "no", "yes please", 1, RuntimeError("x")])
def test_whatever_is_no_clear_yes_is_a_no(tmp_path, answer):
    made = k.run(
        tmp_path,
        [k.call("write_note", name="a"), k.say("done")],
        WRITES,
        approver=Person(answer),
        **ASK,
    )
    assert made.kinds == ["denied"]
    assert RAN == []
    assert made.result.status == "completed"


def test_nobody_to_ask_and_nobody_who_answers_in_time_are_both_a_no(tmp_path):
    one = [k.call("write_note", name="a"), k.say("done")]
    nobody = k.run(tmp_path / "1", one, WRITES, **ASK)
    assert nobody.kinds == ["denied"]
    assert "nobody to ask" in nobody.finished[0]["content"]

    async def never(call, tool, session):
        await asyncio.Event().wait()

    limits = {"permissions": {"fs.write": "ask", "ask_timeout": 0.05}}
    late = k.run(tmp_path / "2", one, WRITES, approver=never, **limits)
    assert late.kinds == ["denied"]
    assert "0.05 s" in late.finished[0]["content"]
    assert RAN == []


def test_deny_is_final_and_nobody_is_asked(tmp_path):
    person = Person()
    made = k.run(
        tmp_path,
        [k.call("write_note", name="a"), k.say("done")],
        WRITES,
        approver=person,
        permissions={"fs.write": "allow", "tools": {"write_note": "deny"}},
    )
    assert made.kinds == ["denied"]
    assert person.asked == RAN == []


def test_a_scope_in_the_config_decides_for_its_place_only(tmp_path):
    def save(path: str) -> str:
        RAN.append(path)
        return "ok"

    batch = k.calls(("save", {"path": "out/a.txt"}), ("save", {"path": "src/a.txt"}))
    made = k.run(
        tmp_path,
        [batch, k.say("done")],
        k.tool(save, permissions=("fs.write",)),
        permissions={"fs.write": "ask", "fs.write:out/**": "allow"},
    )
    assert made.kinds == ["ok", "denied"]
    assert RAN == ["out/a.txt"]


def test_a_question_is_not_asked_of_a_turn_that_was_cancelled(tmp_path):
    person = Person()

    async def test():
        hang = asyncio.Event()

        async def first(call, tool, session):
            person.asked.append(call.arguments["name"])
            await hang.wait()

        async with (
            k.turns(tmp_path, [BATCH], WRITES, approver=first, **ASK) as made,
            k.opened(made) as session,
        ):
            task = asyncio.ensure_future(session.run("go"))
            await made.heard("approval.asked")
            session.cancel()
            result = await task
        assert result.status == "cancelled"
        assert person.asked in ([], ["a"])
        assert made.kinds == ["cancelled"] * 3
        assert RAN == []

    k.go(test)


# ---- what guards say ------------------------------------------------------------------------------
class Guard:
    """A plugin that answers as it was told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    @hookimpl
    def pre_tool_use(self, call, tool, session):
        return self.answer(call) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("answer", "kind", "ran"),
    [
        (None, "ok", ["a"]),
        (Decision("allow"), "ok", ["a"]),
        (Decision("allow", arguments={"text": "other"}), "ok", ["other"]),
        (Decision("allow", arguments={"txt": "wrong"}), "invalid_arguments", []),
        (Decision("allow", arguments="junk"), "denied", []),
        (Decision("deny", "not today"), "denied", []),
        (Decision("answer", content="from the guard"), "ok", []),
        (Decision("maybe"), "denied", []),
        ("maybe", "denied", []),
        (True, "denied", []),
        (lambda call: 1 / 0, "denied", []),
        (lambda call: call.arguments.update(text="changed"), "ok", ["a"]),
    ],
)
def test_a_guard_decides_and_one_that_fails_stays_shut(tmp_path, answer, kind, ran):
    made = k.run(tmp_path, [k.call("echo", text="a"), k.say("done")], echo, plugins=[Guard(answer)])
    assert made.kinds == [kind]
    assert ran == RAN
    assert made.result.status == "completed"


def test_a_guard_that_never_answers_denies_at_its_deadline(tmp_path):
    hang = k.Hang()
    settings = k.settings(tmp_path, plugins={"hook_timeout": 0.05})
    made = k.run(
        tmp_path,
        [*(k.call("echo", text=str(n)) for n in range(5)), k.say("done")],
        echo,
        plugins=[Guard(lambda call: hang.wait())],
        config=settings,
    )
    hang.free.set()
    assert made.kinds == ["denied"] * 5
    assert "did not answer in 0.05 s" in made.finished[0]["content"]
    assert RAN == []
    assert hang.count == 3, "calls of a hook that hangs are bounded"
    assert "still hang" in made.finished[4]["content"]


def test_changed_arguments_are_held_to_the_policy_again(tmp_path):
    def save(path: str) -> str:
        RAN.append(path)
        return "ok"

    made = k.run(
        tmp_path,
        [k.call("save", path="out/a"), k.say("done")],
        k.tool(save, permissions=("fs.write",)),
        plugins=[Guard(Decision("allow", arguments={"path": "etc/passwd"}))],
        permissions={"fs.write": "allow", "fs.write:etc/**": "deny"},
    )
    assert made.kinds == ["denied"]
    assert RAN == []


def test_a_plugin_may_answer_a_question_before_a_person_is_asked(tmp_path):
    class Policy:
        @hookimpl
        def permission_request(self, call, tool, session):
            return {"a": True, "b": False}.get(call.arguments["name"])

    person = Person("allow")
    made = k.run(
        tmp_path, [BATCH, k.say("done")], WRITES, plugins=[Policy()], approver=person, **ASK
    )
    assert made.kinds == ["ok", "denied", "ok"]
    assert person.asked == ["c"]


def test_a_plugin_that_fails_to_answer_a_question_means_no(tmp_path):
    class Broken:
        @hookimpl
        def permission_request(self, call, tool, session):
            raise RuntimeError("broken")

    person = Person("allow")
    made = k.run(
        tmp_path,
        [k.call("write_note", name="a"), k.say("done")],
        WRITES,
        plugins=[Broken()],
        approver=person,
        **ASK,
    )
    assert made.kinds == ["denied"]
    assert person.asked == RAN == []


def test_every_refusal_is_one_event_and_starts_nothing(tmp_path):
    batch = k.calls(("nope", {}), ("echo", {}), ("write_note", {"name": "a"}))
    made = k.run(tmp_path, [batch, k.say("done")], echo, WRITES, **ASK)
    assert made.kinds == ["unknown_tool", "invalid_arguments", "denied"]
    assert not {"tool.queued", "tool.started"} & set(made.types)
    assert json.dumps(made.records(), default=str).count('"tool.finished"') == 3

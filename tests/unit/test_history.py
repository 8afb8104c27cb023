"""What the history checker gives is a history every provider accepts, with nothing real lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.context.history import OPENING, SILENT, UNANSWERED, Checker, problem, valid
from runner.context.window import Window
from runner.record.resume import rebuild
from runner.types import Message, ToolCall

SYSTEM = Message(role="system", content="Be brief.")
GOAL = Message(role="user", content="go", mark="goal")


def call(call_id: str = "c1", name: str = "echo") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments={"text": call_id})


def calls(*ids: str) -> Message:
    return Message(role="assistant", content="", tool_calls=tuple(call(i) for i in ids))


def tool(call_id: str = "c1", content: str = "result") -> Message:
    return Message(role="tool", content=content, tool_call_id=call_id, tool="echo")


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


def user(text: str, **more: Any) -> Message:
    return Message(role="user", content=text, **more)


def shape(messages: list[Message]) -> list[tuple[str, str]]:
    return [(m.role, m.content or ",".join(c.id for c in m.tool_calls)) for m in messages]


def test_a_valid_history_stays_as_it_is():
    history = [SYSTEM, GOAL, calls("c1", "c2"), tool("c1"), tool("c2"), says("done"), user("more")]
    assert problem(history) == ""
    assert all(a is b for a, b in zip(valid(history), history, strict=True))


def test_a_call_without_a_result_gets_a_placeholder_in_its_place():
    mended = valid(
        [
            SYSTEM,
            GOAL,
            calls("c1", "c2", "c3"),
            tool("c1", "one"),
            tool("c3", "three"),
            user("go on"),
        ]
    )
    assert [m.content for m in mended[3:6]] == ["one", UNANSWERED, "three"]
    assert problem(mended) == ""


def test_results_in_the_wrong_order_are_put_into_the_order_of_their_calls():
    mended = valid([SYSTEM, GOAL, calls("c1", "c2"), tool("c2", "two"), tool("c1", "one")])
    assert [m.content for m in mended[3:]] == ["one", "two"]


def test_a_note_between_a_call_and_its_result_comes_after_the_result():
    mended = valid([SYSTEM, GOAL, calls("c1"), user("by the way"), tool("c1", "one")])
    assert shape(mended)[2:] == [("assistant", "c1"), ("tool", "one"), ("user", "by the way")]


def test_a_result_without_a_call_and_a_second_result_are_left_out():
    assert shape(valid([SYSTEM, GOAL, tool("c9")])) == [("system", "Be brief."), ("user", "go")]
    mended = valid([SYSTEM, GOAL, calls("c1"), tool("c1", "one"), tool("c1", "again")])
    assert [m.content for m in mended[3:]] == ["one"]


def test_equal_ids_in_one_message_are_told_apart_and_keep_their_results():
    mended = valid([SYSTEM, GOAL, calls("c", "c"), tool("c", "one"), tool("c", "two")])
    assert problem(mended) == ""
    assert [(m.tool_call_id, m.content) for m in mended[3:]] == [("c", "one"), ("c_2", "two")]


def test_an_empty_id_is_replaced_and_keeps_its_result():
    mended = valid([SYSTEM, GOAL, calls("", ""), tool("", "one"), tool("", "two")])
    assert problem(mended) == ""
    assert [m.content for m in mended[3:]] == ["one", "two"]


def test_equal_ids_in_different_messages_answer_their_own_calls():
    mended = valid(
        [SYSTEM, GOAL, calls("call_0"), tool("call_0", "a"), calls("call_0"), tool("call_0", "b")]
    )
    assert problem(mended) == ""
    assert [m.content for m in mended if m.role == "tool"] == ["a", "b"]


def test_a_system_message_in_mid_conversation_becomes_the_users_note():
    mended = valid([SYSTEM, GOAL, says("yes"), replace(SYSTEM, content="mind the gap")])
    assert (mended[-1].role, mended[-1].mark) == ("user", "note")
    assert problem(mended) == ""


def test_messages_of_one_role_in_a_row_are_joined_and_a_goal_stays_one():
    mended = valid([SYSTEM, user("note", mark="note"), GOAL, says("a"), says("b")])
    assert shape(mended) == [
        ("system", "Be brief."),
        ("user", "note\n\ngo"),
        ("assistant", "a\n\nb"),
    ]
    assert mended[1].mark == "goal"


def test_a_conversation_that_begins_with_the_model_gets_an_opening():
    assert shape(valid([SYSTEM, says("hello")]))[1] == ("user", OPENING)
    assert shape(valid([says("hello")]))[0] == ("user", OPENING)


def test_empty_messages_are_left_out_and_an_empty_result_says_so():
    mended = valid([SYSTEM, GOAL, says(""), user(""), calls("c1"), tool("c1", "")])
    assert shape(mended)[2:] == [("assistant", "c1"), ("tool", SILENT)]
    assert problem(mended) == ""


@pytest.mark.parametrize(
    ("name", "legal"), [("a b", "a_b"), ("x" * 80, "x" * 64), ("", "unnamed"), ("读", "_")]
)
def test_names_no_provider_takes_are_made_legal(name, legal):
    mended = valid([SYSTEM, GOAL, replace(calls("c1"), tool_calls=(call("c1", name),)), tool("c1")])
    assert mended[2].tool_calls[0].name == legal
    assert problem(mended) == ""


def test_the_placeholder_gives_way_when_the_result_arrives():
    growing, checker = [SYSTEM, GOAL, calls("c1")], Checker()
    assert checker.check(growing)[-1].content == UNANSWERED
    growing.append(tool("c1", "late"))
    assert [m.content for m in checker.check(growing)][-1] == "late"


def test_a_context_that_was_compacted_is_checked_as_a_whole():
    """Truncation leaves the number of messages and the last one as they were."""
    window, checker = Window((SYSTEM,)), Checker()
    for message in (
        GOAL,
        calls("c1"),
        tool("c1", "long " * 1000),
        calls("c2"),
        tool("c2", "short"),
    ):
        window.add(message)
    assert len(checker.check(window.messages)[3].content) == 5000
    window.truncate(500)
    assert len(checker.check(window.messages)[3].content) < 500
    window.replace_head((replace(SYSTEM, content="other tools"),))
    assert checker.check(window.messages)[0].content == "other tools"


def test_an_amended_last_message_is_seen():
    window, checker = Window((SYSTEM,)), Checker()
    for message in (GOAL, calls("c1"), tool("c1", "r")):
        window.add(message)
    checker.check(window.messages)
    window.amend("[Loop notice]")
    assert checker.check(window.messages)[-1].content == "r\n\n[Loop notice]"


# ---- arbitrary histories --------------------------------------------------------------------------
IDS = st.sampled_from(["c1", "c2", "c3", ""])
NAMES = st.sampled_from(["echo", "a b", "", "x" * 70, "读"])
TOOL_CALLS = st.builds(lambda i, n: ToolCall(id=i, name=n, arguments={}), IDS, NAMES)
TEXT = st.sampled_from(["", "text", "读", "more text"])
MESSAGES = st.one_of(
    st.builds(lambda t: Message(role="system", content=t), TEXT),
    st.builds(
        lambda t, m: Message(role="user", content=t, mark=m),
        TEXT,
        st.sampled_from(["", "goal", "note"]),
    ),
    st.builds(
        lambda t, c: Message(role="assistant", content=t, tool_calls=tuple(c)),
        TEXT,
        st.lists(TOOL_CALLS, max_size=3),
    ),
    st.builds(lambda t, i: Message(role="tool", content=t, tool_call_id=i, tool="echo"), TEXT, IDS),
)
HISTORIES = st.lists(MESSAGES, max_size=14)


@given(HISTORIES)
def test_whatever_is_given_a_provider_accepts_what_comes_back(history):
    mended = valid(history)
    assert problem(mended) == ""
    assert valid(mended) == mended


@given(HISTORIES)
def test_no_text_of_a_user_or_the_model_is_lost(history):
    told = "\n\n".join(m.content for m in history if m.role != "tool")
    kept = "\n\n".join(m.content for m in valid(history) if m.role != "tool")
    assert all(told.count(t) <= kept.count(t) for t in ("text", "读"))


@given(HISTORIES, st.lists(st.integers(0, 14), max_size=5))
def test_checking_bit_by_bit_is_checking_the_whole(history, stops):
    checker, growing = Checker(), []
    for index, message in enumerate(history):
        growing.append(message)
        if index in stops:
            assert checker.check(growing) == valid(growing)
    assert checker.check(growing) == valid(growing)
    assert checker.check(growing) == valid(growing), "and again"


# ---- sessions as they happen ----------------------------------------------------------------------
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "calls",
                "text_calls",
                "answer",
                "note",
                "goal",
                "crash",
                "cancel",
                "truncate",
                "slide",
            ]
        ),
        st.integers(1, 3),
    ),
    max_size=25,
)


class Simulated:
    """A session's records and its window, kept the way the loop does."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.window = Window((SYSTEM,))
        self.checker = Checker()
        self.ids = 0
        self.real: set[str] = set()
        self.goal()

    def record(self, type_: str, **data: Any) -> None:
        self.records.append({"seq": len(self.records), "session": "s", "type": type_, **data})

    def goal(self, _n: int = 1) -> None:
        self.record("turn.started", goal="go")
        self.window.add(GOAL)

    def answer(self, _n: int) -> None:
        self.record("model.replied", text="done", calls=[])
        self.record("turn.finished", status="completed")
        self.window.add(says("done"))
        self.goal()

    def note(self, _n: int) -> None:
        self.record("note.added", text="a note", below=False)
        self.window.add(user("a note", mark="note"))

    def calls(self, n: int, finished: int | None = None, *, in_text: bool = False) -> None:
        ids = [f"call_{self.ids + i}" for i in range(n)]
        self.ids += n
        entries = [{"id": i, "name": "echo", "arguments": {}} for i in ids]
        self.record("model.replied", text="", calls=[] if in_text else entries)
        if in_text:
            self.record("reply.parsed", kind="calls", calls=entries)
        for i in ids:
            self.record("tool.started", call_id=i, tool="echo", fingerprint=i)
        for i in ids[: n if finished is None else finished]:
            self.record(
                "tool.finished",
                call_id=i,
                tool="echo",
                kind="ok",
                content=f"result of {i} " + "x" * 700,
            )
            self.real.add(f"result of {i} ")
        if finished is None:
            contents = [f"result of {i} " + "x" * 700 for i in ids]
            if in_text:
                self.window.add(says("call"))
                self.window.add(user("\n\n".join(contents), mark="results"))
            else:
                self.window.add(calls(*ids))
                for i, content in zip(ids, contents, strict=True):
                    self.window.add(tool(i, content))

    def text_calls(self, n: int) -> None:
        self.calls(n, in_text=True)

    def crash(self, n: int) -> None:
        """The process ends with some results recorded; the session is rebuilt from its record."""
        self.calls(n, finished=n // 2)
        self.restart()

    def cancel(self, n: int) -> None:
        self.calls(n)
        self.record("turn.finished", status="cancelled")
        self.window.add(says("[The turn ended: cancelled]"))
        self.restart()
        self.goal()

    def restart(self) -> None:
        self.window, self.checker = Window((SYSTEM,)), Checker()
        for message in rebuild(self.records, "s").messages:
            self.window.add(message)

    def truncate(self, n: int) -> None:
        self.window.truncate(400 * n)
        self.forget()

    def slide(self, n: int) -> None:
        self.window.slide(400 * n)
        self.forget()

    def forget(self) -> None:
        self.real = {r for r in self.real if any(r in m.content for m in self.window.messages)}


@given(ACTIONS)
def test_every_request_of_every_session_is_valid_and_keeps_each_real_result(actions):
    s = Simulated()
    for name, n in actions:
        getattr(s, name)(n)
        sent = s.checker.check(s.window.messages)
        assert problem(sent) == ""
        assert sent == valid(s.window.messages)
        everything = "\n".join(m.content for m in sent)
        assert all(real in everything for real in s.real)
        if name == "crash":
            s.goal()


def test_a_check_costs_the_new_messages_only():
    class Counting(list):
        """Counts how many of its items are read."""

        reads = 0

        def __getitem__(self, index):
            got = super().__getitem__(index)
            self.reads += len(got) if isinstance(index, slice) else 1
            return got

        def __iter__(self):
            for item in super().__iter__():
                self.reads += 1
                yield item

    history, checker = Counting([SYSTEM, GOAL]), Checker()
    checker.check(history)
    reads = []
    for n in range(200):
        history += [calls(f"c{n}"), tool(f"c{n}")]
        history.reads = 0
        checker.check(history)
        reads.append(history.reads)
    assert set(reads) == {reads[0]}
    assert reads[0] <= 6


@pytest.mark.parametrize("in_text", [False, True])
def test_an_opened_skill_is_still_exempt_from_compaction_after_a_restart(in_text):
    entry = {"id": "call_1", "name": "use_skill", "arguments": {"name": "docs"}}
    records = [
        {"type": "turn.started", "goal": "go"},
        {"type": "model.replied", "text": "", "calls": [] if in_text else [entry]},
        *([{"type": "reply.parsed", "kind": "calls", "calls": [entry]}] if in_text else []),
        {"type": "tool.started", "call_id": "call_1", "tool": "use_skill", "idempotent": True},
        {
            "type": "tool.finished",
            "call_id": "call_1",
            "tool": "use_skill",
            "kind": "ok",
            "content": "how to",
        },
    ]
    made = rebuild([{"seq": n, "session": "s", **r} for n, r in enumerate(records)], "s")
    assert made.messages[-1].mark == "pinned"

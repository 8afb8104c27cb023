"""The context: fits when it can, keeps what must stay, and never parts a call from its result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.context.history import problem, valid
from runner.context.tokens import of_message
from runner.context.window import KEPT_CHARS, TARGET, Window, shortened
from runner.types import Message, ToolCall

SYSTEM = Message(role="system", content="You are careful.")


def goal(text: str = "GOAL count the lines") -> Message:
    return Message(role="user", content=text, mark="goal")


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


def iteration(name: str, size: int = 2000, *, calls: int = 1, mark: str = "") -> list[Message]:
    """One native iteration: the calls and their results."""
    made = tuple(ToolCall(id=f"{name}{i}", name="dump", arguments={"n": i}) for i in range(calls))
    results = [
        Message(
            role="tool",
            content=f"HEAD-{name} {'word ' * (size // 5)} TAIL-{name}",
            tool_call_id=c.id,
            tool="dump",
            mark=mark,
        )
        for c in made
    ]
    return [Message(role="assistant", content="", tool_calls=made), *results]


def in_text(name: str, size: int = 2000, mark: str = "results") -> list[Message]:
    """One iteration whose call and result went as text."""
    return [
        says('{"tool": "dump"}'),
        Message(role="user", content=f"Result of dump:\n{name} {'word ' * (size // 5)}", mark=mark),
    ]


def filled(*groups: list[Message], head: tuple[Message, ...] = (SYSTEM,)) -> Window:
    window = Window(head)
    for group in groups:
        for message in group:
            window.add(message)
    return window


def text_of(window: Window) -> str:
    return "\n".join(m.content for m in window.messages)


def recount(window: Window) -> int:
    return sum(of_message(m) for m in window.messages) + window.overhead


def fit(window: Window, budget: int) -> list[str]:
    """What the runner does without summaries; the names of the steps that freed something."""
    steps = [act(budget) for act in (window.truncate, window.slide) if window.tokens > budget]
    return [step.name for step in steps if step]


def test_old_results_are_cut_to_their_ends_and_say_how_much_is_gone():
    window = filled([goal()], iteration("a"), iteration("b"))
    whole = len(window.messages[3].content)
    step = window.truncate(700)
    assert step is not None
    assert (step.name, step.iterations) == ("truncated", 1)
    assert step.after_tokens < step.before_tokens
    old = window.messages[3].content
    assert old.startswith("HEAD-a")
    assert old.endswith("TAIL-a")
    assert f"[{whole - 2 * KEPT_CHARS} characters of this old result left out]" in old


def test_short_results_are_left_alone():
    message = Message(role="tool", content="x" * 3 * KEPT_CHARS, tool_call_id="c", tool="t")
    assert shortened(message) is message


def test_the_oldest_go_first_and_no_more_than_needed():
    window = filled([goal()], *[iteration(n) for n in "abcdef"])
    budget = int(window.tokens * 0.9)
    window.truncate(budget)
    cut = ["left out" in m.content for m in window.messages if m.role == "tool"]
    assert cut == sorted(cut, reverse=True)
    assert cut[0]
    assert not cut[-1]
    assert window.tokens <= budget * TARGET + 600


def test_the_latest_iteration_is_never_cut():
    window = filled([goal()], iteration("a"), iteration("b", 20_000, calls=2))
    fit(window, 300)
    assert text_of(window).count("TAIL-b") == 2
    assert "left out" not in text_of(window)


def test_results_that_went_back_as_text_are_cut_like_others():
    window = filled([goal()], in_text("a"), in_text("b"))
    window.truncate(600)
    assert "left out" in window.messages[3].content


def test_an_opened_skill_is_exempt_natively_and_in_text():
    for opened in (iteration("skill", mark="pinned"), in_text("skill", mark="pinned")):
        window = filled([goal()], opened, iteration("a"), iteration("b"))
        whole = opened[-1].content
        fit(window, 200)
        assert whole in text_of(window)
        assert "TAIL-a" not in text_of(window)


def test_a_provider_that_still_refuses_makes_even_the_newest_shorter():
    window = filled([goal()], iteration("a", 8000))
    assert fit(window, 500) == []
    step = window.squeeze(500)
    assert step is not None
    assert "TAIL-a" in text_of(window)
    assert window.tokens < 500


def test_whole_old_turns_slide_out_first():
    window = filled(
        [goal("OLD one")], iteration("a", 8000), [says("answer one")],
        [goal("OLD two")], iteration("b"), [says("answer two")],
        [goal("NOW")], iteration("c"), iteration("d"),
    )  # fmt: skip
    step = window.slide(int(window.tokens * 0.9))
    assert step is not None
    assert "OLD one" not in text_of(window)
    assert "answer one" not in text_of(window)
    assert "OLD two" in text_of(window)
    window.slide(100)
    assert [m.content for m in window.messages if m.role == "user"] == ["NOW"]
    assert problem(list(window.messages)) == ""


def test_an_old_turn_with_an_opened_skill_keeps_its_goal():
    window = filled(
        [goal("OLD")],
        iteration("s", mark="pinned"),
        iteration("a"),
        [says("x")],
        [goal("NOW")],
        iteration("b"),
    )
    window.slide(100)
    assert [m.content for m in window.messages if m.role == "user"] == ["OLD", "NOW"]
    assert problem(valid(window.messages)) == ""


def test_compacting_that_frees_nothing_does_nothing_and_is_not_repeated():
    window = filled([goal("long " * 3000)], iteration("a", 100), iteration("b", 100))
    assert fit(window, 500) == ["slid"]
    before = list(window.messages)
    for _ in range(3):
        assert fit(window, 500) == []
        assert window.messages == before
    assert window.compactions == 1


def test_summaries_stand_below_the_goal_and_can_slide_out():
    window = filled([goal()], *[iteration(n) for n in "abcd"])
    blocks = window.oldest(int(window.tokens * 0.7))
    assert blocks
    step = window.summarise(blocks, [f"did {n}" for n in range(len(blocks))])
    assert step is not None
    assert step.iterations == len(blocks)
    assert "GOAL count the lines" in window.messages[1].content
    assert "- did 0" in window.messages[1].content
    assert "TAIL-a" not in text_of(window)
    assert window.tokens == recount(window)
    window.slide(10)
    assert "did 0" not in text_of(window)


def test_several_summaries_in_a_row_keep_their_order():
    window = filled([goal()], *[iteration(n) for n in "abcdef"])
    window.summarise(window.oldest(window.tokens - 10)[:1], ["first"])
    window.summarise(window.oldest(window.tokens - 10)[:1], ["second"])
    assert "- first\n- second" in window.messages[1].content
    assert problem(list(window.messages)) == ""


def test_a_summary_that_frees_nothing_is_not_taken():
    window = filled([goal()], iteration("a", 20), iteration("b", 20))
    before = list(window.messages)
    assert window.summarise(window.oldest(10), ["a very long line " * 50]) is None
    assert list(window.messages) == before
    assert window.oldest(10), "and it may be tried again"


def test_tools_count_too():
    window = filled([goal()], iteration("a"), iteration("b"))
    before = window.tokens
    window.overhead = 500
    assert window.tokens == before + 500


def test_another_system_prompt_replaces_the_first():
    window = filled([goal()], iteration("a"))
    window.replace_head((replace(SYSTEM, content="Be brief, and use the tools " * 20),))
    assert window.messages[0].content.startswith("Be brief")
    assert window.tokens == recount(window)


# ---- whatever happens ---------------------------------------------------------------------------
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("native"), st.integers(1, 4000), st.integers(1, 3)),
        st.tuples(st.just("text"), st.integers(1, 4000), st.just(1)),
        st.tuples(st.just("skill"), st.integers(1, 400), st.integers(0, 1)),
        st.tuples(st.just("turn"), st.integers(1, 200), st.just(1)),
        st.tuples(st.just("note"), st.integers(1, 100), st.just(1)),
        st.tuples(st.just("amend"), st.integers(1, 100), st.just(1)),
        st.tuples(st.just("summary"), st.integers(100, 3000), st.just(1)),
        st.tuples(st.just("fit"), st.integers(50, 6000), st.just(1)),
        st.tuples(st.just("reply"), st.integers(50, 150), st.just(1)),
    ),
    max_size=30,
)


class Session:
    """A window driven like a session's, with what must hold after every step."""

    def __init__(self) -> None:
        self.window = Window((SYSTEM,))
        self.transcript: list[Message] = []
        self.n = 0
        self.take([goal("GOAL-0")])
        self.goal = "GOAL-0"
        self.skills: list[str] = []

    def take(self, messages: list[Message]) -> None:
        for message in messages:
            self.transcript.append(message)
            self.window.add(message)

    def step(self, what: str, size: int, more: int) -> None:
        self.n += 1
        if what == "native":
            self.take(iteration(f"i{self.n}.", size, calls=more))
        elif what == "text":
            self.take(in_text(f"t{self.n}.", size))
        elif what == "skill":
            opened = (
                iteration(f"s{self.n}.", size, mark="pinned")
                if more
                else in_text(f"s{self.n}.", size, "pinned")
            )
            self.take(opened)
            self.skills.append(opened[-1].content)
        elif what == "turn":
            self.goal = f"GOAL-{self.n}"
            self.take([says("answer"), goal(f"{self.goal} {'word ' * size}")])
        elif what == "note":
            self.take([Message(role="user", content="note " * size, mark="note")])
        elif what == "amend":
            self.window.amend("more " * size)
            if self.skills and self.window.messages[-1].content.startswith(self.skills[-1]):
                self.skills[-1] = self.window.messages[-1].content
        elif what == "summary":
            blocks = self.window.oldest(size)
            self.window.summarise(blocks, ["did it"] * len(blocks))
        elif what == "reply":
            self.window.calibration.learn(self.window.raw, self.window.raw * size // 100)
        else:
            fit(self.window, size)
            self.after_fit(size)

    def after_fit(self, budget: int) -> None:
        kept = [self.window.head[0].content, *self.skills]
        if self.window.tokens > budget:
            droppable = self.window._droppable()
            assert droppable == [] or all(not unit for unit in droppable), "more could go"
        assert all(any(k in m.content for m in self.window.messages) for k in kept)

    def check(self) -> None:
        messages = list(self.window.messages)
        assert self.window.raw == recount(self.window)
        assert messages[0].role == "system"
        assert messages[1].role == "user"
        assert any(self.goal in m.content for m in messages), "the goal stays"
        assert self.window.messages[-1].content.startswith(self.transcript[-1].content), (
            "the newest stays"
        )
        assert sum(m.role == "tool" for m in messages) == sum(len(m.tool_calls) for m in messages)
        assert problem(valid(messages)) == ""
        results = [m for m in messages if m.role == "tool"]
        sent = [m for m in valid(messages) if m.role == "tool"]
        assert all(a is b for a, b in zip(results, sent, strict=True)), "no pair is parted"


@given(STEPS)
def test_whatever_happens_the_request_is_whole(steps):
    session = Session()
    for what, size, more in steps:
        before = list(session.transcript)
        session.step(what, size, more)
        session.check()
        assert session.transcript[: len(before)] == before, "the transcript is never edited"


@pytest.mark.parametrize("budget", range(800, 3000, 97))
def test_every_request_of_a_long_run_fits_whatever_the_window(budget):
    window = filled([goal("GOAL-7f3a")])
    for n in range(40):
        for message in iteration(f"n{n}.", 1500):
            window.add(message)
        fit(window, budget)
        assert window.tokens <= budget
        assert "GOAL-7f3a" in text_of(window)
        assert problem(list(window.messages)) == ""

"""The loop guard: both sides of every rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.context.loopguard import LoopGuard, Verdict
from runner.context.sameness import normalised, reworded, same_text, shared_start, similar, steady
from runner.types import Changes, Kind, ToolResult

UUIDS = ("3f2b8c1e-5d4a-4b6f-9a7c-0123456789ab", "a81bc81b-dead-4e5d-abff-90865d1e13b1")


def result(content: str = "ok", kind: Kind = Kind.OK, *, changed: bool = False) -> ToolResult:
    changes = Changes(modified=("a.txt",)) if changed else None
    return ToolResult(call_id="c", tool="t", kind=kind, content=content, changes=changes)


class Play:
    """Plays rounds to a guard as the loop does: refused calls come back as such."""

    def __init__(self, **limits: float) -> None:
        self.guard = LoopGuard(**limits)  # type: ignore[arg-type]
        self.said: list[str] = []

    def round(
        self, *calls: tuple[str, dict], results: list[ToolResult] | None = None, **flags: bool
    ) -> Verdict:
        ahead = self.guard.before(calls, **flags)
        if ahead.action == "refuse":
            results = [result(ahead.text, Kind.LOOP_REFUSED)] * len(calls)
            self.said.append("refuse")
        after = self.guard.after(calls, results or [result()] * len(calls), **flags)
        if after.action != "go_on":
            self.said.append(after.action)
        return after

    def rounds(self, *names: str) -> list[str]:
        for name in names:
            self.round((name, {"of": name}))
        return self.said


def play(*rounds: tuple[dict, str], **limits: float) -> list[str]:
    """What is said over rounds of one call each, given as arguments and result."""
    p = Play(**limits)
    for arguments, content in rounds:
        p.round(("look", arguments), results=[result(content)])
    return p.said


# ---- identical ----------------------------------------------------------------------------------
def test_the_second_is_noticed_the_fourth_refused_and_the_sixth_ends_the_turn():
    p, seen = Play(), []
    for _ in range(6):
        before = len(p.said)
        p.round(("echo", {"text": "a"}))
        seen.append(p.said[before:])
    assert seen == [[], ["notice"], [], ["refuse"], ["refuse"], ["refuse", "stop"]]


def test_a_notice_names_the_tool_its_arguments_and_how_often():
    p = Play()
    p.round(("echo", {"text": "a"}))
    verdict = p.round(("echo", {"text": "a"}))
    assert (verdict.form, verdict.count, verdict.tools) == ("identical", 2, "echo")
    assert verdict.text.startswith("[Loop notice] You just did this (2 times")
    assert 'echo {"text":"a"}' in verdict.text


def test_the_limits_are_the_configured_ones():
    assert Play(warn=3, refuse=5, stop=7).rounds(*"aaaa") == ["notice"]
    assert Play(warn=3, refuse=5, stop=7).rounds(*"aaaaaaa") == ["notice"] + ["refuse"] * 3 + [
        "stop"
    ]
    assert Play(warn=50, refuse=60, stop=70).rounds(*"a" * 40) == []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"q": "x", "page": 1}, {"page": 1, "q": "x"}),
        ({"page": 1}, {"page": 1.0}),
        ({"f": {"a": 1, "b": [1, 2.0]}}, {"f": {"b": [1.0, 2], "a": 1.0}}),
    ],
    ids=["key order", "number form", "nested"],
)
def test_equal_calls_written_differently_are_identical(a, b):
    p = Play()
    p.round(("look", a))
    assert p.round(("look", b)).form == "identical"
    assert p.said == ["notice"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"n": 1}, {"n": True}),
        ({"n": 1}, {"n": "1"}),
        ({"n": 1}, {}),
        ({"n": [1, 2]}, {"n": [2, 1]}),
    ],
)
def test_different_values_are_different_calls(a, b):
    p = Play()
    p.round(("look", a))
    p.round(("look", b))
    assert p.said == []


def test_another_tool_with_the_same_arguments_is_another_call():
    assert Play().rounds("a", "b", "c", "d", "e") == []


def test_a_batch_is_one_round_whatever_it_holds_twice():
    p = Play()
    p.round(("echo", {"t": 1}), ("echo", {"t": 1}))
    assert p.said == []
    p.round(("echo", {"t": 1}), ("echo", {"t": 1}))
    assert p.said == ["notice"]


def test_the_order_of_a_batch_does_not_matter_and_results_stay_with_their_calls():
    a, b = ("echo", {"t": 1}), ("look", {"t": 2})
    p = Play()
    p.round(a, b, results=[result("one"), result("two")])
    p.round(b, a, results=[result("two"), result("one")])
    assert p.said == ["notice"]
    p = Play()
    p.round(a, b, results=[result("one"), result("two")])
    p.round(b, a, results=[result("one"), result("two")])
    assert p.said == []


def test_after_a_refusal_another_call_may_be_tried_and_the_old_one_again_later():
    assert Play().rounds(*"aaaa", "b", "c", "a") == ["notice", "refuse"]


# ---- progress -----------------------------------------------------------------------------------
def test_a_round_that_changed_the_workspace_is_progress():
    p = Play()
    for _ in range(12):
        p.round(("build", {}), results=[result(changed=True)])
    assert p.said == []


def test_a_change_between_two_equal_rounds_starts_the_count_again():
    p = Play()
    for changed in (False, False, True, False, False):
        p.round(("build", {}), results=[result(changed=changed)])
    assert p.said == ["notice", "notice"], "noticed again, because something had changed meanwhile"


def test_polling_with_a_changing_result_is_progress():
    assert play(*[({"job": "j"}, f"{n}0%") for n in range(12)]) == []


def test_polling_that_hangs_now_and_then_is_noticed_once():
    assert play(*[({"job": "j"}, f"{n // 2}0%") for n in range(12)]) == ["notice"]


def test_a_repeatable_tool_is_noticed_and_never_refused_or_stopped():
    p = Play()
    for _ in range(12):
        verdict = p.round(("poll", {}), repeatable=True)
    assert p.said == ["notice"]
    assert verdict.action == "go_on"


def test_paging_is_progress_as_long_as_the_pages_differ():
    assert play(*[({"q": "x", "page": n}, f"hit {n}") for n in range(12)]) == []


def test_paging_past_the_end_is_noticed_and_never_refused():
    assert play(*[({"q": "x", "page": n}, "[]") for n in range(12)]) == ["notice"]


# ---- similar ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "changing",
    [
        [{"ts": f"2026-01-01T00:00:{n:02d}Z"} for n in range(6)],
        [{"ts": f"call-{n}"} for n in range(6)],
        [{"nonce": n} for n in range(6)],
        [{"requestId": f"r{n}"} for n in range(6)],
        [{"timestamp": 1_767_225_600 + n} for n in range(6)],
        [{"timestamp": 1_767_225_600.5 + n} for n in range(6)],
        [{"note": f"as of 2026-01-01 10:00:{n:02d}"} for n in range(6)],
        [{"filter": {"nonce": f"{n}"}} for n in range(6)],
        [{"tags": ["a", f"2026-01-01T00:00:{n:02d}Z"]} for n in range(6)],
        [{"run": f"{n}{UUIDS[0][1:]}"} for n in range(6)],
    ],
    ids=lambda c: next(iter(c[0])),
)
def test_calls_that_differ_in_what_changes_by_itself_are_stopped_like_identical_ones(changing):
    p = Play()
    verdicts = [p.round(("look", {"key": "k", **c})) for c in changing]
    assert p.said == ["notice", "refuse", "refuse", "refuse", "stop"]
    assert verdicts[1].form == "similar"
    assert "nearly the same call" in verdicts[1].text


@pytest.mark.parametrize(
    "subjects",
    [
        [{"path": f"logs/{n}{UUIDS[0][1:]}.txt"} for n in range(8)],
        [{"order_id": f"{n}{UUIDS[0][1:]}", "verbose": True} for n in range(8)],
        [{"id": f"{n}{UUIDS[0][1:]}"} for n in range(8)],
        [{"uuid": f"{n}{UUIDS[0][1:]}"} for n in range(8)],
        [
            {"since": f"2026-01-01T0{n}:00:00Z", "until": f"2026-01-01T0{n + 1}:00:00Z"}
            for n in range(8)
        ],
        [{"date": f"2026-01-0{n + 1}"} for n in range(8)],
        [{"wait": f"{n} s"} for n in range(8)],
        [{"sha": f"{n}a1b2c3d4e5f6a7b8c9d0"} for n in range(8)],
        [{"page": n} for n in range(8)],
    ],
    ids=lambda s: next(iter(s[0])),
)
def test_calls_about_other_things_are_at_most_noticed(subjects):
    assert set(play(*[(s, "nothing found") for s in subjects])) <= {"notice"}


def test_nearly_the_same_call_with_the_same_result_is_noticed_only():
    words = ["all the settings", "all settings", "all of the settings", "all the setting"]
    asked = [
        ({"q": f"find {w} in the documents of this project please"}, "none") for w in words * 2
    ]
    assert set(play(*asked)) == {"notice"}
    assert play(*asked[:2]) == ["notice"]


def test_another_file_with_the_same_result_is_noticed_one_round_later():
    asked = [({"path": f"src/some/folder/file_{n}.py"}, "no match") for n in range(3)]
    assert play(*asked[:2]) == []
    assert play(*asked) == ["notice"]


def test_nearly_the_same_call_with_another_result_is_no_loop():
    assert play(*[({"path": f"src/some/folder/file_{n}.py"}, f"text {n}") for n in range(9)]) == []


def test_quite_different_calls_with_the_same_result_are_no_loop():
    asked = ["alpha", "the second thing", "x" * 40, "none of them", "42"]
    assert play(*[({"q": q}, "ok") for q in asked]) == []


def test_similarity_is_configurable():
    asked = [({"q": "abcdefgh"}, "ok"), ({"q": "abcdexyz"}, "ok"), ({"q": "abcdeuvw"}, "ok")]
    assert play(*asked) == []
    assert play(*asked, similarity=0.5) == ["notice"]


# ---- cycles -------------------------------------------------------------------------------------
@pytest.mark.parametrize("cycle", ["ab", "abc", "abcd", "aab", "abac", "aabb"])
def test_a_cycle_is_noticed_when_it_came_twice_and_refused_and_stopped_later(cycle):
    p = Play()
    verdicts: list[Verdict] = []
    while not verdicts or verdicts[-1].action != "stop":
        verdicts.append(p.round((cycle[len(verdicts) % len(cycle)], {})))
        assert len(verdicts) < 40
    notices = [n for n, v in enumerate(verdicts, 1) if v.action == "notice" and v.form == "cycle"]
    assert notices == [2 * len(cycle)], "once"
    assert len(verdicts) == 6 * len(cycle)
    assert p.said.count("refuse") == 3 * len(cycle), "every call of the cycle is refused"


def test_five_different_rounds_in_turn_are_no_cycle():
    assert Play().rounds(*"abcde" * 4) == []


def test_a_cycle_whose_results_change_is_progress():
    p = Play()
    for n in range(20):
        p.round(("ab"[n % 2], {}), results=[result(f"{n}")])
    assert p.said == []


def test_a_cycle_in_which_the_workspace_changes_is_progress():
    p = Play()
    for n in range(20):
        p.round(("ab"[n % 2], {}), results=[result(changed=n % 2 == 0)])
    assert p.said == []


def test_every_tool_of_a_cycle_is_named():
    p = Play()
    verdicts = [p.round((name, {})) for name in "abab"]
    assert verdicts[-1].tools in {"a, b", "b, a"}
    assert "You are repeating these steps" in verdicts[-1].text


# ---- calls that never ran -----------------------------------------------------------------------
def test_calls_refused_for_their_arguments_count_with_their_error():
    p = Play()
    for n in range(3):
        p.round(("find", {"x": 1}), results=[result(f"missing field {n}", Kind.INVALID_ARGUMENTS)])
    assert p.said == []
    p = Play()
    for _ in range(3):
        p.round(("find", {"x": 1}), results=[result("missing field", Kind.INVALID_ARGUMENTS)])
    assert p.said == ["notice"]


@pytest.mark.parametrize("kind", [Kind.DENIED, Kind.BREAKER_OPEN, Kind.BUSY, Kind.UNKNOWN_TOOL])
def test_refusals_compare_by_kind_alone(kind):
    p = Play()
    for n in range(6):
        p.round(("find", {}), results=[result(f"try again in {60 - n}", kind)])
    assert p.said == ["notice", "refuse", "refuse", "refuse", "stop"]


def test_failures_of_different_kinds_are_different_results():
    p = Play()
    for kind in (Kind.FAILED, Kind.TIMEOUT, Kind.FAILED, Kind.CRASHED):
        p.round(("find", {}), results=[result("x", kind)])
    assert p.said == []


def test_a_retry_that_succeeds_is_no_loop():
    p = Play()
    p.round(("fetch", {"u": 1}), results=[result("refused", Kind.UNAVAILABLE)])
    p.round(("fetch", {"u": 1}), results=[result("page")])
    assert p.said == []


def test_replies_that_cannot_be_read_are_rounds_too():
    guard = LoopGuard()
    said = [guard.after((), (), text="malformed: {").action for _ in range(6)]
    assert said == ["go_on", "notice", "go_on", "go_on", "go_on", "stop"]
    guard = LoopGuard()
    assert {guard.after((), (), text=f"malformed: {n}").action for n in range(6)} == {"go_on"}


# ---- results ------------------------------------------------------------------------------------
VOLATILE = [
    ("at 2026-01-01T00:00:00Z", "at 2026-11-30T22:41:10.123+02:00"),
    ("2026-01-01 00:00:00,123 INFO x", "2026-01-01 00:00:09,999 INFO x"),
    ("20260101T000000Z", "20261130T224110Z"),
    ("Mon, 30 Nov 2026 22:40:10 GMT", "Mon, 30 Nov 2026 23:59:59 GMT"),
    ("took 12 ms", "took 1.25 s"),
    ("1 passed in 0.12s", "1 passed in 11.5s"),
    ("done in 1m 2s", "done in 1m 59s"),
    ("done in 1h2m", "done in 2h 3m 4s"),
    (f"id {UUIDS[0]}", f"id {UUIDS[1]}"),
    ("<Task at 0x7f3a5c012340>", "<Task at 0x7f3a5c0ff000>"),
    ("etag d41d8cd98f00b204e9800998ecf8427e", "etag 9e107d9d372bb6826bd81d3542a419d6"),
]
STEADY = [
    ("10%", "20%"),
    ("page 1", "page 2"),
    ("3 files", "4 files"),
    ("1,024 rows", "2,048 rows"),
    ("v1.2.3", "v1.2.4"),
    ("12345678901234", "12345678901235"),
    ("status 200", "status 500"),
    ("on 2026-01-01", "on 2026-01-02"),
    ("room 12:30", "room 12:45"),
    ("commit a1b2c3d", "commit b2c3d4e"),
    ("5 minors", "6 minors"),
    ("10.0.0.1", "10.0.0.2"),
    ("feedfacecafe", "deadbeefcafe"),
    ("a", "b"),
]


@pytest.mark.parametrize(("a", "b"), VOLATILE)
def test_what_changes_by_itself_is_taken_out_of_results(a, b):
    assert normalised(a) == normalised(b)
    assert same_text(a, b)


@pytest.mark.parametrize(("a", "b"), STEADY)
def test_bare_numbers_percentages_and_words_stay(a, b):
    assert normalised(a) != normalised(b)
    assert not same_text(a, b)


LINE = st.one_of(
    st.sampled_from([text for pair in VOLATILE + STEADY for text in pair]),
    st.text(alphabet="ab 0:f-\n", max_size=12),
)


@given(st.lists(LINE, max_size=6), st.lists(LINE, max_size=6), st.lists(LINE, max_size=6))
def test_looking_only_at_the_difference_gives_the_same_answer(before, middle, after):
    filler = "words between the lines " * 4
    a = f"\n{filler}\n".join([*before, *after])
    b = f"\n{filler}\n".join([*before, *middle, *after])
    assert same_text(a, b) == (normalised(a) == normalised(b))


@given(st.text(alphabet="ab", max_size=20), st.text(alphabet="ab", max_size=20))
def test_the_shared_start_is_as_long_as_it_can_be(a, b):
    n = shared_start(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


def test_similarity_of_long_texts_is_quick_and_sees_small_changes():
    words = " ".join(f"word{n}" for n in range(400))
    assert similar(words, words.replace("word9 ", "other ").replace("word200", "x"), 0.9)
    assert not similar(words, words[::-1], 0.9)
    assert similar("", "", 0.9)


def test_steady_keeps_what_a_call_is_about():
    assert steady({"id": UUIDS[0]}) == {"id": UUIDS[0]}
    assert steady({"id": UUIDS[0], "q": "x"}) == {"id": "~", "q": "x"}
    assert steady({"ts": "now", "uuid": UUIDS[0]}) == {"ts": "~", "uuid": UUIDS[0]}
    assert steady({"ts": 3, "nonce": 3, "ok": True}) == {"ts": 3, "nonce": "~", "ok": True}


def test_only_plain_words_count_as_rewording():
    assert reworded({"q": "find all settings"}, {"q": "find settings"})
    assert not reworded({"q": "find file1"}, {"q": "find file2"})
    assert not reworded({"q": "a"}, {"q": "b"})
    assert not reworded({"q": "a b"}, {"p": "a b"})


CALL = st.tuples(st.sampled_from("ab"), st.sampled_from([{}, {"x": 1}, {"ts": "1"}, {"ts": "2"}]))


@given(
    st.lists(
        st.tuples(CALL, st.sampled_from(["r", "s", "5 ms", "6 ms"]), st.booleans()), max_size=30
    )
)
def test_nothing_is_refused_before_it_was_noticed_nor_stopped_before_it_was_refused(rounds):
    p = Play()
    for call, content, changed in rounds:
        if p.round(call, results=[result(content, changed=changed)]).action == "stop":
            break
    said = p.said
    if "refuse" in said:
        assert "notice" in said[: said.index("refuse")]
    if "stop" in said:
        assert said.count("refuse") >= 2

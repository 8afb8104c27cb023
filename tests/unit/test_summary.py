"""A summary is believed only when it has a shorter line for each step and keeps its identifiers."""

from __future__ import annotations

import pytest

from runner.summary import LINE_CHARS, accepted, identifiers_kept

STEPS = [
    "read_file({'path': 'src/main_window.py'}) -> " + "text of the file " * 10,
    "search({'q': 'API_KEY', 'page': 3}) -> " + "a hit and another hit " * 10,
]
GOOD = "1: read src/main_window.py, it holds the window\n2: searched API_KEY, page 3: two hits"


def test_a_line_for_each_step_is_taken():
    assert accepted(GOOD, STEPS) == [line[3:] for line in GOOD.split("\n")]


@pytest.mark.parametrize("form", ["{n}. {t}", "{n}) {t}", "- {n}: {t}", "  {n} : {t}"])
def test_the_numbers_may_be_written_in_several_ways(form):
    texts = [line[3:] for line in GOOD.split("\n")]
    said = "Here you are:\n" + "\n".join(form.format(n=n, t=t) for n, t in enumerate(texts, 1))
    assert accepted(said, STEPS) == texts


@pytest.mark.parametrize(
    "said",
    [
        "",
        "I read the file and searched.",
        "1: read src/main_window.py",
        GOOD + "\n3: and more",
        "2: searched API_KEY",
        "1: read a file\n2: searched API_KEY",
        "1: read src/main_window.py\n2: searched something",
        "1:\n2:",
    ],
    ids=[
        "empty",
        "prose",
        "one missing",
        "one too many",
        "first missing",
        "path lost",
        "key lost",
        "blank",
    ],
)
def test_anything_else_is_dropped(said):
    assert accepted(said, STEPS) == []


def test_a_line_that_grew_is_dropped():
    assert (
        accepted(f"1: src/main_window.py {'very ' * 80}\n2: API_KEY", [STEPS[0][:60], STEPS[1]])
        == []
    )


def test_a_line_is_cut_to_size():
    steps = [STEPS[0] + "x" * 1000]
    assert [len(line) for line in accepted("1: src/main_window.py " + "word " * 200, steps)] == [
        LINE_CHARS
    ]


def test_half_of_the_identifiers_of_the_call_are_enough_and_those_of_its_result_may_go():
    step = "copy({'from': 'a_file.txt', 'to': 'b_file.txt'}) -> copied c_file.txt"
    assert identifiers_kept(step, "copied a_file.txt")
    assert not identifiers_kept(step, "copied c_file.txt")
    assert identifiers_kept("say({'text': 'hello'}) -> ok", "greeted")

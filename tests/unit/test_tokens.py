"""Counting tokens: against true counts of two tokenizers, and calibrated by usage."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.context.tokens import SAMPLE, Calibration, estimate, of_message
from runner.types import Message, ToolCall

CORPUS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "tokens.json").read_text(encoding="utf-8")
)
CLASSES: dict[str, list[dict[str, Any]]] = defaultdict(list)
for entry in CORPUS:
    CLASSES[entry["class"]].append(entry)
TOKENIZERS = ("cl100k", "o200k")


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_no_class_of_text_is_counted_much_too_low_or_too_high(name):
    texts = CLASSES[name]
    counted = sum(estimate(t["text"]) for t in texts)
    true = max(sum(t[tokenizer] for t in texts) for tokenizer in TOKENIZERS)
    most = 1.7 if name == "shouting" else 1.25
    assert 0.9 <= counted / true <= most, counted / true


def test_english_and_chinese_prose_are_counted_closely():
    for name, most in (
        ("English prose", 1.06),
        ("Chinese", 1.08),
        ("JSON", 1.06),
        ("Python", 1.08),
    ):
        texts = CLASSES[name]
        assert sum(estimate(t["text"]) for t in texts) / sum(t["cl100k"] for t in texts) <= most


def test_350_chinese_characters_are_270_to_420_tokens():
    text = ("整理文档并列出所有配置项和它们的含义" * 20)[:350]
    assert 270 <= estimate(text) <= 420
    assert 270 <= estimate("x" + text) - estimate("x") <= 420


def test_nothing_is_nothing_and_something_is_something():
    assert estimate("") == 0
    assert estimate("a") >= 1
    assert estimate("\ud800") >= 1, "a lone surrogate"


@pytest.mark.parametrize("entry", CORPUS, ids=lambda e: e["class"])
def test_a_long_text_is_judged_by_slices_without_losing_much(entry):
    repeated = entry["text"] * (4 * SAMPLE // len(entry["text"]) + 1)
    times = len(repeated) / len(entry["text"])
    assert 0.85 <= estimate(repeated) / (times * estimate(entry["text"])) <= 1.15


def test_a_message_counts_its_calls():
    call = ToolCall(id="c", name="read_file", arguments={"path": "a.txt"})
    bare = Message(role="assistant", content="")
    assert of_message(bare) == 4
    assert of_message(Message(role="assistant", content="", tool_calls=(call,))) > 15


# ---- calibration ------------------------------------------------------------------------------
def test_the_first_reply_makes_the_count_exact():
    calibration = Calibration()
    calibration.learn(1000, 1300)
    assert calibration.tokens(1000) == 1300
    assert calibration.tokens(2000) == 2300, "a template adds the same to every request"
    calibration = Calibration()
    calibration.learn(1000, 800)
    assert calibration.tokens(1000) == 800
    assert calibration.tokens(2000) == 1800, "what is new is not counted below our own count"


def test_the_factor_goes_up_at_once_and_down_slowly():
    calibration = Calibration()
    calibration.learn(1000, 1000)
    calibration.learn(1000, 1500)
    assert calibration.factor == 1.5
    calibration.learn(1000, 1000)
    assert 1.3 < calibration.factor < 1.5


def test_a_compacted_context_is_counted_by_the_factor_and_what_is_never_seen():
    calibration = Calibration()
    calibration.learn(1000, 800)
    calibration.forget()
    assert calibration.tokens(1000) == calibration.raw(1000) == 1000
    calibration = Calibration()
    calibration.learn(1000, 1300)
    calibration.forget()
    assert calibration.tokens(500) == 800
    assert calibration.raw(800) == 500


@pytest.mark.parametrize(("estimated", "reported"), [(1000, 10), (1000, 100), (20, 400), (1000, 0)])
def test_a_count_that_cannot_be_true_teaches_nothing(estimated, reported):
    calibration = Calibration()
    calibration.learn(estimated, reported)
    assert calibration.tokens(1000) == 1000


MIXED = st.lists(st.sampled_from(CORPUS), min_size=1, max_size=25)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(
    first=MIXED, later=st.lists(MIXED, max_size=12), hidden=st.integers(0, 400), cut=st.booleans()
)
def test_after_the_first_reply_no_request_is_counted_10_percent_too_low(
    tokenizer, first, later, hidden, cut
):
    """Whatever the languages and whatever a template adds unseen; or the context was compacted."""
    hidden = 0 if cut else hidden
    calibration, raw, true, taught = Calibration(), 0, hidden, False
    for number, texts in enumerate([first, *later]):
        if cut and number == len(later) // 2:
            calibration.forget()
            raw, true = 0, hidden
        raw += sum(estimate(t["text"]) for t in texts)
        true += sum(t[tokenizer] for t in texts)
        if taught:
            assert calibration.tokens(raw) >= 0.9 * true - 1
        calibration.learn(raw, true)
        taught = taught or min(raw, true) >= Calibration.SAYING


# ---- a prompt the server cut --------------------------------------------------------------------
def test_a_first_request_that_is_clearly_cut_is_seen():
    assert Calibration().was_cut(15_750, 2_051)
    assert not Calibration().was_cut(4_000, 3_000)
    assert not Calibration().was_cut(600, 100), "too small to be sure"
    assert not Calibration().was_cut(4_000, 0)


def test_a_conversation_that_grows_while_its_count_does_not_is_cut():
    calibration = Calibration()
    for raw, counted in ((2000, 2000), (3000, 3000), (4000, 4000)):
        assert not calibration.was_cut(raw, counted)
        calibration.learn(raw, counted)
    assert not calibration.was_cut(5000, 4090), "it may be dense text: not sure yet"
    assert calibration.was_cut(8000, 4090)


def test_a_server_that_counts_only_what_was_not_cached_cuts_nothing():
    calibration = Calibration()
    calibration.learn(6000, 6000)
    assert not calibration.was_cut(6400, 410)


@given(st.lists(MIXED, min_size=2, max_size=15), st.integers(0, 400), st.sampled_from(TOKENIZERS))
def test_a_prompt_that_was_evaluated_whole_is_never_called_cut(requests, hidden, tokenizer):
    calibration, raw, true = Calibration(), 0, hidden
    for texts in requests:
        raw += sum(estimate(t["text"]) for t in texts)
        true += sum(t[tokenizer] for t in texts)
        assert not calibration.was_cut(raw, true)
        calibration.learn(raw, true)

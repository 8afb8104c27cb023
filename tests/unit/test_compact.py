"""Every kind of value a skill returns becomes text."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import re
import sys
import time
import uuid
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.calls.clean import clean, is_binary
from runner.calls.compact import MAX_CHARS, compact


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int = 12345


class Mute:
    def __repr__(self):
        raise RuntimeError("no repr")


class Plain:
    pass


class Pair(NamedTuple):
    left: int
    right: int


RING: dict = {}
RING["self"] = RING


def numbers():
    yield from range(3)


def endless():
    while True:
        yield "x"


def breaking():
    yield 1
    raise ValueError("half way")


@pytest.mark.parametrize(
    ("value", "text", "lost"),
    [
        ({"a": [1, 2.5, True, None, "x y"]}, '{"a":[1,2.5,true,null,"x y"]}', False),
        ([], "[]", False),
        ({}, "{}", False),
        (5, "5", False),
        (False, "false", False),
        ("héllo", "héllo", False),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00+00:00", False),
        ([dt.date(2026, 1, 2)], '["2026-01-02"]', False),
        (pathlib.PurePosixPath("docs/a.md"), "docs/a.md", False),
        (decimal.Decimal("1.50"), "1.50", False),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001", False),
        ({42, 41}, "[41,42]", False),
        ({1, "a"}, '[1,"a"]', False),
        ((1, 2), "[1,2]", False),
        (Pair(1, 2), '{"left":1,"right":2}', False),
        (Colour.RED, "red", False),
        (Point(), '{"x":12345}', False),
        ({(1, 2): "v", None: 1}, '{"[1,2]":"v","null":1}', False),
        ({"v": float("nan")}, '{"v":null}', True),
        (RING, '{"self":"<the value contains itself>"}', True),
        (Mute(), "<unprintable Mute: RuntimeError>", True),
        ([Mute()], '["<unprintable Mute: RuntimeError>"]', True),
        (b"\x89PNG\r\n\x1a\n\xff\x00", "binary data, 10 bytes (PNG image)", True),
        (bytes(range(256)) * 16, "binary data, 4096 bytes", True),
        ({"b": b"\xff\xfe"}, '{"b":"<binary data, 2 bytes>"}', True),
        (b"plain text\n", "plain text\n", False),
        ("\ud800 x", "\ufffd x", True),
        (numbers(), "[0,1,2]", False),
        (10**10_000, "<an integer of about 10000 digits>", True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_has_a_readable_form(value, text, lost):
    assert compact(value) == (text, lost)


@pytest.mark.parametrize("value", [None, "", b"", "\x1b[0m"])
def test_nothing_is_nothing(value):
    assert compact(value)[0] is None


def test_an_object_is_shown_without_its_address():
    text, lost = compact({"when": Plain(), "self": {1, 2}})
    assert "Plain object" in text
    assert "0x" not in text
    assert lost


def test_an_endless_generator_is_drained_under_a_cap():
    text, lost = compact(endless())
    assert len(json.loads(text)) == 10_001
    assert lost


def test_a_generator_that_breaks_is_said():
    assert compact(breaking()) == ("<unprintable generator: ValueError>", True)


def test_a_deep_value_is_cut():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    text, lost = compact(deep)
    assert "nested too deeply" in text
    assert lost


@pytest.mark.parametrize(
    "make",
    [
        lambda: [0] * 10_000_000,
        lambda: "x" * 300_000_000,
        lambda: {"a": "x" * 300_000_000},
        lambda: b"\xff" * 300_000_000,
        lambda: [["abc"] * 100] * 1_000_000,
    ],
    ids=["ten million items", "long text", "long text inside", "many bytes", "shared rows"],
)
def test_a_huge_value_is_bounded_in_time_and_size(make):
    value = make()
    began = time.thread_time()
    text, lost = compact(value)
    assert time.thread_time() - began < (2 if sys.gettrace() is None else 20)  # traced for coverage
    assert len(text) < 2 * MAX_CHARS
    assert lost


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc é"), inner, max_size=4)
    ),
)


@given(st.dictionaries(st.text("abc"), JSON_VALUES))
def test_json_reads_back_as_it_was(value):
    text, lost = compact(value)
    assert json.loads(text) == value
    assert not lost


# ---- texts


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07 done\n", "red  done\n"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x1b]52;c;cGFzdGU=\x1b\\copied", "copied"),
        ("\x1b]0;never closed\nnext", "\nnext"),
        ("\x1bPdcs\x1b\\x", "x"),
        ("\x1b(Bplain\x1b7\x1b", "plain"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("red 10%\r20%\r100%\n", "red 10%\n100%\n"),
        ("Loading 1/3\rLoading 2/3\rLoading 3/3\r\ndone", "Loading 3/3\ndone"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("nul\x00bell\x07 tab\t", "nulbell tab\t"),
        ("abc\u202edcba\u202c", "abcdcba"),
        ("tag\U000e0041\U000e0042", "tag"),
        ("family \U0001f469\u200d\U0001f469\u200d\U0001f467 读", None),
        ("line one\nline two\tx", None),
    ],
)
def test_a_text_is_cleaned(raw, cleaned):
    assert clean(raw) == (raw if cleaned is None else cleaned)


@given(st.text())
def test_no_control_character_survives(text):
    cleaned = clean(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202e]", cleaned)
    assert clean(cleaned) == cleaned
    cleaned.encode()


def test_binary_data_in_a_text_is_described():
    raw = bytes(range(256)).decode("latin-1") * 16
    text, lost = compact(raw)
    assert text.startswith("binary data, 4096 characters")
    assert lost
    assert not is_binary("\x1b[31mred\x1b[0m\n" * 99)


@pytest.mark.parametrize("flood", ["\x1b]", "\x1b[", "\x1b", "\r", "\x1bP", "a\r"])
def test_a_flood_of_sequences_costs_linear_time(flood):
    text = flood * (1_000_000 // len(flood))
    began = time.perf_counter()
    clean(text)
    assert time.perf_counter() - began < 2

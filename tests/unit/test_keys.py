"""Canonical texts and idempotency keys."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from runner.calls.keys import canonical, idempotency_key

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_key_order_and_number_form_do_not_matter():
    assert canonical({"b": 1.0, "a": [2, -0.0]}) == canonical({"a": [2.0, 0], "b": 1})
    assert canonical({"a": 1}) == '{"a":1}'


def test_a_boolean_is_not_a_number_and_text_is_kept_as_it_is():
    assert canonical(True) != canonical(1)
    assert canonical("1") != canonical(1)
    assert canonical("e\u0301") != canonical("\u00e9")


@given(JSON_VALUES)
def test_the_canonical_text_reads_back_as_an_equal_value(value):
    assert json.loads(canonical(value)) == value


def test_a_key_is_kept_until_the_call_succeeds():
    first = idempotency_key("s", 1, "send", {"to": "a", "n": 1}, 0)
    assert first == idempotency_key("s", 1, "send", {"n": 1.0, "to": "a"}, 0)
    assert first != idempotency_key("s", 1, "send", {"to": "a", "n": 1}, 1)
    assert first != idempotency_key("s", 2, "send", {"to": "a", "n": 1}, 0)
    assert first != idempotency_key("s2", 1, "send", {"to": "a", "n": 1}, 0)


def test_parts_cannot_run_into_each_other():
    assert idempotency_key("a", 1, "b", {}, 0) != idempotency_key("a1", "", "b", {}, 0)


def test_a_lone_surrogate_has_a_key_too():
    assert len(idempotency_key("s", 1, "t", {"x": "\ud800"}, 0)) == 40

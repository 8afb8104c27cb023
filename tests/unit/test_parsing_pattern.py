"""Patterns are compiled when they are used, and then they are ordinary patterns."""

from __future__ import annotations

import re

import pytest

from runner.parsing.pattern import pattern


def test_a_pattern_does_all_that_a_compiled_one_does():
    digits = pattern(r"(\d+)x", re.IGNORECASE)
    assert digits.match("12X").group(1) == "12"
    assert digits.sub("-", "1x 2X") == "- -"
    assert (digits.pattern, digits.groups) == (r"(\d+)x", 1)
    assert digits.search is digits.search


def test_a_pattern_that_is_wrong_fails_when_it_is_used():
    wrong = pattern("(")
    with pytest.raises(re.error):
        wrong.match("")

"""What a conversation leaves out of a long text."""

from __future__ import annotations

from runner.cli.chat_view import cut


def test_a_text_that_is_cut_ends_in_an_ellipsis_and_keeps_its_limit():
    assert cut("four", 4) == "four"
    assert cut("fives", 4) == "fiv…"

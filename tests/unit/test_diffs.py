"""What is shown of a call that writes a file, before somebody says yes."""

from __future__ import annotations

from runner.cli.approval import question
from runner.cli.diffs import diff
from runner.types import Tool, ToolCall


def test_a_write_is_shown_against_what_the_file_holds(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    lines, told = diff({"path": "a.txt", "content": "one\nTWO\x1b[2J\n"}, tmp_path)
    assert lines == ["--- a.txt", "+++ a.txt", "@@ -1,2 +1,2 @@", " one", "-two", "+TWO\\x1b[2J"]
    assert told == {"content"}


def test_an_edit_is_shown_as_its_old_and_new_text(tmp_path):
    lines, told = diff({"file_path": "b", "old": "x\ny", "new": "x\nz"}, tmp_path)
    assert lines[-3:] == [" x", "-y", "+z"]
    assert told == {"old", "new"}


def test_a_new_file_is_all_additions_and_a_long_diff_says_what_is_left_out(tmp_path):
    lines, _told = diff({"path": "new", "content": "line\n" * 500}, tmp_path)
    assert lines[3] == "+line"
    assert lines[-1] == "… 441 more lines of this diff"


def test_what_lies_outside_or_is_no_file_is_shown_as_it_is(tmp_path):
    inside = tmp_path / "ws"
    (inside / "folder").mkdir(parents=True)
    (inside / "bytes").write_bytes(b"\xff\xfe")
    for path in ("../x", "folder", "bytes", "nul\0"):
        assert diff({"path": path, "content": "a"}, inside) == ([], frozenset())
    assert diff({"content": "a"}, inside) == ([], frozenset())


def test_the_question_shows_the_diff_once_and_everything_else_escaped(tmp_path):
    call = ToolCall(id="c", name="write", arguments={"path": "a", "content": "x", "mode": "\u202e"})
    tool = Tool(name="write", description="", parameters={}, load=lambda: None)
    shown = question(call, tool, tmp_path)
    assert "  +x\n" in shown
    assert "content =" not in shown
    assert "mode = \\u202e" in shown

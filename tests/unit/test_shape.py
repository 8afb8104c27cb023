"""What the model sees of a long result, and where the rest is."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.calls.cut import middle
from runner.calls.shape import Shaper, without_long_lines
from runner.calls.spills import Spills, read_page
from runner.skill import ToolError

LOG = "".join(f"line {i:04d} of a long build log\n" for i in range(1, 201))
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"


@pytest.fixture
def shaper(tmp_path):
    return Shaper(tmp_path / "spills" / "s1")


def shape(shaper, text, quota=400, **more):
    return shaper.shape(text, quota=quota, spill_limit=20_000, **more)


def test_a_text_within_its_quota_is_left_alone(shaper, tmp_path):
    shaped = shape(shaper, "x" * 400)
    assert (shaped.content, shaped.spilled_to) == ("x" * 400, None)
    assert not (tmp_path / "spills").exists()


def test_a_long_text_keeps_its_first_and_last_third_and_says_what_is_missing(shaper):
    shaped = shape(shaper, LOG, successful_read_only=True)
    assert shaped.content.startswith(LOG[:400])
    assert shaped.content.endswith(LOG[-400:])
    note = shaped.content[400:-400]
    assert "5200 characters left out" in note
    assert "lines 1-14 and 187-201 of 201" in note
    assert "offset=14" in note
    assert note.count("\n") == 2
    assert Path(shaped.spilled_to).read_text() == LOG


def test_only_a_successful_read_only_result_gets_three_times_the_quota(shaper):
    assert shape(shaper, "x" * 1000, successful_read_only=True).spilled_to is None
    assert shape(shaper, "x" * 1000).spilled_to is not None


def test_a_huge_text_is_named_not_shown(shaper):
    text = LOG * 10
    shaped = shape(shaper, text, successful_read_only=True)
    path = Path(shaped.spilled_to)
    assert path.is_absolute()
    assert path.read_text() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.name in shaped.content
    assert "read_result" in shaped.content
    assert "60000 characters" in shaped.content
    assert len(shaped.content) < 1500


def test_both_sides_of_the_spill_limit(shaper):
    assert "too long to show" not in shape(shaper, "x\n" * 10_000).content
    assert "too long to show" in shape(shaper, "x\n" * 10_001).content


def test_reading_a_spill_file_back_makes_no_second_copy(shaper, tmp_path):
    first = shape(shaper, LOG * 10)
    again = shape(shaper, Path(first.spilled_to).read_text())
    assert again.spilled_to == first.spilled_to
    assert len(list((tmp_path / "spills" / "s1").iterdir())) == 1


def test_a_link_that_waits_under_the_name_is_not_followed(shaper, tmp_path):
    first = shape(shaper, LOG)
    path = Path(first.spilled_to)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path.unlink()
    path.symlink_to(victim)
    second = shape(shaper, LOG)
    assert second.spilled_to != first.spilled_to
    assert victim.read_text() == "mine"
    assert Path(second.spilled_to).read_text() == LOG


def test_a_folder_that_is_a_link_is_not_used(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "spills").symlink_to(tmp_path / "elsewhere")
    shaped = shape(Shaper(tmp_path / "spills"), LOG)
    assert shaped.spilled_to is None
    assert "characters left out" in shaped.content
    assert not list((tmp_path / "elsewhere").iterdir())


def test_where_nothing_can_be_kept_the_result_is_cut_all_the_same(tmp_path):
    (tmp_path / "spills").write_text("a file in the way")
    shaped = shape(Shaper(tmp_path / "spills"), LOG * 10)
    assert shaped.spilled_to is None
    assert len(shaped.content) < 600
    assert "read_result" not in shaped.content


# ---- long lines


def test_a_long_line_among_others_is_replaced_by_its_size(shaper):
    text = "head\n" + "x" * 2001 + "\n" + "y" * 2000 + "\ntail"
    shaped = shape(shaper, text, quota=8000)
    assert "[line truncated: 2001 chars]" in shaped.content
    assert "y" * 2000 in shaped.content
    assert Path(shaped.spilled_to).read_text() == text


@pytest.mark.parametrize(
    "text", ["x" * 5000, '{"a":"' + "x" * 5000 + '"}', '{\n"a":"' + "x" * 5000 + '"\n}']
)
def test_one_line_alone_and_json_are_left_whole(text):
    assert without_long_lines(text) == text


# ---- characters


CLUSTERS = [
    "a",
    "\n",
    "读",
    FAMILY,
    "e\u0301",
    "\U0001f1e9\U0001f1ea",
    "\U0001f44d\U0001f3fd",
    "\r\n",
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(CLUSTERS), max_size=80), st.integers(0, 60), st.integers(0, 60))
def test_a_cut_breaks_no_character_and_counts_exactly(clusters, head, tail):
    text = "".join(clusters)
    cut = middle(text, min(head, len(text)), min(tail, len(text)))
    assert len(cut.head) + cut.left_out + len(cut.tail) == len(text)
    assert cut.head in ["".join(clusters[:n]) for n in range(len(clusters) + 1)]
    assert cut.tail in ["".join(clusters[n:]) for n in range(len(clusters) + 1)]
    assert cut.lines == text.count("\n") + 1


@pytest.mark.parametrize("quota", range(40, 121))
def test_every_quota_leaves_whole_characters(shaper, quota):
    text = "a" * 49 + FAMILY + "读" * 60
    content = shape(shaper, text, quota=quota).content
    content.encode("utf-8")
    assert FAMILY in content or "\u200d" not in content


# ---- pages


@pytest.fixture
def kept(tmp_path):
    return tmp_path, Spills(tmp_path).keep(LOG)


def test_a_page_has_the_lines_asked_for_and_says_where_it_is(kept):
    page = read_page(*kept, 15, 20)
    assert page.startswith("line 0015")
    assert "line 0034" in page
    assert "line 0035" not in page
    assert page.endswith("[lines 15-34 of 201; go on with offset=35]")


def test_pages_put_together_are_the_whole(kept):
    offset, bodies = 1, []
    while offset:
        page = read_page(*kept, offset, max_chars=1000)
        body, _, note = page.rpartition("\n")
        bodies.append(body)
        assert len(body) <= 1000
        found = re.search(r"offset=(\d+)", note)
        offset = int(found[1]) if found else 0
    assert "\n".join(bodies) == LOG


def test_a_line_too_long_for_a_page_counts_as_several(tmp_path):
    text = ("x" * 98 + FAMILY) * 100
    name = Spills(tmp_path).keep(text)
    offset, parts = 1, []
    while offset:
        body, _, note = read_page(tmp_path, name, offset, max_chars=5000).rpartition("\n")
        parts.append(body)
        assert len(body) <= 5000
        assert body.count("\u200d") == 2 * body.count(FAMILY)
        found = re.search(r"offset=(\d+)", note)
        offset = int(found[1]) if found else 0
    assert "".join(parts) == text


def test_a_page_after_the_end_says_so(kept):
    assert "after the end" in read_page(*kept, 500)


@pytest.mark.parametrize(
    "name", ["nope.txt", "../../etc/passwd", "/etc/passwd", "", "a\0b", "link", "pipe"]
)
def test_a_name_that_is_no_spill_file_is_told_what_there_is(kept, name):
    folder, right = kept
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    with pytest.raises(ToolError, match=right):
        read_page(folder, name)


def test_the_whole_path_is_a_name_too(kept):
    folder, name = kept
    assert read_page(folder, f"{folder}/{name}", 1, 1).startswith("line 0001")

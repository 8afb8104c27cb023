"""The list of Agent Skills fits its room: descriptions shorten before a skill is left out."""

from __future__ import annotations

import pytest

from runner.model.prompt import CATALOGUE_CHARS, catalogue


def skills(count: int, chars: int) -> list[tuple[str, str]]:
    return [(f"skill-{n}", f"{n}: {'word ' * chars}"[:chars]) for n in range(count)]


def test_no_skills_are_no_text():
    assert catalogue([]).text == ""


def test_descriptions_that_fit_are_whole():
    listed = catalogue(skills(10, 300))
    assert all(f"- {name}: {text.strip()}" in listed.text for name, text in skills(10, 300))
    assert "shortened" not in listed.text


@pytest.mark.parametrize("count", [30, 80, 120, 250])
def test_descriptions_shorten_before_a_skill_is_left_out(count):
    listed = catalogue(skills(count, 500))
    assert len(listed.text) <= CATALOGUE_CHARS
    assert listed.left_out == 0
    assert all(f"- {name}" in listed.text for name, _ in skills(count, 500))
    assert "Descriptions are shortened to fit" in listed.text


def test_they_are_no_shorter_than_they_must_be():
    few, more = catalogue(skills(30, 500)).text, catalogue(skills(80, 500)).text
    assert len(few) > CATALOGUE_CHARS * 0.6
    assert len(more) > CATALOGUE_CHARS * 0.6


def test_with_thousands_it_says_how_many_are_left_out_and_how_to_find_them():
    listed = catalogue(skills(4_000, 500))
    assert len(listed.text) <= CATALOGUE_CHARS
    assert listed.text.count("\n- ") == 4_000 - listed.left_out > 300
    assert listed.text.endswith(
        f"({listed.left_out:,} more skills are not listed here for want of room; find them with tool_search.)"
    )


@pytest.mark.parametrize("room", [200, 1_000, 2_048, 8_000])
def test_any_room_is_kept_to(room):
    assert len(catalogue(skills(500, 200), room).text) <= room


def test_a_description_is_one_line():
    assert catalogue([("a", "one\n- fake: two")]).text.endswith("- a: one - fake: two")

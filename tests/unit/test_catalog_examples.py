"""The skill folders under tests/skills, as the catalogue sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
from skill_kit import call, registry

from runner.catalog.checks import check
from runner.errors import SkillError

SKILLS = Path(__file__).parents[1] / "skills"


def test_each_folder_is_listed_as_what_it_is():
    found = registry(SKILLS).snapshot.skills
    assert {s.location.name: (s.form, s.state) for s in found} == {
        "article": ("json", "ready"),
        "broken": ("native", "failed"),
        "crash": ("native", "ready"),
        "drifted": ("native", "failed"),
        "echo": ("native", "ready"),
        "helpers": ("native", "ready"),
        "review": ("agent-skill", "ready"),
        "slow": ("native", "ready"),
    }


def test_those_that_work_work():
    found = registry(SKILLS)
    assert call(found, "echo", text="a") == {"text": "a"}
    assert call(found, "helpers") == ["helper", "helper", "deep"]
    assert call(found, "extract_items", text="a\nb", keyword="b") == ["b"]
    assert found.snapshot.tools["slow"].parameters["properties"]["seconds"]["description"]


def test_those_that_do_not_say_why():
    found = registry(SKILLS)
    reasons = {s.location.name: s.reason for s in found.snapshot.skills}
    assert "skills/broken/skill.py:1: SyntaxError" in reasons["broken"]
    assert "'keyword' where drifted() takes 'query'" in reasons["drifted"]
    with pytest.raises(SkillError, match="SystemExit: 3"):
        found.snapshot.tools["crash"].load()


def test_the_check_finds_exactly_the_three_that_are_wrong():
    found = check([SKILLS])
    assert sorted({Path(f.path).parent.name for f in found if f.level == "error"}) == [
        "broken",
        "crash",
        "drifted",
    ]
    warned = [str(f) for f in found if f.level == "warning"]
    assert [Path(line.split(": ")[0]).parent.name for line in warned] == ["review"]
    assert "without the quotes" in warned[0]

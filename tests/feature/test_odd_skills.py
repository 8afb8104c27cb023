"""Whatever lies in a skills folder: no crash, no hang, and every folder with its state and reason."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import odd_skills
import pytest
from skill_kit import one_tool, registry, write

from runner.catalog import agentskills, instructions
from runner.catalog.checks import check
from runner.catalog.registry import Registry
from runner.errors import SkillError


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> tuple[Registry, dict[str, str], float]:
    """A scanned registry of all of them, the states expected, and the seconds it took."""
    root = tmp_path_factory.mktemp("project") / "skills"
    root.mkdir()
    expected = odd_skills.make(root)
    odd_skills.make_ignored(root)
    write(root, one_tool("fine"))
    began = time.monotonic()
    found = registry(root)
    return found, expected | {"fine": "ready"}, time.monotonic() - began


def test_every_folder_is_listed_in_the_state_it_must_come_to(odd):
    found, expected, _ = odd
    states = {skill.location.name: skill.state for skill in found.snapshot.skills}
    assert states == expected


def test_what_is_not_usable_says_why_in_one_line_that_names_its_folder(odd):
    found, _, _ = odd
    for skill in found.snapshot.skills:
        if skill.live:
            assert not skill.reason
            continue
        assert skill.location.name in skill.reason or skill.state in ("ineligible", "shadowed")
        assert 15 < len(skill.reason) < 600, skill.reason[:700]
        assert "Traceback" not in skill.reason


def test_the_sound_skill_among_them_works_and_the_scan_was_quick(odd):
    found, _, seconds = odd
    assert found.snapshot.tools["fine"].load().function() == "v1"
    assert seconds < 5.0


def test_names_that_reach_the_model_hold_nothing_that_acts(odd):
    found, _, _ = odd
    for skill in found.snapshot.skills:
        if skill.live and skill.form == "agent-skill":
            assert skill.name.replace("-", "").isalnum(), skill.name
            assert skill.description.isprintable(), skill.description


def test_all_can_be_listed_checked_and_opened(odd):
    found, _, _ = odd
    json.dumps([skill.to_dict() for skill in found.snapshot.skills]).encode()
    findings = check(found)
    wrong = {finding.path for finding in findings if finding.level == "error"}
    assert len(wrong) >= sum(skill.state == "failed" for skill in found.snapshot.skills)
    for skill in found.snapshot.skills:
        agentskills.skill_files(skill)
        if skill.live and skill.body_path:
            instructions.opened(skill, commands=True)


def test_a_page_that_leads_out_of_its_folder_is_never_read(odd):
    found, _, _ = odd
    root = found.roots[0]
    for skill in found.snapshot.skills:
        assert skill.name != "secret"
        with pytest.raises(SkillError):
            agentskills.read_skill_file(skill, f"../../{root.name}-outside/secret.md")


def test_no_yaml_tag_ran_anything(odd):
    found, _, _ = odd
    assert not [p for p in (Path.cwd(), *found.roots) if (p / "pwned").exists()]


def test_a_second_look_changes_nothing_and_finds_no_folder_dirty_for_ever(odd):
    found, _, _ = odd
    assert found.refresh() is None
    deadline = time.monotonic() + 2
    while found.dirty() and time.monotonic() < deadline:  # just-written files are looked at again
        assert found.refresh(found.dirty()) is None
    still = {path.name for path in found.dirty()}
    ineligible = {s.location.name for s in found.snapshot.skills if s.state == "ineligible"}
    assert still <= ineligible  # a program may be installed at any time


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
def test_a_folder_that_may_not_be_read_is_listed_as_such(tmp_path):
    write(tmp_path / "s", {"locked/SKILL.md": odd_skills.page("locked"), **one_tool("fine")})
    locked = tmp_path / "s" / "locked"
    locked.chmod(0)
    try:
        list(locked.iterdir())
    except PermissionError:
        pass
    else:
        locked.chmod(0o700)
        pytest.skip("this user may read everything")
    states = {s.name: (s.state, s.reason) for s in registry(tmp_path / "s").snapshot.skills}
    locked.chmod(0o700)
    assert states["locked"][0] == "failed"
    assert "cannot be read" in states["locked"][1]
    assert states["fine"][0] == "ready"

"""`runner memory` as a process."""

from __future__ import annotations

import pytest
from cli_kit import Project

from runner.memory import MemoryStore


@pytest.fixture(name="project")
def _project(tmp_path):
    project = Project(tmp_path / "p")
    store = MemoryStore(project.folder / "state")
    project.keys = [
        store.add("The office is in Basel", ["office"], "s1").key,
        store.add("Tea at four\x1b[2J", session="s2").key,
    ]
    return project


def test_list_shows_all_on_a_line_each_and_nothing_that_acts(project):
    lines = project("memory", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == project.keys
    assert lines[1].endswith("Tea at four\\x1b[2J")


def test_list_as_json_holds_everything(project):
    first = project("memory", "list", "--json").json[0]
    assert (first["key"], first["text"]) == (project.keys[0], "The office is in Basel")
    assert (first["tags"], first["session"]) == (["office"], "s1")


def test_search_finds_by_any_word(project):
    assert "Basel" in project("memory", "search", "where", "office").out
    assert project("memory", "search", "nothing-like-it", "--json").json == []


def test_edit_and_forget_change_what_is_kept(project):
    assert project("memory", "edit", project.keys[0], "The office is in Bern").code == 0
    assert "Bern" in project("memory", "search", "office").out
    assert project("memory", "forget", project.keys[0]).code == 0
    assert [m["key"] for m in project("memory", "list", "--json").json] == project.keys[1:]
    assert project("memory", "forget", "--all").code == 0
    assert project("memory", "list").err == "nothing is remembered\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("edit", "nosuch", "x"), "nothing is remembered as 'nosuch'"),
        (("edit", "nosuch", " "), "1 to 2000 characters"),
        (("forget", "nosuch"), "nothing is remembered as 'nosuch'"),
        (("forget",), "name the keys"),
        (("serach", "x"), "did you mean 'search'?"),
    ],
)
def test_what_is_not_there_is_exit_2_and_changes_nothing(project, arguments, says):
    done = project("memory", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert len(project("memory", "list").out.splitlines()) == 2

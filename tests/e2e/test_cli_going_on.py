"""`runner sessions resume` and `fork` as processes."""

from __future__ import annotations

import json

import pytest
from cli_kit import ECHO, Project, calls, says
from fake_server import FakeServer


@pytest.fixture(name="project")
def _project(tmp_path):
    """A session `s1` whose limit ended it after two of three iterations."""
    replies = [calls(("echo", {"text": "one"})), calls(("echo", {"text": "two"}))]
    with FakeServer([*replies, says("at the limit"), says("went on"), says("and on")]) as server:
        project = Project(tmp_path / "p", ECHO, url=server.url)
        assert project("run", "THE GOAL", "--session", "s1", "--max-iterations", "2").code == 3
        project.server = server
        yield project


def sent(project):
    return json.dumps(project.server.chats()[-1]["messages"])


def test_resume_asks_the_model_to_go_on_with_the_task(project):
    done = project("sessions", "resume", "s1", "--json")
    assert (done.code, done.json["answer"], done.json["session"]) == (0, "went on", "s1")
    assert "from the last finished call" in sent(project)
    assert sent(project).count("THE GOAL") == 2


def test_resume_takes_a_text_of_ones_own(project):
    assert project("sessions", "resume", "s1", "Now the rest").out == "went on\n"
    assert sent(project).endswith('"content": "Now the rest"}]')


def test_a_fork_prints_its_name_and_can_be_resumed(project):
    forked = project("sessions", "fork", "s1", "--at", "1")
    assert (forked.code, forked.out) == (0, "s1-at-1\n")
    assert project("sessions", "resume", "s1-at-1", "Another way").out == "went on\n"
    assert '{\\"text\\":\\"one\\"}' in sent(project)
    assert "two" not in sent(project)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("resume", "nosuch"), 1, "no session 'nosuch'"),
        (("resume", "a/b"), 2, "a/b"),
        (("resume", "s1", " "), 2, "the text is empty"),
        (("fork", "nosuch", "--at", "1"), 1, "no session 'nosuch'"),
        (("fork", "s1", "--at", "9"), 1, "--at takes 0 to 2"),
        (("fork", "s1"), 2, "--at"),
        (("fork", "s1", "--at", "1", "--as", "s1"), 1, "'s1' already"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(project, arguments, code, says):
    done = project("sessions", *arguments)
    (line,) = done.err.splitlines()
    assert (done.code, done.out) == (code, "")
    assert says in line

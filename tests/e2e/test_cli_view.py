"""`runner view` and `runner chat --view` as processes."""

from __future__ import annotations

import signal
import urllib.request

from cli_kit import Project, says
from fake_server import FakeServer


def get(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def test_view_prints_its_address_and_serves_until_ctrl_c(tmp_path):
    with FakeServer([says("hi")]) as server:
        project = Project(tmp_path / "p", url=server.url)
        project("run", "hello", "--session", "s1")
    process = project.start("view", "s1")
    address = process.stdout.readline().decode().strip()
    assert address.endswith("/s/s1")
    assert "s1" in get(address)
    assert '"answer":"hi"' in get(f"{address}/page")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_view_of_a_session_that_is_not_there_is_refused(tmp_path):
    project = Project(tmp_path / "p")
    assert "no session 'nosuch'" in project("view", "nosuch").err
    assert project("view", "a/b").code == 2


def test_a_chat_tells_its_address_and_ends_its_page_with_itself(tmp_path):
    with FakeServer([says("hi")]) as server:
        process = Project(tmp_path / "p", url=server.url).start("chat", "--view", "--session", "s1")
        line = process.stderr.readline().decode()
        address = line.partition("the page: ")[2].strip()
        assert "<h1>Sessions</h1>" in get(address)
        out, _err = process.communicate(b"hello\n", timeout=30)
    assert (process.returncode, out) == (0, b"hi\n")

"""Where events can be relied on, and what an event says about a skill."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.catalog import filesystems
from runner.catalog.dirty import Unrest, restless
from runner.catalog.listening import Place, _Handler

MOUNTS = """\
overlay / overlay rw 0 0
/dev/sda1 /home ext4 rw 0 0
C:\\134 /mnt/c 9p rw 0 0
server:/x /mnt/share\\040one nfs4 rw 0 0
grpcfuse /work fuse.grpcfuse rw 0 0
/dev/sdb1 /media/stick fuseblk rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me/skills", ""),
        ("/mnt/c/skills", "9p"),
        ("/mnt/share one/skills", "nfs4"),
        ("/work", "fuse.grpcfuse"),
        ("/workshop", ""),
        ("/media/stick/x", ""),
        ("/anything", ""),
    ],
)
def test_mounts_that_deliver_no_events_are_known(folder, kind):
    assert filesystems.silent_mount(Path(folder), MOUNTS) == kind


def test_more_folders_than_watches_are_noticed():
    assert filesystems.too_many(100, 8192) == ""
    assert "8,192 watches" in filesystems.too_many(8000, 8192)
    assert filesystems.too_many(1) == ""


def heard(place: Place, *events: tuple[str, str, str, bool]) -> list[tuple[str, str]]:
    marks: list[tuple[str, str]] = []
    died: list[str] = []
    handler = _Handler(place, lambda folder, what: marks.append((folder, what)), died.append)
    for kind, src, dest, folder in events:
        handler.dispatch(
            SimpleNamespace(event_type=kind, src_path=src, dest_path=dest, is_directory=folder)
        )
    return marks + [("died", path) for path in died]


ROOT = Place("/r", "/shown")


@pytest.mark.parametrize(
    ("event", "marks"),
    [
        (("modified", "/r/a/skill.py", "", False), [("/shown/a", "open:/r/a/skill.py")]),
        (("closed", "/r/a/skill.py", "", False), [("/shown/a", "closed:/r/a/skill.py")]),
        (("created", "/r/a", "", True), [("/shown/a", "")]),
        (("created", "/r/link", "", False), [("/shown/link", "")]),
        (
            ("moved", "/r/a/new.py", "/r/a/skill.py", False),
            [("/shown/a", "closed:/r/a/new.py"), ("/shown/a", "")],
        ),
        (("moved", "/r/a", "/r/b", True), [("/shown/a", ""), ("/shown/b", "")]),
        (("closed", "/r/a/.skill.py.swp", "", False), []),
        (("closed", "/r/a/skill.py~", "", False), []),
        (("created", "/r/a/__pycache__/x.py", "", False), []),
        (("created", "/r/.git/x.py", "", False), []),
        (("created", "/r/a/node_modules", "", True), []),
        (("deleted", "/r", "", True), [("", ""), ("died", "/r")]),
    ],
)
def test_an_event_marks_the_skill_it_may_concern(event, marks):
    assert heard(ROOT, event) == marks


def test_events_of_a_linked_skill_and_of_a_roots_parent_find_their_folder():
    linked = Place("/elsewhere/echo", "/r/echo", single=True)
    assert heard(linked, ("closed", "/elsewhere/echo/skill.py", "", False)) == [
        ("/r/echo", "closed:/elsewhere/echo/skill.py")
    ]
    assert heard(linked, ("closed", "/elsewhere/echo/notes.txt", "", False)) == []
    parent = Place("/p", roots=frozenset({"/p/skills"}))
    assert heard(parent, ("created", "/p/skills", "", True)) == [("", ""), ("died", "/p/skills")]
    assert heard(parent, ("created", "/p/other", "", True)) == []


def test_a_folder_is_looked_at_once_it_rests_or_after_a_second_at_most():
    dirty = Unrest(10.0)
    assert dirty.ripe_at(0.06) == 10.06
    dirty.touch(10.05, "")
    assert round(dirty.ripe_at(0.06), 3) == 10.11
    dirty.touch(10.1, "open:/r/a/skill.py")
    assert dirty.ripe_at(0.06) >= 10.16
    dirty.touch(10.2, "closed:/r/a/skill.py")
    assert round(dirty.ripe_at(0.06), 3) == 10.26
    for moment in range(11, 20):
        dirty.touch(float(moment), "")
    assert dirty.ripe_at(0.06) == 11.0


def test_a_folder_that_has_waited_its_time_is_taken_as_it_is(tmp_path):
    assert restless({str(tmp_path): Unrest(0.0)}) == []

"""What a call changed in the workspace is seen and said."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.calls.snapshot import Snapshot, diff, render, size_text, take
from runner.types import Changes


def test_created_modified_and_deleted_files_are_told_with_their_sizes(tmp_path):
    (tmp_path / "report.txt").write_text("short\n")
    (tmp_path / "old.log").write_text("x")
    (tmp_path / "same.txt").write_text("x")
    before = take(tmp_path)
    (tmp_path / "notes.md").write_text("# notes\n")
    (tmp_path / "report.txt").write_text("line\n" * 300)
    (tmp_path / "old.log").unlink()
    after = take(tmp_path)
    changes = diff(before, after)
    assert changes == Changes(("notes.md",), ("report.txt",), ("old.log",))
    assert render(changes, before, after).splitlines() == [
        "[Workspace Changes]",
        "+ notes.md (created, 8 B)",
        "~ report.txt (modified, 6 B → 1.5 KB)",
        "- old.log (deleted)",
    ]


def test_nothing_changed_says_nothing(tmp_path):
    (tmp_path / "a").write_text("x")
    shot = take(tmp_path)
    assert not diff(shot, take(tmp_path))
    assert render(Changes(), shot, shot) == ""


def test_a_change_of_the_same_size_is_seen(tmp_path):
    (tmp_path / "a").write_text("old")
    os.utime(tmp_path / "a", ns=(1, 1))
    before = take(tmp_path)
    (tmp_path / "a").write_text("new")
    assert diff(before, take(tmp_path)).modified == ("a",)


def test_a_file_replaced_by_a_link_is_modified(tmp_path):
    (tmp_path / "config.txt").write_text("x" * 5000)
    before = take(tmp_path)
    (tmp_path / "config.txt").unlink()
    (tmp_path / "config.txt").symlink_to("/etc/hostname")
    after = take(tmp_path)
    changes = diff(before, after)
    assert changes == Changes(modified=("config.txt",))
    assert "~ config.txt (modified, 4.9 KB → link to /etc/hostname)" in render(
        changes, before, after
    )


def test_odd_files_neither_hang_nor_break(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(".", target_is_directory=True)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "locked.txt").write_text("x")
    (tmp_path / "locked.txt").chmod(0)
    (tmp_path / "locked").mkdir(mode=0)
    (tmp_path / os.fsdecode(b"bad\xff")).mkdir()
    (tmp_path / os.fsdecode(b"bad\xff") / "x").write_text("x")
    shot = take(tmp_path)
    assert set(shot.files) == {"pipe", "loop", "self", "dangling", "locked.txt", "bad\\xff/x"}
    assert not diff(shot, take(tmp_path))
    "".join(shot.files).encode()


def test_a_name_with_a_newline_is_one_line(tmp_path):
    before = take(tmp_path)
    (tmp_path / "a\nb\x1b[31m").write_text("x")
    after = take(tmp_path)
    text = render(diff(before, after), before, after)
    assert text == "[Workspace Changes]\n+ a\\nb\\x1b[31m (created, 1 B)"


def test_a_folder_that_is_not_there_is_empty(tmp_path):
    assert take(tmp_path / "gone") == Snapshot()


@pytest.mark.parametrize(
    "name", [".git", "node_modules", ".venv", "__pycache__", "a.pyc", "a.swp", "a.tmp"]
)
def test_what_is_not_the_users_is_skipped(tmp_path, name):
    if "." in name[1:]:
        (tmp_path / name).write_text("x")
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")
    assert not take(tmp_path).files


def test_names_patterns_and_paths_can_be_skipped(tmp_path):
    for path in ("state/x", "deep/state/x", "a.bak", "deep/a"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    assert set(take(tmp_path, skip=["state", "*.bak"]).files) == {"deep/a"}
    shot = take(tmp_path, skip=[str(tmp_path / "state")])
    assert set(shot.files) == {"deep/state/x", "a.bak", "deep/a"}


def test_it_looks_so_many_folders_deep(tmp_path):
    folder = tmp_path
    for level in range(7):
        (folder / "x").write_text("x")
        folder = folder / f"d{level}"
        folder.mkdir()
    assert len(take(tmp_path, depth=4).files) == 5
    assert len(take(tmp_path, depth=0).files) == 1


# ---- many files


def test_over_the_cap_a_new_file_makes_no_false_deletions(tmp_path):
    for number in range(600):
        (tmp_path / f"f{number:04d}").write_text("x")
    before = take(tmp_path)
    (tmp_path / "aaa").write_text("x")
    (tmp_path / "f0001").write_text("changed")
    (tmp_path / "f0002").unlink()
    after = take(tmp_path)
    changes = diff(before, after)
    assert changes == Changes(("aaa",), ("f0001",), ("f0002",))
    assert "only the first 500 files were looked at" in render(changes, before, after)


def test_files_near_the_root_come_first(tmp_path):
    for number in range(600):
        path = tmp_path / "a" / f"f{number:04d}"
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (tmp_path / "z.txt").write_text("x")
    assert "z.txt" in take(tmp_path).files


def test_a_long_list_is_cut(tmp_path):
    before = take(tmp_path)
    for number in range(100):
        (tmp_path / f"f{number}").write_text("x")
    after = take(tmp_path)
    lines = render(diff(before, after), before, after).splitlines()
    assert len(lines) == 42
    assert lines[-1] == "… and 60 more"


def test_files_that_vanish_meanwhile_are_passed_over(tmp_path):
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            for number in range(50):
                (tmp_path / f"f{number}").write_text("x")
            for number in range(50):
                (tmp_path / f"f{number}").unlink()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(50):
            take(tmp_path)
    finally:
        stop.set()
        thread.join()


def test_five_hundred_files_take_milliseconds(tmp_path):
    for number in range(500):
        path = tmp_path / f"d{number % 10}" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    times = []
    for _ in range(10):
        began = time.perf_counter()
        take(tmp_path)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.02


NAMES = st.lists(st.sampled_from(["a", "a-b", "b", "a/x", "a-b/x", "b/c/x", "b/d"]), unique=True)


@given(NAMES, NAMES, st.integers(1, 6))
def test_a_capped_look_never_tells_a_change_that_was_not_there(old, new, cap):
    def shot(names):
        ordered = sorted(names, key=lambda p: (p.count("/"), p.replace("/", "\0")))
        entry = next(iter(take(Path(__file__).parent, depth=0, files=1).files.values()))
        kept = ordered[:cap]
        last = (kept[-1].count("/"), kept[-1].replace("/", "\0")) if len(ordered) > cap else None
        return Snapshot(dict.fromkeys(kept, entry), last)

    changes = diff(shot(old), shot(new))
    assert set(changes.created) <= set(new) - set(old)
    assert set(changes.deleted) <= set(old) - set(new)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (8, "8 B"),
        (1023, "1023 B"),
        (1500, "1.5 KB"),
        (1024**2 * 3, "3.0 MB"),
        (5 * 1024**4, "5120.0 GB"),
    ],
)
def test_sizes_are_written_for_people(size, text):
    assert size_text(size) == text


EXCHANGES = """
import os
while True:
    os.rename("inside/folder", "kept"); os.rename("link", "inside/folder")
    os.rename("inside/folder", "link"); os.rename("kept", "inside/folder")
"""


def test_a_folder_that_is_exchanged_for_a_link_while_one_looks_shows_nothing_from_outside(tmp_path):
    for n in range(20):
        (tmp_path / "inside" / "folder" / f"{n}").mkdir(parents=True)
    for n in range(200):  # which take their time between a look at the folder and one into it
        (tmp_path / "inside" / f"{n}.txt").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("s")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    other = subprocess.Popen([sys.executable, "-c", EXCHANGES], cwd=tmp_path)
    try:
        seen = {path for _ in range(1000) for path in take(tmp_path / "inside").files}
    finally:
        other.kill()
        other.wait()
    assert "folder" in seen, "it was exchanged"
    assert not any("secret" in path for path in seen)

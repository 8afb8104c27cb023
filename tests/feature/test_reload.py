"""However an edit is saved, the next use runs it; a broken one never does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from saves import SAVES
from skill_kit import call, one_tool, registry, write

from runner.catalog.registry import Registry
from runner.catalog.skill import Change
from runner.catalog.watcher import Watcher

NEVER = 3_600.0


def pick(version: int, folder: str = "pick") -> dict[str, str]:
    return one_tool(
        "pick", f"def pick():\n    return {version}\n", "properties = {}", folder=folder
    )


@contextmanager
def watched(root: Path, **options: object) -> Iterator[tuple[Registry, list[Change]]]:
    """A registry kept by events alone: the scan that would catch what they miss does not run."""
    changes: list[Change] = []
    found = registry(root)
    options = {"reconcile_seconds": NEVER, "backend": "native", **options}
    watcher = Watcher(found, on_change=changes.append, **options)  # type: ignore[arg-type]
    watcher.start()
    try:
        yield found, changes
    finally:
        watcher.stop()


def until(condition: Callable[[], bool], seconds: float = 4.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.003)


def answers(found: Registry, value: int) -> bool:
    return "pick" in found.snapshot.tools and call(found, "pick") == value


@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
@pytest.mark.parametrize("link", ["plain", "linked skill", "linked root"])
def test_a_save_is_used_however_it_is_made(save, link, tmp_path):
    root = tmp_path / "project" / "skills"
    real = root
    if link == "linked skill":
        real = tmp_path / "elsewhere"
        write(real, pick(1))
        root.mkdir(parents=True)
        (root / "pick").symlink_to(real / "pick")
    elif link == "linked root":
        real = tmp_path / "elsewhere"
        write(real, pick(1))
        root.parent.mkdir(parents=True)
        root.symlink_to(real)
    else:
        write(root, pick(1))
    with watched(root) as (found, changes):
        assert answers(found, 1)
        save(real / "pick" / "skill.py", "def pick():\n    return 2\n")
        until(lambda: answers(found, 2))
        save(real / "pick" / "skill.py", "def pick():\n    return 3\n")
        until(lambda: answers(found, 3))
    assert not any(change.failed for change in changes)
    assert found.snapshot.skills[0].state == "ready"


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_git_checkout_of_many_skills_is_one_change_each(tmp_path):
    root = tmp_path / "skills"
    names = [f"s{n}" for n in range(60)]
    for version in (1, 2):
        for name in names:
            write(root, one_tool(name, f"def {name}():\n    return {version}\n"))
        if version == 1:
            git(root, "init", "-q", "-b", "one")
        else:
            git(root, "checkout", "-q", "-b", "two")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "x")
    with watched(root) as (found, changes):
        assert all(call(found, name) == 2 for name in names)
        git(root, "checkout", "-q", "one")
        until(lambda: all(call(found, name) == 1 for name in names))
    told = [name for change in changes for name in change.updated]
    assert sorted(told) == sorted(names)


def test_folders_moved_in_and_out_and_renamed_are_seen(tmp_path):
    root = tmp_path / "skills"
    write(root, one_tool("stays"))
    write(tmp_path / "elsewhere", pick(1))
    with watched(root) as (found, changes):
        (tmp_path / "elsewhere" / "pick").rename(root / "pick")
        until(lambda: answers(found, 1))
        (root / "pick").rename(root / "choose")
        until(lambda: found.snapshot.skill("pick").path.parent.name == "choose")
        (root / "choose").rename(tmp_path / "elsewhere" / "pick")
        until(lambda: "pick" not in found.snapshot.tools)
        shutil.rmtree(root / "stays")
        until(lambda: not found.snapshot.tools)
    assert [c.added for c in changes if c.added] == [("pick",)]
    assert ("pick",) in [c.removed for c in changes]


def test_a_skill_written_slowly_is_there_once_it_is_whole(tmp_path):
    root = tmp_path / "skills"
    root.mkdir()
    files = pick(1)
    with watched(root) as (found, changes):
        write(root, {"pick/skill.toml": files["pick/skill.toml"]})
        until(lambda: bool(found.snapshot.skills))
        assert found.snapshot.skills[0].state == "failed"
        write(root, {"pick/skill.py": files["pick/skill.py"]})
        until(lambda: answers(found, 1))
    assert [c.added for c in changes] == [(), ("pick",)]
    assert not changes[-1].failed


@pytest.mark.parametrize("linked", [False, True], ids=["plain", "linked root"])
def test_a_root_deleted_and_made_again_is_watched_again(linked, tmp_path):
    root = tmp_path / "project" / "skills"
    root.parent.mkdir()
    real = root
    if linked:
        real = tmp_path / "elsewhere"
        real.mkdir()
        root.symlink_to(real)
    write(root, pick(1))
    with watched(root) as (found, _):
        for round_ in range(3):
            shutil.rmtree(root if not linked else real)
            if linked:
                root.unlink()
            until(lambda: not found.snapshot.tools)
            if linked:
                real.mkdir()
                root.symlink_to(real)
            write(root, pick(round_ * 10))
            until(lambda n=round_ * 10: answers(found, n))
            write(root, pick(round_ * 10 + 1))
            until(lambda n=round_ * 10 + 1: answers(found, n))


def test_a_root_that_is_not_there_yet_is_waited_for(tmp_path):
    with watched(tmp_path / "skills") as (found, _):
        write(tmp_path / "skills", pick(1))
        until(lambda: answers(found, 1))
        write(tmp_path / "skills", pick(2))
        until(lambda: answers(found, 2))


def test_a_link_that_is_set_to_another_folder_is_followed(tmp_path):
    root = tmp_path / "skills"
    root.mkdir()
    write(tmp_path / "a", pick(1))
    write(tmp_path / "b", pick(2))
    (root / "pick").symlink_to(tmp_path / "a" / "pick")
    with watched(root) as (found, _):
        assert answers(found, 1)
        (root / "new").symlink_to(tmp_path / "b" / "pick")
        (root / "new").replace(root / "pick")
        until(lambda: answers(found, 2))
        write(tmp_path / "b", pick(3))
        until(lambda: answers(found, 3))


def test_a_helper_edited_alone_is_used_and_a_call_under_way_keeps_its_version(tmp_path):
    root = tmp_path / "skills"
    body = "import threading\ngo = threading.Event()\nstarted = threading.Event()\ndef pick(wait=False):\n    if wait:\n        started.set()\n        go.wait(5)\n    from . import part\n    return part.V\n"
    write(
        root,
        one_tool("pick", body, "properties.wait = { type = 'boolean' }")
        | {"pick/part.py": "V = 1\n"},
    )
    with watched(root) as (found, _):
        entry = found.snapshot.tools["pick"].load()
        module = entry.function.__wrapped__.__globals__
        results: list[int] = []
        thread = threading.Thread(target=lambda: results.append(entry.function(wait=True)))
        thread.start()
        module["started"].wait(5)
        write(root, {"pick/part.py": "V = 2\n"})
        until(lambda: answers(found, 2))
        module["go"].set()
        thread.join()
    assert results == [1]


def test_a_half_written_file_is_never_used_and_leaves_no_error(tmp_path):
    root = tmp_path / "skills"
    write(root, pick(1))
    whole = "def pick():\n    return 2\n"
    with watched(root) as (found, changes):
        assert answers(found, 1)
        with (root / "pick" / "skill.py").open("w") as file:
            file.write(whole[:9])
            file.flush()
            until(lambda: answers(found, 1))
            file.write(whole[9:])
        until(lambda: answers(found, 2))
        assert found.snapshot.skills[0].state == "ready"
    assert not changes[-1].failed


@pytest.mark.parametrize("used", [True, False], ids=["imported", "not imported yet"])
def test_a_broken_edit_keeps_the_last_good_version_is_told_once_and_clears(used, tmp_path):
    root = tmp_path / "skills"
    write(root, pick(1))
    with watched(root) as (found, changes):
        assert not used or answers(found, 1)
        write(root, {"pick/skill.py": "def pick():\n    return (\n"})
        until(lambda: found.snapshot.skills[0].state == "stale")
        assert "skill.py:2" in found.snapshot.skills[0].reason
        write(root, {"pick/skill.py": "def pick():\n    return (\n\n"})
        assert answers(found, 1)
        write(root, pick(2))
        until(lambda: answers(found, 2))
        assert found.snapshot.skills[0].state == "ready"
    failed = [change.failed for change in changes if change.failed]
    assert [list(names) for names in failed] == [["pick"]]
    assert changes[-1].updated == ("pick",)


def test_reading_touching_and_editor_litter_reload_nothing(tmp_path):
    root = tmp_path / "skills"
    write(root, pick(1))
    with watched(root) as (found, changes):
        assert answers(found, 1)
        folder = root / "pick"
        for _ in range(50):
            for file in folder.iterdir():
                file.read_bytes()
        for name in ("skill.py", "skill.toml"):
            os.utime(folder / name)
            (folder / name).write_bytes((folder / name).read_bytes())
            (folder / name).chmod(0o640)
        write(
            folder,
            {
                "__pycache__/skill.cpython-311.pyc": "x",
                ".skill.py.swp": "x",
                "4913": "x",
                "skill.py~": "x",
                "notes.txt": "x",
                "data.json": "{}",
            },
        )
        write(root, {"README.md": "x"})
        write(root, one_tool("marker"))
        until(lambda: "marker" in found.snapshot.tools)
    assert [(c.added, c.updated, c.removed, dict(c.failed)) for c in changes] == [
        (("marker",), (), (), {})
    ]


@pytest.mark.parametrize("backend", ["poll", "auto"])
def test_where_events_are_missing_the_scan_finds_the_change(backend, tmp_path):
    root = tmp_path / "skills"
    write(root, pick(1))
    with watched(root, backend=backend, reconcile_seconds=0.05) as (found, _):
        assert answers(found, 1)
        write(root, pick(2))
        until(lambda: answers(found, 2))


def test_settle_waits_until_all_on_disk_is_in_the_registry(tmp_path):
    root = tmp_path / "skills"
    write(root, pick(1))
    found = registry(root)
    watcher = Watcher(found, backend="poll", reconcile_seconds=NEVER)
    assert not watcher.settle(0.01)
    watcher.start()
    write(root, pick(2))
    assert watcher.settle()
    assert answers(found, 2)
    watcher.stop()
    assert not watcher.settle(0.01)


def test_off_watches_nothing(tmp_path):
    watcher = Watcher(registry(tmp_path), backend="off")
    watcher.start()
    assert watcher.backend == "off"
    watcher.stop()


def test_a_subscriber_that_fails_does_not_end_the_watch(tmp_path):
    root = tmp_path / "skills"
    write(root, pick(1))

    def fail(_change: Change) -> None:
        raise OSError("nobody there")

    found = registry(root)
    watcher = Watcher(found, backend="native", on_change=fail)
    watcher.start()
    for version in (2, 3):
        write(root, pick(version))
        until(lambda v=version: answers(found, v))
    watcher.stop()


def test_the_reload_tests_pass_where_python_writes_bytecode(tmp_path):
    """Where PYTHONDONTWRITEBYTECODE is set stale bytecode is invisible."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    names = "same_time_as_before or an_hour_ago or helper"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        names,
        str(Path(__file__)),
    ]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "passed" in done.stdout

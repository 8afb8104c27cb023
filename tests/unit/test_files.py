"""No spelling of a path leaves the workspace, and one file has one writer."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path

import pytest

from runner.calls.baselines import Baselines
from runner.calls.files import Workspace, nearest
from runner.calls.locks import PathLocks
from runner.skill import ToolError


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret").write_text("PRIVATE")
    root = tmp_path / "workspace"
    (root / "a").mkdir(parents=True)
    (root / "a" / "b.txt").write_text("inside")
    (root / "link_out").symlink_to(tmp_path)
    (root / "link_in").symlink_to("a")
    (root / "loop").symlink_to("loop")
    (root / "skills").mkdir()
    return root


def workspace(root, **more):
    more = {"locks": PathLocks(), "baselines": Baselines(), "owner": object(), **more}
    return Workspace(root, **more)


# ---- paths


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("a/b.txt", "a/b.txt"),
        ("./a/../a/b.txt", "a/b.txt"),
        ("link_in/b.txt", "a/b.txt"),
        ("~/x", "~/x"),
        ("new\nline", "new\nline"),
        ("not/there/yet", "not/there/yet"),
        (".", "."),
        ("a//b.txt", "a/b.txt"),
    ],
)
def test_a_name_inside_is_resolved(root, name, real):
    assert workspace(root).path(name, write=False) == Path(os.path.realpath(root / real))


def test_an_absolute_path_inside_is_fine(root):
    assert workspace(root).path(str(root / "a/b.txt"), write=False).read_text() == "inside"


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "a/../../secret",
        "link_out/secret",
        "/etc/passwd",
        "/proc/self/fd/0",
        "../workspace2/x",
        "loop",
        "loop/x",
        "",
        "a\0b",
        "x" * 256,
        "x/" * 3000,
        "\ud800",
    ],
)
def test_a_name_outside_is_refused_with_advice(root, name, write):
    (root.parent / "workspace2").mkdir()
    with pytest.raises(ToolError) as refused:
        workspace(root).path(name, write=write)
    assert 10 < len(str(refused.value)) < 600
    if name.startswith(".."):
        assert "a/" in str(refused.value)


def test_a_missing_file_is_told_what_the_nearest_folder_has(root):
    with pytest.raises(ToolError, match=r"the folder a has: b\.txt"):
        workspace(root).read("a/c.txt")
    with pytest.raises(ToolError, match="the workspace has: a/"):
        workspace(root).read("nope/deep/c.txt")
    assert nearest(root, root.parent / "elsewhere").startswith("the workspace has")


def test_the_advice_never_looks_through_a_link_that_was_put_there_meanwhile(root):
    assert "secret" not in nearest(root, root / "link_out" / "c.txt")
    assert nearest(root, root / "link_out" / "c.txt").startswith("the workspace has: a/")


# ---- reading and writing


def test_what_was_written_can_be_read(root):
    files = workspace(root)
    files.write("new/deep/c.txt", b"data")
    assert files.read("new/deep/c.txt") == b"data"
    assert [p.name for p in (root / "new/deep").iterdir()] == ["c.txt"]


def test_writing_replaces_in_one_step_and_keeps_the_mode(root):
    path = root / "a" / "b.txt"
    path.chmod(0o640)
    with path.open() as before:
        workspace(root).write("a/b.txt", b"other")
        assert before.read() == "inside"
    assert path.read_text() == "other"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_only_regular_files_are_read_or_replaced(root):
    os.mkfifo(root / "pipe")
    for name in ("pipe", "a", "."):
        with pytest.raises(ToolError):
            workspace(root).read(name)
        with pytest.raises(ToolError):
            workspace(root).write(name, b"x")
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


def test_a_link_put_in_between_is_not_followed(root, tmp_path):
    """The name is resolved first; then the folder becomes a link; then the file is opened."""

    class Swapping(PathLocks):
        def take(self, path, owner, wait_seconds):
            (root / "a" / "b.txt").unlink()
            (root / "a").rmdir()
            (root / "a").symlink_to(tmp_path)
            return True

    with pytest.raises(ToolError):
        workspace(root, locks=Swapping()).write("a/secret", b"OVERWRITTEN")
    assert (tmp_path / "secret").read_text() == "PRIVATE"


def test_a_file_swapped_for_a_link_is_not_written_through(root, tmp_path):
    class Swapping(PathLocks):
        def take(self, path, owner, wait_seconds):
            (root / "a" / "b.txt").unlink()
            (root / "a" / "b.txt").symlink_to(tmp_path / "secret")
            return True

    with pytest.raises(ToolError):
        workspace(root, locks=Swapping()).write("a/b.txt", b"OVERWRITTEN")
    assert (tmp_path / "secret").read_text() == "PRIVATE"


# ---- protected places and scopes


def test_a_protected_place_is_written_only_when_approved(root):
    protected = [root / "skills"]
    with pytest.raises(ToolError, match="skills/"):
        workspace(root, protected=protected).write("skills/x/skill.py", b"")
    workspace(root, protected=protected, approved=True).write("skills/x/skill.py", b"1")
    assert workspace(root, protected=protected).read("skills/x/skill.py") == b"1"


def test_a_manifest_scope_narrows(root):
    files = workspace(root, scopes=("fs.write:out/**", "fs.read:a/*"))
    files.write("out/deep/x", b"1")
    with pytest.raises(ToolError, match=r"out/\*\*"):
        files.write("x", b"1")
    with pytest.raises(ToolError):
        files.write("out/../x", b"1")
    assert files.read("a/b.txt") == b"inside"
    with pytest.raises(ToolError):
        files.read("out/deep/x")


def test_a_manifest_that_asks_for_no_writing_gets_none(root):
    with pytest.raises(ToolError, match=r"fs\.write"):
        workspace(root, scopes=("fs.read",)).path("x", write=True)
    assert workspace(root, scopes=()).read("a/b.txt") == b"inside"
    workspace(root, scopes=("fs.read", "fs.write")).write("x", b"1")


# ---- one writer


def test_two_spellings_of_one_file_have_one_writer(root):
    locks, one, two = PathLocks(), object(), object()
    workspace(root, locks=locks, owner=one).path("a/b.txt", write=True)
    workspace(root, locks=locks, owner=one).path("a/b.txt", write=True)
    other = workspace(root, locks=locks, owner=two)
    with pytest.raises(ToolError, match="another call") as refused:
        other.path("link_in/./b.txt", write=True)
    assert refused.value.retryable
    other.path("a/b.txt", write=False)
    other.path("a/other.txt", write=True)
    locks.release(one)
    other.path("link_in/./b.txt", write=True)


def test_a_writer_waits_for_the_one_before(root):
    locks, results = PathLocks(), []
    workspace(root, locks=locks, owner="one").path("n.txt", write=True)

    def second():
        workspace(root, locks=locks, owner="two", remaining=lambda: 10).path("n.txt", write=True)
        results.append("two")
        locks.release("two")

    thread = threading.Thread(target=second)
    thread.start()
    results.append("one")
    locks.release("one")
    thread.join(10)
    assert results == ["one", "two"]
    assert not locks.held(str(root / "n.txt"))


def test_parallel_edits_lose_nothing(root):
    locks = PathLocks()
    (root / "n.txt").write_text("")

    def edit(number):
        files = workspace(root, locks=locks, owner=number, remaining=lambda: 30)
        path = files.path("n.txt", write=True)
        files.write("n.txt", path.read_bytes() + b"%d\n" % number)
        locks.release(number)

    threads = [threading.Thread(target=edit, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(map(int, (root / "n.txt").read_text().split())) == list(range(40))


def test_on_an_event_loop_nobody_waits(root):
    locks = PathLocks()
    workspace(root, locks=locks, owner="one").path("n.txt", write=True)

    async def second():
        workspace(root, locks=locks, owner="two", remaining=lambda: 60).path("n.txt", write=True)

    with pytest.raises(ToolError, match="another call"):
        asyncio.run(second())


# ---- read before edit


def test_a_file_must_have_been_read_before_it_is_edited(root):
    files = workspace(root)
    assert "not read" in files.stale("a/b.txt")
    assert files.stale("not-there-yet.txt") == ""
    files.read("a/b.txt")
    assert files.stale("link_in/b.txt") == ""


def test_a_file_changed_by_others_is_stale_until_it_is_read_again(root):
    files = workspace(root)
    files.read("a/b.txt")
    (root / "a/b.txt").write_text("changed by somebody")
    assert "changed" in files.stale("a/b.txt")
    files.read("a/b.txt")
    assert files.stale("a/b.txt") == ""


def test_touching_a_file_is_no_change_and_writing_it_oneself_is_none(root):
    files = workspace(root)
    files.read("a/b.txt")
    os.utime(root / "a/b.txt", ns=(1, 1))
    assert files.stale("a/b.txt") == ""
    files.write("a/b.txt", b"my own")
    assert files.stale("a/b.txt") == ""


def test_observed_changes_count_as_seen(root):
    baselines = Baselines()
    files = workspace(root, baselines=baselines)
    files.read("a/b.txt")
    (root / "a/b.txt").write_text("changed by a call of this session")
    (root / "made.txt").write_text("x")
    baselines.observe(root, ["a/b.txt", "made.txt", "deleted.txt"])
    assert files.stale("a/b.txt") == ""
    assert files.stale("made.txt") == ""

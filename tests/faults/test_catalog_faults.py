"""The fault list, rows 54–65: skills, folders and configs as bad as they come. One never hides another."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import turn_kit as k
from skill_kit import call, one_tool, registry, write

from runner import ConfigError
from runner.calls.snapshot import diff, render, take
from runner.calls.spills import Spills
from runner.catalog.registry import Registry
from runner.catalog.watcher import Watcher
from runner.config import config_from, load_config

row = pytest.mark.row
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def states(found: Registry) -> dict[str, tuple[str, str]]:
    """Folder name → state and reason."""
    return {s.location.name: (s.state, s.reason) for s in found.snapshot.skills}


def until(holds: Any, seconds: float = 10.0) -> None:
    """Waits for what a watcher does on its own thread."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


# ---- 54, 55: edits --------------------------------------------------------------------------------
@row(54)
@pytest.mark.parametrize("change", ["edit", "delete", "break"])
def test_a_call_ends_on_the_version_it_began_with(tmp_path, change):
    body = "import time, os\ndef act():\n    while not os.path.exists('{mark}'): time.sleep(0.005)\n    return '{version}'\n"
    mark = tmp_path / "mark"
    root = tmp_path / "skills"
    write(root, one_tool("act", body.format(mark=mark, version="old")))

    async def test():
        replies = [k.call("act"), k.call("act"), k.say("done")]
        async with k.turns(tmp_path, replies, paths={"skills": [str(root)]}) as made:
            task = asyncio.ensure_future(k.one_turn(made))
            await made.heard("tool.started")
            if change == "edit":
                write(root, one_tool("act", body.format(mark=mark, version="new")))
            elif change == "delete":
                shutil.rmtree(root / "act")
            else:
                write(root, one_tool("act", "def act(:\n"))
            found = made.runner.shared.registry
            await asyncio.to_thread(found.refresh)
            mark.write_text("go")
            await task
            last = {
                "edit": ("ok", "new"),
                "delete": ("unknown_tool", "act"),
                "break": ("ok", "old"),
            }
            assert made.finished[0]["content"].splitlines()[0] == "old"
            assert made.kinds[1] == last[change][0]
            assert last[change][1] in made.finished[1]["content"]
            if change == "break":
                (one,) = [s for s in found.snapshot.skills if s.name == "act"]
                assert one.state == "stale"
                assert "SyntaxError" in one.reason or "syntax" in one.reason

    k.go(test)


@row(55)
def test_an_edit_of_the_same_size_in_the_same_second_is_seen(tmp_path):
    root = tmp_path / "skills"
    write(root, one_tool("act", "def act():\n    return 1\n"))
    found = registry(root)
    for number in range(2, 8):
        assert call(found, "act") == number - 1
        file = root / "act" / "skill.py"
        stamp = file.stat()
        file.write_text(f"def act():\n    return {number}\n")
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
        found.refresh()
        assert call(found, "act") == number


# ---- 56, 57, 58: bad folders ----------------------------------------------------------------------
def link_out(root: Path) -> None:
    (root / "bad").mkdir()
    (root / "bad" / "skill.toml").symlink_to("/etc/passwd")


def link_loop(root: Path) -> None:
    (root / "bad").symlink_to(root / "bad")


def link_up(root: Path) -> None:
    write(root, one_tool("bad"))
    (root / "bad" / "deeper").symlink_to(root)


def fifo(root: Path) -> None:
    (root / "bad").mkdir()
    os.mkfifo(root / "bad" / "skill.toml")


def huge(root: Path) -> None:
    (root / "bad").mkdir()
    with (root / "bad" / "skill.toml").open("wb") as file:
        file.truncate(2 << 30)


def binary(root: Path) -> None:
    write(root, {"bad/skill.toml": bytes(range(256)) * 10})


def yaml_bomb(root: Path) -> None:
    lines = ["a0: &a0 x"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    write(root, {"bad/SKILL.md": "---\nname: bad\n" + "\n".join(lines) + "\n---\nbody\n"})


def wrong_types(root: Path) -> None:
    write(root, {"bad/skill.toml": "manifest = 'one'\nname = 5\ntools = 7\n", "bad/skill.py": ""})


def no_code(root: Path) -> None:
    write(root, {"bad/skill.toml": one_tool("bad")["bad/skill.toml"]})


def odd_name(root: Path) -> None:
    write(root, one_tool("bad", folder="ba\u202ed"))


def no_manifest(root: Path) -> None:
    write(root, {"bad/helper.py": "x = 1\n"})


BAD = [
    link_out, link_loop, fifo, huge, binary, yaml_bomb, wrong_types, no_code, odd_name, no_manifest,
]  # fmt: skip


@row(56, 57)
@pytest.mark.parametrize("bad", BAD, ids=lambda f: f.__name__)
def test_a_folder_that_is_no_skill_is_listed_with_its_reason_and_hides_nobody(tmp_path, bad):
    root = tmp_path / "skills"
    write(root, one_tool("good", "def good():\n    return 'fine'\n"))
    bad(root)
    began = time.monotonic()
    found = registry(root)
    assert time.monotonic() - began < 5
    assert call(found, "good") == "fine"
    others = {name: one for name, one in states(found).items() if name != "good"}
    assert [one[0] for one in others.values()] == ["failed"], others
    assert all(one[1] for one in others.values())


@row(56)
def test_a_link_back_to_the_root_is_no_trap(tmp_path):
    root = tmp_path / "skills"
    root.mkdir()
    link_up(root)
    began = time.monotonic()
    found = registry(root)
    assert time.monotonic() - began < 5
    assert "bad" in found.snapshot.tools or states(found)["bad"][0] == "failed"


@row(57)
def test_of_one_name_the_first_wins_and_names_of_the_standard_library_do_no_harm(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, one_tool("act", "def act():\n    return 'first'\n"))
    write(two, one_tool("act", "def act():\n    return 'second'\n"))
    write(two, one_tool("json", "import json\ndef json_(): ...\ndef json(): return 'mine'\n"))
    found = registry(one, two)
    assert call(found, "act") == "first"
    assert sorted(s.state for s in found.snapshot.skills if s.name == "act") == [
        "ready",
        "shadowed",
    ]
    import json as real

    assert real.loads("1") == 1


@row(58)
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import sys; sys.exit(3)\ndef act(): ...", "SystemExit"),
        ("raise RuntimeError('broken')\ndef act(): ...", "broken"),
        ("import no_such_module\ndef act(): ...", "no_such_module"),
    ],
)
def test_a_module_that_fails_when_it_is_loaded_fails_its_call_alone(tmp_path, body, says):
    root = tmp_path / "skills"
    write(root, one_tool("act", body))
    write(root, one_tool("good", "def good():\n    return 'fine'\n"))
    replies = [k.calls(("act", {}), ("good", {})), k.say("done")]
    made = k.run(tmp_path, replies, paths={"skills": [str(root)]})
    assert made.kinds == ["crashed", "ok"]
    assert "failed to load" in made.finished[0]["content"]
    assert says in made.finished[0]["content"]


@row(58)
def test_what_a_module_prints_and_starts_while_it_is_loaded_is_its_own(tmp_path):
    root = tmp_path / "skills"
    body = (
        "import threading\nprint('loading')\n"
        "threading.Thread(target=threading.Event().wait, daemon=True, args=(0.01,)).start()\n"
        "def act(): return 'fine'\n"
    )
    write(root, one_tool("act", body))
    (tmp_path / "script.json").write_text(
        json.dumps({"replies": [k.call("act"), k.say("the answer")]})
    )
    done = subprocess.run(
        [sys.executable, "-m", "runner", "run", "go", "--model", "scripted/script.json"],
        cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "the answer\n"), done.stderr


# ---- 59, 60: watching -----------------------------------------------------------------------------
@row(59, 60)
def test_a_storm_of_changes_and_a_root_made_anew_are_followed(tmp_path):
    root = tmp_path / "skills"
    write(root, one_tool("act", "def act():\n    return 0\n"))
    found = registry(root)
    changes: list[Any] = []
    watcher = Watcher(found, on_change=changes.append, backend="auto")
    watcher.start()
    try:
        for number in range(3000):
            (root / "act" / f"scratch{number % 50}.tmp").write_text("x")
        write(root, one_tool("act", "def act():\n    return 1\n"))
        until(lambda: call(found, "act") == 1)
        new = root / "act" / "skill.py.new"
        new.write_text("def act():\n    return 2\n")
        new.replace(root / "act" / "skill.py")
        until(lambda: call(found, "act") == 2)
        shutil.rmtree(root)
        until(lambda: "act" not in found.snapshot.tools)
        write(root, one_tool("act", "def act():\n    return 3\n"))
        until(lambda: "act" in found.snapshot.tools)
        assert call(found, "act") == 3
        assert len(changes) < 30, "changes that come together are one"
    finally:
        watcher.stop()


# ---- 61, 62: workspaces ---------------------------------------------------------------------------
@row(61)
def test_a_large_deep_or_unreadable_workspace_costs_little(tmp_path):
    for folder in range(20):
        (tmp_path / f"f{folder}").mkdir()
        for number in range(500):
            (tmp_path / f"f{folder}" / f"{number}").touch()
    deep = tmp_path
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "dangling").symlink_to("nowhere")
    began = time.monotonic()
    before = take(tmp_path, depth=4, files=500)
    assert time.monotonic() - began < 2
    assert diff(before, take(tmp_path, depth=4, files=500)) == type(diff(before, before))()


@row(62)
def test_names_that_are_hard_to_show_are_shown_safely(tmp_path):
    before = take(tmp_path, depth=4, files=500)
    names = ["new\nline", "esc\x1b[2J", "x" * 255, "caf\u00e9", "cafe\u0301", "bi\u202edi"]
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / os.fsdecode(b"bad\xff")).write_text("x")
    after = take(tmp_path, depth=4, files=500)
    text = render(diff(before, after), before, after)
    text.encode()
    assert len(text.splitlines()) == len(names) + 2
    assert not set("\x1b\u202e") & set(text)


@row(61, 62)
def test_a_call_in_such_a_workspace_is_like_any_other(tmp_path):
    folder = tmp_path / "w"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "config.txt").write_text("x")
    (folder / os.fsdecode(b"bad\xff")).write_text("x")

    def swap() -> str:
        (folder / "config.txt").unlink()
        (folder / "config.txt").symlink_to("/etc/hostname")
        return "swapped"

    made = k.run(tmp_path, [k.call("swap"), k.say("x")], swap, paths={"workspace": str(folder)})
    (one,) = made.finished
    assert one["kind"] == "ok"
    assert "config.txt" in one["content"]
    assert "config.txt" in str(one["changes"])


# ---- 63, 64: links --------------------------------------------------------------------------------
@row(63)
def test_a_file_that_becomes_a_link_while_it_is_opened_is_never_followed_out(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret of somebody else")
    folder = tmp_path / "w"
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "secret").write_text("mine")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(folder / "d", folder / "kept")  # noqa: PTH104 - as quick as it gets
            os.symlink(outside, folder / "d")  # noqa: PTH211
            os.unlink(folder / "d")  # noqa: PTH108
            os.rename(folder / "kept", folder / "d")  # noqa: PTH104

    read: list[bytes] = []

    def reads(ctx: Any) -> str:
        for _ in range(400):
            try:
                read.append(ctx.read_bytes("d/secret"))
            except Exception as error:
                read.append(type(error).__name__.encode())
        return "ok"

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        made = k.run(
            tmp_path, [k.call("reads"), k.say("x")], k.tool(reads, read_only=True),
            paths={"workspace": str(folder)},
        )  # fmt: skip
    finally:
        stop.set()
        thread.join()
    assert made.kinds == ["ok"]
    assert b"secret of somebody else" not in read


@row(64)
def test_a_link_that_waits_where_a_spill_goes_is_neither_followed_nor_written(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "spills"
    spills = Spills(folder)
    first = folder / spills.keep("the whole result")
    first.unlink()
    first.symlink_to(victim)
    again = folder / spills.keep("the whole result")
    assert victim.read_text() == "precious"
    assert not again.is_symlink()
    assert again.read_text() == "the whole result"


# ---- 65: configs ----------------------------------------------------------------------------------
@row(65)
def test_all_faults_of_a_config_are_told_at_once_and_nothing_starts(tmp_path):
    given = {
        "limits": {"slots": "two", "tool_timeout": float("nan"), "max_iterations": -1, "slotz": 1},
        "model": {"temperature": "hot"},
        "nonsense": {"a": 1},
    }
    with pytest.raises(ConfigError) as caught:
        config_from(given, project=tmp_path)
    text = str(caught.value)
    for word in ("slots", "tool_timeout", "max_iterations", "slotz", "temperature", "nonsense"):
        assert word in text
    assert not (tmp_path / ".runner").exists()


@row(65)
@pytest.mark.parametrize(
    "text", ["[limits]\nslots = 1\nslots = 2\n", "[limits\n", "\x00", "a = 1e999\n"]
)
def test_a_config_that_cannot_be_read_names_its_file(tmp_path, text):
    file = tmp_path / "config" / "runner.toml"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"runner\.toml"):
        load_config(file=file)

"""The fault list, rows 46–49, 76 and 77: no disk, no clock, no streams, no files left to open."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import turn_kit as k

from runner import RecordError, SessionError

row = pytest.mark.row
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def look(name: str = "x") -> str:
    """Looks at something."""
    RAN.append(name)
    return f"{name} was looked at"


def large() -> str:
    """A long result."""
    RAN.append("large")
    return "a line of the long report\n" * 4000


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 128 kB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "slotrunner-test", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip("mounting needs rights; the limit on file sizes is tested in any case")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Takes the rest of the disk."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as out:
        try:
            while out.write(b"x" * 512):
                pass
        except OSError:
            pass
    return file


# ---- the record -----------------------------------------------------------------------------------
@row(46)
def test_a_full_disk_stops_the_turn_before_the_next_call_and_a_resume_goes_on(tmp_path, small_disk):
    fillers = []

    def fills() -> str:
        RAN.append("fills")
        fillers.append(fill(small_disk))
        return "full"

    async def test():
        looks = [k.call("look", name=f"n{n}") for n in range(14)]
        config = {"paths": {"state": str(small_disk)}}
        async with (
            k.turns(tmp_path, [k.call("fills"), *looks], fills, look, **config) as made,
            k.opened(made) as session,
        ):
            with pytest.raises(RecordError, match="No space left"):
                await session.run("go")
            assert len(RAN) == len(made.of("tool.started")), "nothing runs that was not recorded"
            fillers[0].unlink()
            made.model._replies[:] = [k.say("again")]
            assert (await session.run("go on")).answer == "again"
            assert made.all_valid()
        async with k.turns(tmp_path, [k.say("resumed")], look, **config) as made:
            assert (await k.one_turn(made)).answer == "resumed"
            assert made.all_valid()

    k.go(test)
    for line in (small_disk / "sessions" / "s1.jsonl").read_bytes().splitlines():
        json.loads(line)


@row(46)
def test_a_record_that_does_not_fit_leaves_only_whole_records(tmp_path):
    code = (
        "import resource, sys\nimport turn_kit as k\nfrom pathlib import Path\n"
        "def look(name: str):\n    return name * 3\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))\n"
        "replies = [*(k.call('look', name=f'n{n}') for n in range(9)), k.say('x')]\n"
        "k.run(Path(sys.argv[1]), replies, look)\n"
    )
    for size in (3000, 3333, 4001):
        folder = tmp_path / str(size)
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), str(size)],
            env=ENV, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "RecordError" in done.stderr
        assert "cannot be written" in done.stderr
        data = (folder / "state" / "sessions" / "s1.jsonl").read_bytes()
        assert data.endswith(b"\n")
        assert len(data) <= size
        for line in data.splitlines():
            json.loads(line)


@row(46)
def test_late_news_on_a_full_disk_harm_nobody(tmp_path, small_disk):
    hang = k.Hang()

    def slow() -> str:
        hang.wait()
        return "late"

    async def test():
        said: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, what: said.append(what))
        config = {"paths": {"state": str(small_disk)}}
        tool = k.tool(slow, read_only=True, timeout=0.05, retries=0)
        async with (
            k.turns(tmp_path, [k.call("slow"), k.say("x")], tool, **config) as made,
            k.opened(made) as session,
        ):
            await session.run("go")
            fill(small_disk)
            hang.free.set()
            while made.runner.shared.abandoned:  # noqa: ASYNC110 - no event can be recorded
                await asyncio.sleep(0.005)
        assert said == []

    k.go(test)


@row(47)
def test_a_full_disk_under_the_spills_costs_the_spill_and_not_the_turn(tmp_path, small_disk):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "spills").symlink_to(small_disk)
    fill(small_disk)
    made = k.run(tmp_path, [k.call("large"), k.say("done")], large)
    (one,) = made.finished
    assert made.result.answer == "done"
    assert one["kind"] == "ok"
    assert not one["spilled_to"]
    assert "a line of the long report" in one["content"]


# ---- the state folder -----------------------------------------------------------------------------
def command(folder: Path, *options: str, limit: int = 0) -> subprocess.CompletedProcess[str]:
    """`runner run` with a scripted model, perhaps with few files to open."""
    (folder / "script.json").write_text(json.dumps({"replies": [k.say("the answer")]}))

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "runner", "run", "go", "--model", "scripted/script.json", *options],
        cwd=folder, env=ENV, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL, check=False, preexec_fn=few if limit else None,
    )  # fmt: skip


@row(48)
@pytest.mark.parametrize("what", ["a file", "below a file", "not there", "/proc/nowhere/x"])
def test_a_state_folder_that_cannot_be_used_is_one_clear_line(tmp_path, what):
    (tmp_path / "file").write_text("")
    state = {"a file": "file", "below a file": "file/state", "not there": "new/state"}.get(
        what, what
    )
    done = command(tmp_path, "--state", state)
    if what == "not there":
        assert (done.returncode, done.stdout) == (0, "the answer\n"), done.stderr
        assert (tmp_path / "new" / "state").stat().st_mode & 0o077 == 0 or (
            tmp_path / "new" / "state" / "sessions"
        ).stat().st_mode & 0o077 == 0
        return
    assert done.returncode in {1, 2}
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert state in done.stderr


@row(48)
def test_a_state_folder_that_is_read_only_is_one_clear_line(tmp_path, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = command(tmp_path, "--state", str(small_disk))
    assert done.returncode in {1, 2}
    assert "Read-only file system" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@row(48)
def test_a_pipe_in_the_place_of_a_session_is_one_clear_line(tmp_path):
    (tmp_path / ".runner" / "sessions").mkdir(parents=True)
    os.mkfifo(tmp_path / ".runner" / "sessions" / "s1.jsonl")
    done = command(tmp_path, "--session", "s1")
    assert done.returncode == 1
    assert "s1.jsonl: cannot be written (not a regular file)" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@row(48)
def test_a_state_folder_that_is_a_link_to_itself_is_one_clear_line(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    done = command(tmp_path, "--state", "loop")
    assert done.returncode == 1
    assert "loop" in done.stderr
    assert "internal error" not in done.stderr


def test_a_working_directory_that_is_gone_is_one_clear_line(tmp_path):
    gone = "mkdir gone; cd gone; rmdir ../gone; exec $0 -m runner skills list"
    env = {**ENV, "PYTHONPATH": str(Path(__file__).parents[2])}  # without "", which Python looks up
    done = subprocess.run(
        ["sh", "-c", gone, sys.executable],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: the working directory is gone")
    assert len(done.stderr.strip().splitlines()) == 1


# ---- the clock ------------------------------------------------------------------------------------
@row(49)
@pytest.mark.parametrize("jump", [86_400, -86_400])
def test_nothing_depends_on_the_time_of_day(tmp_path, jump):
    code = (
        "import sys, time, itertools, datetime\nimport turn_kit as k\nfrom pathlib import Path\n"
        f"real, jumps = time.time, itertools.count()\n"
        f"time.time = lambda: real() + {jump} * next(jumps)\n"
        "tried = []\n"
        "def flaky(n: int):\n"
        "    tried.append(n)\n"
        "    if len(tried) % 2: raise ConnectionError('reset')\n"
        "    return 'ok'\n"
        "def hangs():\n    time.sleep(9)\n"
        "tools = [k.tool(flaky, idempotent=True), k.tool(hangs, read_only=True, timeout=0.2, retries=0)]\n"
        "replies = [*(k.call('flaky', n=n) for n in range(3)), k.call('hangs'), k.say('done')]\n"
        "made = k.run(Path(sys.argv[1]), replies, *tools, breaker={'failures': 2})\n"
        "assert made.kinds == ['ok', 'ok', 'ok', 'timeout'], made.kinds\n"
        "assert made.result.duration < 10, made.result\n"
        "seqs = [r['seq'] for r in made.records()]\n"
        "assert seqs == sorted(set(seqs))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=ENV, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@row(49)
def test_no_decision_reads_the_time_of_day():
    import ast

    import runner

    root = Path(runner.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "time"
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    ]
    assert [one for one in found if not one.startswith("cli/")] == [], "the doctor may look at it"


# ---- streams, logs, listeners ---------------------------------------------------------------------
@row(76)
def test_a_listener_and_a_log_that_fail_change_nothing(tmp_path):
    class Broken(logging.Handler):
        def emit(self, record):
            raise OSError("the log is gone")

    handler = Broken()
    logging.getLogger("runner").addHandler(handler)

    def listens(_event: Any) -> None:
        raise RuntimeError("the listener is gone")

    async def test():
        async with k.turns(tmp_path, [k.call("look"), k.say("done")], look) as made:
            result = await made.runner.run("go", session="s1", listeners=[listens, made.listen])
            assert result.answer == "done"
            assert made.kinds == ["ok"]

    try:
        k.go(test)
    finally:
        logging.getLogger("runner").removeHandler(handler)


@row(76)
@pytest.mark.parametrize("how", [">&-", "2>&-", ">&- 2>&-", "| true", "<&-", "> /dev/full"])
def test_a_stream_that_is_closed_breaks_no_turn(tmp_path, how):
    (tmp_path / "script.json").write_text(json.dumps({"replies": [k.say("the answer")]}))
    line = f"{sys.executable} -m runner run go --session s1 --model scripted/script.json {how}"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    records = k.lines(tmp_path / ".runner" / "sessions" / "s1.jsonl")
    assert records[-1]["type"] == "turn.finished"
    assert records[-1]["status"] == "completed"


@row(77)
@pytest.mark.parametrize("limit", [64, 20, 8])
def test_few_files_to_open_are_enough_or_one_clear_line(tmp_path, limit):
    done = command(tmp_path, "--session", "s1", limit=limit)
    if limit == 64:
        assert (done.returncode, done.stdout) == (0, "the answer\n"), done.stderr
    else:
        assert done.returncode == 0 or "Traceback" not in done.stderr, done.stderr
    path = tmp_path / ".runner" / "sessions" / "s1.jsonl"
    if path.exists() and path.stat().st_size:
        for line in path.read_bytes().splitlines():
            json.loads(line)


@row(77)
def test_no_thread_left_is_a_result_and_no_crash(tmp_path):
    from runner.calls.worker import Workers

    class NoThread(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    async def test():
        async with k.turns(
            tmp_path, [k.call("look"), k.say("done")], k.tool(look, read_only=True, retries=0)
        ) as made:
            made.runner.shared.workers = Workers(thread=NoThread)
            await k.one_turn(made)
            assert made.kinds == ["unavailable"]
            assert "no thread" in made.finished[0]["content"]

    k.go(test)


@row(50)
def test_two_runners_of_one_process_do_not_share_a_session(tmp_path):
    async def test():
        async with k.turns(tmp_path, [k.say("x")]) as one, k.turns(tmp_path, [k.say("x")]) as two:
            async with k.opened(one):
                with pytest.raises(SessionError, match="in use"):
                    await k.one_turn(two)
            assert (await k.one_turn(two)).answer == "x"

    k.go(test)

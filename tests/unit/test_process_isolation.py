"""Tool calls in worker processes: what crosses, what is kept warm, what is confined."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from process_kit import Kit, open_files

from runner.calls import child, confine, crossing, frames, seccomp, verdict
from runner.calls.process import Processes
from runner.calls.processjob import isolation_of
from runner.calls.worker import outcome_of
from runner.errors import SkillError
from runner.skill import ToolError
from runner.types import Flags, Kind, Raised, Returned, TimedOut, Tool

SKILL = """
import os, sys, time
from runner import SkillContext, ToolError

class Unsure(ValueError):
    pass

def add(a, b): return a + b
def pid(): return os.getpid()
def environment(): return dict(os.environ)
def folder(): return os.getcwd()
def fail(): raise ToolError("no such city", retryable=True)
def unsure(): raise Unsure("which one?")
def broken(): return {}["key"]
def shout():
    print("to stdout"); print("to stderr", file=sys.stderr); os.write(1, b"to fd 1\\n")
def tell(ctx: SkillContext):
    ctx.progress("half"); ctx.log.info("noted", a=1)
    return [ctx.session_id, str(ctx.workspace), ctx.idempotency_key, dict(ctx.env),
            0 < ctx.remaining() < 20, ctx.cancelled(), list(ctx.scopes("net"))]
def move(ctx): ctx.change_directory(ctx.workspace / "deeper")
def files(ctx):
    ctx.write_bytes("a.txt", b"\\x00hello")
    return [str(ctx.path("b.txt", write=True)), ctx.read_bytes("a.txt")[1:].decode(), ctx.stale("c.txt")]
def outside(ctx): return str(ctx.path("../x", write=True))
def big_file(ctx): return len(ctx.read_bytes("big"))
async def later(a):
    import asyncio
    await asyncio.sleep(0)
    return a
def sets(): return {3, 1, 2}
def spoil():
    os.chdir("/"); os.environ.clear(); os.environ["X"] = "1"
def sleep(seconds): time.sleep(seconds); return seconds
def needs(a, b): return 1
"""


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, SKILL)


def test_a_result_crosses_and_the_worker_stays_warm(kit: Kit) -> None:
    async def test() -> None:
        assert await kit.call("add", a=1, b=2) == Returned(3)
        first, second = await kit.call("pid"), await kit.call("pid")
        assert first == second != Returned(os.getpid())
        assert kit.processes.count == 1

    kit.run(test)


def test_coroutines_are_awaited_and_odd_values_become_text(kit: Kit) -> None:
    async def test() -> None:
        assert await kit.call("later", a=[1]) == Returned([1])
        assert await kit.call("sets") == Returned("[1,2,3]")

    kit.run(test)


def test_exceptions_keep_their_name_class_text_and_place(kit: Kit) -> None:
    async def test() -> None:
        failed = await kit.call("fail")
        assert isinstance(failed, Raised)
        assert isinstance(failed.error, ToolError)
        assert failed.error.retryable
        assert str(failed.error) == "no such city"
        unsure = await kit.call("unsure")
        assert isinstance(unsure, Raised)
        assert isinstance(unsure.error, ValueError)
        assert (type(unsure.error).__name__, str(unsure.error)) == ("Unsure", "which one?")
        broken = await kit.call("broken")
        line = SKILL.splitlines().index('def broken(): return {}["key"]') + 1
        assert broken is not None
        ruling = verdict.rule(kit.tool("broken"), broken, verdict.Limit(1, "a limit"))
        assert ruling.kind is Kind.CRASHED
        assert f"KeyError: 'key' (skill.py, line {line})" in ruling.text

    kit.run(test)


def test_the_context_is_the_same_as_in_a_thread(kit: Kit) -> None:
    async def test() -> None:
        job = kit.submit("tell", env={"TOKEN": "t"})
        assert await job.future == Returned(
            ["s1", str(kit.workspace), "key-1", {"TOKEN": "t"}, True, False, ["api.example.com"]]
        )
        assert kit.progress == ["half"]
        again = await kit.call("tell", env={"TOKEN": "other"})
        assert isinstance(again, Returned)
        assert again.value[3] == {"TOKEN": "other"}
        moving = kit.submit("move")
        await moving.future
        assert moving.moved_to == kit.workspace / "deeper"

    kit.run(test)


def test_files_are_asked_of_the_runner(kit: Kit) -> None:
    async def test() -> None:
        assert await kit.call("files") == Returned(
            [str(kit.workspace / "b.txt"), "hello", "it was never read"]
        )
        assert kit.files.asked == ["write a.txt", "path b.txt True", "read a.txt"]
        refused = await kit.call("outside")
        assert isinstance(refused, Raised)
        assert isinstance(refused.error, ToolError)
        assert "outside the workspace" in str(refused.error)

    kit.run(test)


def test_a_file_too_large_to_cross_is_a_failure_that_says_so(kit: Kit) -> None:
    (kit.workspace / "big").write_bytes(b"x" * frames.MAX_BYTES)

    async def test() -> None:
        refused = await kit.call("big_file")
        assert isinstance(refused, Raised)
        assert "too large to be handed" in str(refused.error)
        assert await kit.call("add", a=1, b=1) == Returned(2)

    kit.run(test)


def test_what_is_printed_belongs_to_its_call(kit: Kit) -> None:
    async def test() -> None:
        await kit.call("shout")
        assert sorted("".join(kit.output).splitlines()) == ["to fd 1", "to stderr", "to stdout"]
        kit.output.clear()
        await kit.call("add", a=1, b=1)
        assert kit.output == []

    kit.run(test)


def test_a_worker_sees_only_a_clean_environment_and_what_was_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNER_TEST_SECRET", "sesame")
    kit = Kit(tmp_path, SKILL)

    async def test() -> None:
        seen = await kit.call("environment", env={"GRANTED": "yes"})
        assert isinstance(seen, Returned)
        assert seen.value["GRANTED"] == "yes"
        assert "sesame" not in seen.value.values()
        assert set(seen.value) <= {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "GRANTED"}
        after = await kit.call("environment")
        assert isinstance(after, Returned)
        assert "GRANTED" not in after.value

    kit.run(test)


def test_folder_and_environment_are_put_right_after_each_call(kit: Kit) -> None:
    async def test() -> None:
        pid = await kit.call("pid")
        await kit.call("spoil")
        assert await kit.call("folder") == Returned(str(kit.workspace))
        seen = await kit.call("environment")
        assert isinstance(seen, Returned)
        assert "PATH" in seen.value
        assert "X" not in seen.value
        assert await kit.call("pid") == pid

    kit.run(test)


def test_calls_that_overlap_get_a_worker_each(kit: Kit) -> None:
    async def test() -> None:
        await kit.call("add", a=1, b=1)
        jobs = [kit.submit("sleep", seconds=0.2) for _ in range(3)]
        assert [await job.future for job in jobs] == [Returned(0.2)] * 3
        assert kit.processes.count == 3

    kit.run(test)


def test_a_new_version_runs_in_a_new_worker_and_an_old_call_keeps_its_own(kit: Kit) -> None:
    async def test() -> None:
        old = kit.submit("sleep", seconds=0.2)
        old_tool = kit.tool("add")
        kit.write("def add(a, b): return 'new'\n")
        assert await kit.call("add", a=1, b=2) == Returned("new")
        assert await old.future == Returned(0.2)
        job = kit.processes.submit(
            old_tool, {"a": 1, "b": 2}, kit.context(), timeout=10, strict=False
        )
        assert await job.future == Returned(3)

    kit.run(test)


def test_an_edited_skill_leaves_no_worker_of_its_older_versions(kit: Kit) -> None:
    async def test() -> None:
        for number in range(6):
            kit.write(f"def add(a, b): return {number}\n")
            assert await kit.call("add", a=1, b=2) == Returned(number)
            slow = kit.submit("add", a=1, b=2)
            kit.write("def add(a, b): return 'newer'\n")
            assert await kit.call("add", a=1, b=2) == Returned("newer")
            assert await slow.future == Returned(number)
        await kit.until(lambda: kit.processes.count == 1)

    kit.run(test)


def test_the_bytes_of_the_snapshot_run_whatever_the_disk_says(kit: Kit) -> None:
    (kit.folder / "skill.py").write_text("this is not Python")

    async def test() -> None:
        assert await kit.call("add", a=1, b=2) == Returned(3)

    kit.run(test)


def test_a_skill_that_cannot_be_loaded_is_a_skill_error(tmp_path: Path) -> None:
    kit = Kit(tmp_path, "import nothing_of_that_name\ndef f(): return 1\n")

    async def test() -> None:
        failed = await kit.call("f")
        assert isinstance(failed, Raised)
        assert isinstance(failed.error, SkillError)
        assert "skill.py:1" in str(failed.error)

    kit.run(test)


def test_a_tool_without_code_is_refused(kit: Kit) -> None:
    tool = Tool(name="t", description="", parameters={}, load=lambda: pytest.fail("loaded"))

    async def test() -> None:
        job = kit.processes.submit(tool, {}, kit.context(), timeout=1, strict=False)
        outcome = await job.future
        assert isinstance(outcome, Raised)
        assert isinstance(outcome.error, SkillError)

    kit.run(test)


def test_began_is_when_the_function_began(kit: Kit) -> None:
    async def test() -> None:
        submitted = time.monotonic()
        job = kit.submit("sleep", seconds=0.01)
        assert job.began is None
        await job.future
        assert job.began is not None
        assert job.began > submitted
        warm = kit.submit("sleep", seconds=0.01)
        assert warm.began is not None
        await warm.future

    kit.run(test)


def test_it_works_with_the_deadline_of_a_thread_call(kit: Kit) -> None:
    async def test() -> None:
        await kit.call("add", a=1, b=1)
        began = time.monotonic()
        job = kit.submit("sleep", seconds=30, timeout=None)
        assert await outcome_of(job, 0.2, 1.0) == TimedOut(ended=True)
        assert time.monotonic() - began < 1.2
        assert not job.abandoned
        assert kit.processes.count == 0

    kit.run(test)


def test_cancelling_ends_the_worker_first(kit: Kit) -> None:
    async def test() -> None:
        pid = (await kit.call("pid")).value  # type: ignore[union-attr]
        job = kit.submit("sleep", seconds=30)
        job.abandon(None)
        assert job.abandoned
        assert await job.future is None
        assert not job.abandoned
        assert not _runs(pid)

    kit.run(test)


def test_a_call_cancelled_while_its_worker_starts_never_begins(kit: Kit) -> None:
    async def test() -> None:
        job = kit.submit("sleep", seconds=30)
        job.abandon(None)
        assert await job.future is None
        assert job.began is None
        assert await kit.call("add", a=1, b=1) == Returned(2)

    kit.run(test)


def test_who_stops_waiting_hears_of_the_end(kit: Kit) -> None:
    async def test() -> None:
        await kit.call("add", a=1, b=1)
        job = kit.submit("sleep", seconds=30)
        waiting = asyncio.create_task(asyncio.wait_for(job.future, 0.05))
        with pytest.raises(TimeoutError):
            await waiting
        late: list[object] = []
        heard = asyncio.Event()
        job.on_late = lambda outcome: (late.append(outcome), heard.set())[1]
        job.abandon(None)
        await asyncio.wait_for(heard.wait(), 2)
        assert late == [TimedOut(ended=True)]

    kit.run(test)


def test_a_lock_that_comes_too_late_is_given_back(kit: Kit) -> None:
    async def test() -> None:
        await kit.call("add", a=1, b=1)
        kit.files.answering.clear()
        job = kit.submit("outside")
        await kit.until(lambda: kit.files.asked)
        job.abandon(None)
        assert await job.future is None
        released = kit.files.released
        kit.files.answering.set()
        await kit.until(lambda: kit.files.released > released)

    kit.run(test)


def test_workers_end_when_idle_and_after_their_share(tmp_path: Path) -> None:
    kit = Kit(tmp_path, SKILL, idle_seconds=0.1, recycle_after=2)

    async def test() -> None:
        first = await kit.call("pid")
        assert await kit.call("pid") == first
        assert await kit.call("pid") != first
        await kit.until(lambda: kit.processes.count == 0)

    kit.run(test)


def test_the_successor_of_a_worker_is_started_before_it_is_needed(tmp_path: Path) -> None:
    kit = Kit(tmp_path, SKILL, recycle_after=10)

    async def test() -> None:
        first = await kit.call("pid")
        for _ in range(8):
            assert await kit.call("pid") == first
        await kit.until(lambda: kit.processes.count == 2)
        assert await kit.call("pid") == first
        await kit.until(lambda: kit.processes.count == 1)
        assert await kit.call("pid") != first
        assert kit.processes.count == 1

    kit.run(test)


def test_nothing_is_left_open_in_the_runner(kit: Kit) -> None:
    async def test() -> None:
        await kit.call("add", a=1, b=1)
        before = open_files()
        for _ in range(3):
            await kit.call("sleep", seconds=30, timeout=0.02)
        await kit.call("add", a=1, b=1)
        after = open_files()
        assert after <= before

    kit.run(test)


def test_closing_is_quick_and_final(kit: Kit) -> None:
    async def test() -> None:
        await kit.call("add", a=1, b=1)
        busy = kit.submit("sleep", seconds=30)
        starting = kit.submit("sleep", seconds=30)
        began = time.monotonic()
        await kit.processes.close()
        assert time.monotonic() - began < 1.2
        assert isinstance(await busy.future, Raised)
        assert isinstance(await starting.future, Raised)
        assert kit.processes.count == 0
        assert isinstance(await kit.call("add", a=1, b=1), Raised)

    kit.run(test)


# ---- confinement

STRICT = """
import os, socket, subprocess, ctypes, signal, sys
def read(path): return open(path).read(20)
def write(path): open(path, "w").write("x"); return "written"
def tcp(): socket.create_connection(("127.0.0.1", 9), 1)
def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def unix(path):
    s = socket.socket(socket.AF_UNIX); s.connect(path)
def run(): return subprocess.run(["/bin/sh", "-c", "echo hi"], capture_output=True, text=True).stdout
def kill(pid): os.kill(pid, 0)
def chmod(path): os.chmod(path, 0o777)
def times(path): os.utime(path)
def trace(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0) != 0: raise OSError(ctypes.get_errno(), "ptrace")
def namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) != 0: raise OSError(ctypes.get_errno(), "unshare")
def memory(): return len(bytearray(3 << 30))
def libraries():
    import ssl, sqlite3, hashlib, zoneinfo, asyncio, multiprocessing, decimal
    return sqlite3.connect(":memory:").execute("select 1").fetchone()[0]
async def loop(): return 1
def link(ctx): os.symlink("/etc", ctx.workspace / "out"); return open(ctx.workspace / "out/passwd").read(4)
def through(ctx): return ctx.read_bytes("in.txt").decode()
def replace(ctx):
    p = ctx.workspace / "n.txt"; t = ctx.workspace / "t"; t.write_text("v"); os.replace(t, p); os.truncate(p, 0)
    os.mkdir(ctx.workspace / "d"); os.rename(p, ctx.workspace / "d/n.txt"); return "ok"
"""


@pytest.fixture(params=["landlock+seccomp", "bwrap"])
def strict(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    kit = Kit(tmp_path, STRICT)
    if fault := child.fault_of(request.param):
        pytest.skip(fault)
    kit.processes._level = request.param, ""
    (kit.workspace / "in.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("secret")
    return kit


async def _denied(kit: Kit, function: str, *permissions: str, **arguments: object) -> bool:
    """Refused, or not even there: bubblewrap shows nothing of what is not allowed."""
    outcome = await kit.call(function, *permissions, strict=True, **arguments)
    assert isinstance(outcome, Raised), outcome
    absent = FileNotFoundError | ProcessLookupError
    return isinstance(outcome.error, PermissionError | absent) or "Read-only" in str(outcome.error)


def test_a_strict_call_reads_only_itself_and_python(strict: Kit, tmp_path: Path) -> None:
    async def test() -> None:
        own = await strict.call("read", strict=True, path=str(strict.folder / "skill.py"))
        assert isinstance(own, Returned)
        assert await strict.call("libraries", strict=True) == Returned(1)
        assert await strict.call("loop", strict=True) == Returned(1)
        for path in (
            "/etc/passwd",
            tmp_path / "secret.txt",
            strict.workspace / "in.txt",
            f"/proc/{os.getpid()}/environ",
        ):
            assert await _denied(strict, "read", path=str(path)), path
        for path in (strict.workspace / "new", strict.folder / "skill.py", "/tmp/runner-escape"):
            assert await _denied(strict, "write", path=str(path)), path
        refused = await strict.call("through", strict=True)
        assert isinstance(refused, Raised)
        assert "fs.read" in str(refused.error)

    strict.run(test)


def test_a_strict_call_reaches_nobody(strict: Kit, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        async def test() -> None:
            assert await _denied(strict, "tcp")
            assert await _denied(strict, "udp")
            assert await _denied(strict, "unix", path=str(path))
            assert await _denied(strict, "unix", "net", path=str(path))
            assert await _denied(strict, "run")
            assert await _denied(strict, "kill", pid=os.getpid())
            assert await _denied(strict, "trace", pid=os.getpid())
            assert await _denied(strict, "namespace")
            assert await _denied(strict, "chmod", "fs.write", path=str(tmp_path / "secret.txt"))
            assert await _denied(strict, "times", "fs.write", path=str(tmp_path / "secret.txt"))

        strict.run(test)


def test_a_strict_call_gets_what_its_manifest_asks_for_and_no_more(
    strict: Kit, tmp_path: Path
) -> None:
    inside = str(strict.workspace / "in.txt")

    async def test() -> None:
        assert await strict.call("read", "fs.read", strict=True, path=inside) == Returned("inside")
        assert await strict.call("through", "fs.read", strict=True) == Returned("inside")
        assert await _denied(strict, "write", "fs.read", path=inside)
        assert await strict.call("write", "fs.write", strict=True, path=inside) == Returned(
            "written"
        )
        assert await strict.call("replace", "fs.write", strict=True) == Returned("ok")
        assert await _denied(strict, "write", "fs.write", path=str(tmp_path / "secret.txt"))
        assert await _denied(strict, "link", "fs.write")
        assert await strict.call("run", "exec", strict=True) == Returned("hi\n")
        assert await strict.call("udp", "net", strict=True) == Returned(None)
        refused = await strict.call("tcp", "net", strict=True)
        assert isinstance(refused, Raised)
        assert isinstance(refused.error, ConnectionRefusedError)
        assert await _denied(strict, "read", "net", "exec", path="/etc/passwd")

    strict.run(test)


def test_other_terms_mean_another_worker(strict: Kit) -> None:
    async def test() -> None:
        await strict.call("libraries", strict=True)
        await strict.call("libraries", "net", strict=True)
        await strict.call("libraries")
        assert strict.processes.count == 3

    strict.run(test)


def test_strict_is_refused_where_nothing_confines(tmp_path: Path) -> None:
    kit = Kit(tmp_path, SKILL)
    kit.processes._level = "process", "landlock+seccomp: not here"

    async def test() -> None:
        refused = await kit.call("add", strict=True, a=1, b=2)
        assert isinstance(refused, Raised)
        assert isinstance(refused.error, SkillError)
        assert "landlock+seccomp: not here" in str(refused.error)
        assert await kit.call("add", a=1, b=2) == Returned(3)

    kit.run(test)


def test_the_level_is_probed_once() -> None:
    processes = Processes(environ={})
    first = processes.level()
    began = time.perf_counter()
    assert processes.level() == first
    assert time.perf_counter() - began < 0.01


@pytest.mark.parametrize(
    ("scope", "place"),
    [
        ("", "."),
        ("docs/**", "docs"),
        ("docs/a.md", "docs/a.md"),
        ("docs/new/x", "docs"),
        ("../..", "."),
        ("/etc", "."),
        ("out/**", "."),
        ("*", "."),
    ],
)
def test_a_scope_opens_the_part_of_the_workspace_it_names(
    tmp_path: Path, scope: str, place: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").touch()
    (tmp_path / "out").symlink_to("/etc")
    needs = [f"fs.write:{scope}" if scope else "fs.write"]
    writable = confine.terms_of(needs, "/skill", str(tmp_path)).writable
    assert writable == ("/dev/null", str((tmp_path / place).resolve()))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("network", [True, False])
def test_every_jump_of_the_filter_lands_inside_it(machine: str, network: bool) -> None:
    code = seccomp.build(network=network, own_pid=7, truncate=True, machine=machine)
    assert len(code) < 4096
    for here, (operation, yes, no, _value) in enumerate(code):
        if operation & 7 == 5:
            assert here + 1 + max(yes, no) < len(code)
    assert code[-1][0] == 6


# ---- frames and exceptions


def test_frames_are_cut_from_any_chunks() -> None:
    sent = [{"a": 1}, {"b": "é\ud800"}, {"c": list(range(50))}]
    stream = b"".join(frames.pack(message) for message in sent)
    for size in (1, 3, 7, len(stream)):
        splitter = frames.Splitter()
        found = [
            frames.unpack(body)
            for start in range(0, len(stream), size)
            for body in splitter.feed(stream[start : start + size])
        ]
        assert found == sent


def test_a_frame_over_the_cap_is_refused_on_both_sides() -> None:
    with pytest.raises(frames.FrameTooLarge):
        frames.pack({"a": "x" * frames.MAX_BYTES})
    with pytest.raises(frames.FrameTooLarge):
        frames.Splitter().feed(frames.HEADER.pack(frames.MAX_BYTES + 1))


@pytest.mark.parametrize("body", [b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        frames.unpack(body)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ToolError("a", retryable=True), ToolError),
        (ConnectionResetError(104, "reset"), ConnectionError),
        (TimeoutError("late"), TimeoutError),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), ValueError),
        (FileNotFoundError(2, "No such file", "x"), FileNotFoundError),
        (KeyError("k"), KeyError),
        (SystemExit(3), Exception),
        (StopIteration(1), Exception),
        (ExceptionGroup("several", [ValueError("a")]), Exception),
        (SkillError("broken"), SkillError),
    ],
)
def test_an_exception_is_rebuilt_alike(error: BaseException, kind: type[BaseException]) -> None:
    rebuilt = crossing.rebuild(crossing.describe(error))
    assert isinstance(rebuilt, kind)
    assert type(rebuilt).__name__ == type(error).__name__
    assert str(rebuilt) == str(error)


@pytest.mark.parametrize(
    "data",
    [
        {},
        None,
        {"types": ["eval"], "name": "no name", "line": "x"},
        {"line": 3, "file": "\ud800\0"},
    ],
)
def test_nonsense_from_a_worker_is_rebuilt_as_some_exception(data: object) -> None:
    assert isinstance(crossing.rebuild(data), Exception)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_threads_do_not_pile_up(kit: Kit) -> None:
    async def test() -> None:
        await asyncio.gather(*(kit.call("add", a=1, b=1) for _ in range(4)))
        assert threading.active_count() < 16

    kit.run(test)


@pytest.mark.parametrize(
    ("asked", "origin", "stuck", "where"),
    [
        ("auto", "project", 0, "thread"),
        ("auto", "installed", 0, "process"),
        ("auto", "project", 3, "process"),
        ("thread", "installed", 9, "thread"),
        ("process", "project", 0, "process"),
        ("strict", "project", 0, "strict"),
    ],
)
def test_where_a_tool_runs(tmp_path: Path, asked: Any, origin: Any, stuck: int, where: str) -> None:
    tool = replace(Kit(tmp_path, SKILL).tool("add"), origin=origin, flags=Flags(isolation=asked))
    assert isolation_of(tool, stuck) == where


def test_a_tool_without_code_stays_in_a_thread() -> None:
    tool = Tool(name="t", description="", parameters={}, load=lambda: pytest.fail("loaded"))
    assert isolation_of(tool, stuck=9) == "thread"


def test_flags_are_what_the_terms_come_from() -> None:
    assert Flags().permissions == ()
    assert confine.terms_of((), "/skill", "/work").writable == ("/dev/null",)
    assert not confine.terms_of(("env:X",), "/skill", "/work").network

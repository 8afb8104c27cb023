"""The fault list in process mode: whatever a skill does to its process, the call has one outcome."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from process_kit import Kit

from runner.calls import verdict
from runner.calls.crossing import ResultTooLarge, WorkerDied
from runner.types import Kind, Raised, Returned, TimedOut

SKILL = """
import asyncio, ctypes, os, re, signal, socket, subprocess, sys, threading, time

def ok(): return "ok"
def pid(): return os.getpid()
def sleep(): time.sleep(60)
def holds_the_gil(): re.match(r"(a+)+$", "a" * 40 + "b")
def swallows():
    while True:
        try: time.sleep(1)
        except BaseException: pass
def ignores_signals():
    for n in range(1, 32):
        if n not in (9, 19, 17): signal.signal(n, signal.SIG_IGN)
    time.sleep(60)
def own_timeout(): raise TimeoutError("mine")
def own_cancel(): raise asyncio.CancelledError("mine")
def leaves(): sys.exit(4)
def interrupts(): raise KeyboardInterrupt
def generator_exit(): raise GeneratorExit
def stop(): raise StopIteration(1)
class Odd(BaseException): pass
def odd(): raise Odd("strange")
def exits(): os._exit(3)
def aborts(): os.abort()
def faults(): ctypes.string_at(0)
def kills_itself(): os.kill(os.getpid(), signal.SIGKILL)
def terminates_itself(): os.kill(os.getpid(), signal.SIGTERM)
def recurses(): return recurses()
def through_c(): return list(map(lambda _: through_c(), [1]))
def overflows(): sys.setrecursionlimit(10**8); return through_c()
def raises_memory(): raise MemoryError
def takes_memory(): return len(bytearray(6 << 30))
def forks():
    os.fork(); return os.getpid()
def daemon(path):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(path, "w").write(str(os.getpid()))
            time.sleep(60)
        os._exit(0)
    while not os.path.exists(path) or not open(path).read(): time.sleep(0.01)
    return "begun"
def daemon_then(path, how):
    daemon(path)
    if how == "sleep": time.sleep(60)
    if how == "crash": ctypes.string_at(0)
def program(path):
    child = subprocess.Popen(["/bin/sh", "-c", "setsid sleep 60 & echo $! > " + path + "; wait"], env={})
    while not os.path.exists(path) or not open(path).read(): time.sleep(0.01)
    return child.pid
def threads():
    for _ in range(50): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
def open_files(): globals()["kept"] = [open("/dev/null") for _ in range(50)]
def not_daemon(): threading.Thread(target=time.sleep, args=(60,)).start(); return "ok"
def exit_handler():
    import atexit; atexit.register(time.sleep, 60); return "ok"
def big_text(): return "x" * (9 << 20)
def big_list(): return [0] * 10_000_000
def nested(): return {"rows": ["y" * 1000] * 9000}
def huge(): return "x" * (1 << 30)
class Evil:
    def __repr__(self): raise ValueError("no")
def evil(): return Evil()
def circular():
    a = []; a.append(a); return a
def nan(): return float("nan")
def big_int(): return 10 ** 5000
def keys(): return {(1, 2): 3}
def surrogate(): return "\\\\ud800"
def raw(): return b"\\\\x00\\\\x01"
def evil_error():
    class Bad(Exception):
        def __str__(self): raise RuntimeError
    raise Bad
def nothing(): return None
def empty(): return ""
async def coroutine(): return 1
def gives_coroutine(): return coroutine()
def generator(): yield from range(3)
def endless():
    while True: yield 1
async def async_generator():
    for i in range(3): yield i
def prints():
    for _ in range(10_000): print("z" * 1000)
    return "ok"
def closes_stdout(): os.close(1); return "ok"
def closes_all(): os.closerange(0, 256); return "ok"
def replaces_stdout(): sys.stdout = None; return "ok"
def line():
    import gc
    return next(o for o in gc.get_objects() if type(o) is socket.socket)
def forges(call):
    import json, struct
    body = json.dumps({"id": call, "kind": "returned", "value": "forged"}).encode()
    line().sendall(struct.pack("!I", len(body)) + body)
    time.sleep(60)
def early():
    import json, struct
    def later():
        time.sleep(0.1)
        body = json.dumps({"id": "0", "kind": "returned", "value": "early"}).encode()
        line().sendall(struct.pack("!I", len(body)) + body)
    threading.Thread(target=later, daemon=True).start()
    return "ok"
def garbage(): line().sendall(b"GET / HTTP/1.1\\\\r\\\\n\\\\r\\\\n"); time.sleep(60)
def not_json(): line().sendall(b"\\\\0\\\\0\\\\0\\\\3abc"); time.sleep(60)
def asks_twice(ctx):
    import json, struct
    body = json.dumps({"id": ctx._files._call, "kind": "files", "what": "path", "name": "a", "write": True}).encode()
    line().sendall((struct.pack("!I", len(body)) + body) * 50)
    time.sleep(60)
def hangs_up(): line().close(); return "ok"
def kills_keeper(): os.kill(os.getppid(), 9); time.sleep(60)
def stops_keeper(): os.kill(os.getppid(), signal.SIGSTOP); time.sleep(60)
def burns():
    while True: pass
""".replace("\\\\", "\\")


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, SKILL)


def died(outcome: object) -> str:
    """How the worker died."""
    assert isinstance(outcome, Raised), outcome
    assert isinstance(outcome.error, WorkerDied), repr(outcome.error)
    return str(outcome.error)


def gone(pid: int) -> bool:
    """True once the process does not run; a zombie that its new parent will collect does not."""
    until = time.monotonic() + 2
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    "function", ["sleep", "holds_the_gil", "swallows", "ignores_signals", "stops_keeper", "burns"]
)
def test_a_hang_ends_at_its_deadline_and_the_next_call_works(kit: Kit, function: str) -> None:
    async def test() -> None:
        pid = (await kit.call("pid")).value  # type: ignore[union-attr]
        began = time.monotonic()
        assert await kit.call(function, timeout=0.2) == TimedOut(ended=True)
        assert time.monotonic() - began < 1.4
        assert gone(pid)
        assert await kit.call("ok") == Returned("ok")

    kit.run(test)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("own_timeout", "TimeoutError"),
        ("own_cancel", "CancelledError"),
        ("leaves", "SystemExit"),
        ("interrupts", "KeyboardInterrupt"),
        ("generator_exit", "GeneratorExit"),
        ("stop", "StopIteration"),
        ("odd", "Odd"),
        ("recurses", "RecursionError"),
        ("raises_memory", "MemoryError"),
        ("takes_memory", "MemoryError"),
        ("huge", "MemoryError"),
        ("evil_error", "Bad"),
    ],
)
def test_whatever_is_raised_is_a_value_and_the_worker_goes_on(
    kit: Kit, function: str, name: str
) -> None:
    async def test() -> None:
        outcome = await kit.call(function)
        assert isinstance(outcome, Raised)
        assert type(outcome.error).__name__ == name
        assert isinstance(outcome.error, Exception)
        assert kit.processes.count == 1
        assert await kit.call("ok") == Returned("ok")

    kit.run(test)


@pytest.mark.parametrize(
    ("function", "how"),
    [
        ("exits", "exit code 3"),
        ("aborts", "signal SIGABRT"),
        ("faults", "signal SIGSEGV"),
        ("kills_itself", "signal SIGKILL"),
        ("terminates_itself", "signal SIGTERM"),
        ("kills_keeper", "signal SIGKILL"),
        ("closes_all", "exit code 0"),
        ("hangs_up", "exit code 0"),
    ],
)
def test_a_dead_worker_is_an_outcome_that_says_how(kit: Kit, function: str, how: str) -> None:
    async def test() -> None:
        assert died(await kit.call(function)) == f"worker died with {how}"
        assert await kit.call("ok") == Returned("ok")

    kit.run(test)


def test_a_stack_that_overflows_ends_the_worker_at_most(kit: Kit) -> None:
    async def test() -> None:
        outcome = await kit.call("overflows")
        assert isinstance(outcome, Raised)
        assert isinstance(outcome.error, WorkerDied | RecursionError | MemoryError)
        assert await kit.call("ok") == Returned("ok")

    kit.run(test)


def test_a_forked_copy_of_the_worker_does_not_answer(kit: Kit) -> None:
    async def test() -> None:
        pid = await kit.call("pid")
        assert await kit.call("forks") == pid
        assert await kit.call("pid") == pid

    kit.run(test)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a subreaper")
@pytest.mark.parametrize("how", ["sleep", "crash", "close"])
def test_a_daemon_ends_with_its_worker(kit: Kit, tmp_path: Path, how: str) -> None:
    path = tmp_path / "daemon.pid"

    async def test() -> None:
        await kit.call("daemon_then", path=str(path), how=how, timeout=1.0)

    kit.run(test)
    assert gone(int(path.read_text()))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a subreaper")
def test_a_program_that_left_its_session_ends_with_the_worker(kit: Kit, tmp_path: Path) -> None:
    path = tmp_path / "program.pid"

    async def test() -> None:
        assert isinstance(await kit.call("program", path=str(path)), Returned)

    kit.run(test)
    assert gone(int(path.read_text()))


@pytest.mark.parametrize("function", ["threads", "open_files", "closes_stdout", "replaces_stdout"])
def test_a_worker_that_was_left_in_a_bad_state_is_replaced(kit: Kit, function: str) -> None:
    async def test() -> None:
        pid = await kit.call("pid")
        assert isinstance(await kit.call(function), Returned)
        assert await kit.call("pid") != pid

    kit.run(test)


@pytest.mark.parametrize("function", ["not_daemon", "exit_handler"])
def test_what_hangs_at_exit_does_not_hold_up_closing(kit: Kit, function: str) -> None:
    async def test() -> None:
        assert await kit.call(function) == Returned("ok")
        began = time.monotonic()
        await kit.processes.close()
        assert time.monotonic() - began < 1.0

    kit.run(test)


@pytest.mark.parametrize("function", ["big_text", "big_list", "nested"])
def test_a_result_over_the_cap_is_refused_with_its_size(kit: Kit, function: str) -> None:
    async def test() -> None:
        outcome = await kit.call(function)
        assert isinstance(outcome, Raised)
        assert isinstance(outcome.error, ResultTooLarge)
        ruling = verdict.rule(kit.tool(function), outcome, verdict.Limit(1, "a limit"))
        assert ruling.kind is Kind.BAD_RESULT
        assert "at most 8,388,608" in ruling.text
        assert await kit.call("ok") == Returned("ok")

    kit.run(test)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("evil", "unprintable Evil"),
        ("circular", "contains itself"),
        ("nan", ""),
        ("big_int", "integer of about"),
        ("keys", "3"),
        ("surrogate", ""),
        ("raw", "binary data"),
        ("generator", "[0,1,2]"),
        ("endless", "only the first 10000"),
    ],
)
def test_an_odd_result_is_described(kit: Kit, function: str, text: str) -> None:
    async def test() -> None:
        outcome = await kit.call(function)
        assert isinstance(outcome, Returned)
        assert text in str(outcome.value)

    kit.run(test)


def test_nothing_is_nothing_and_coroutines_are_awaited(kit: Kit) -> None:
    async def test() -> None:
        assert await kit.call("nothing") == Returned(None)
        assert await kit.call("empty") == Returned("")
        assert await kit.call("gives_coroutine") == Returned(1)
        assert await kit.call("async_generator") == Returned([0, 1, 2])

    kit.run(test)


def test_ten_megabytes_of_print_are_cut_and_harm_nothing(kit: Kit) -> None:
    async def test() -> None:
        assert await kit.call("prints") == Returned("ok")
        assert "".join(kit.output) == ("z" * 1000 + "\n" + "z" * 999)
        assert await kit.call("ok") == Returned("ok")

    kit.run(test)


def test_a_worker_killed_between_calls_is_replaced_unseen(kit: Kit) -> None:
    async def test() -> None:
        for pause in (0.0, 0.05):
            pid = (await kit.call("pid")).value  # type: ignore[union-attr]
            os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(pause)  # at once, and after the runner had time to notice
            assert await kit.call("ok") == Returned("ok")

    kit.run(test)


def test_a_worker_killed_during_a_call_is_not_started_again(kit: Kit, tmp_path: Path) -> None:
    path = tmp_path / "daemon.pid"

    async def test() -> None:
        pid = (await kit.call("pid")).value  # type: ignore[union-attr]
        job = kit.submit("daemon_then", path=str(path), how="sleep")
        await kit.until(path.exists)
        os.kill(pid, signal.SIGKILL)
        assert died(await job.future) == "worker died with signal SIGKILL"

    kit.run(test)
    assert gone(int(path.read_text()))


@pytest.mark.parametrize("function", ["garbage", "not_json"])
def test_a_worker_that_breaks_the_protocol_is_stopped(kit: Kit, function: str) -> None:
    async def test() -> None:
        assert "cannot be read" in died(await kit.call(function))
        assert await kit.call("ok") == Returned("ok")

    kit.run(test)


def test_an_answer_to_another_call_stops_the_worker(kit: Kit) -> None:
    async def test() -> None:
        assert "belongs to no call" in died(await kit.call("forges", call="0123456789abcdef"))

    kit.run(test)


def test_many_questions_at_once_stop_the_worker(kit: Kit) -> None:
    async def test() -> None:
        threads = threading.active_count()
        assert "may not send now: 'files'" in died(await kit.call("asks_twice"))
        assert threading.active_count() < threads + 5

    kit.run(test)


def test_an_answer_nobody_asked_for_stops_the_worker(kit: Kit) -> None:
    async def test() -> None:
        pid = await kit.call("pid")
        assert await kit.call("early") == Returned("ok")
        await kit.until(lambda: kit.processes.count == 0)
        assert await kit.call("pid") != pid

    kit.run(test)


def test_a_skill_that_always_crashes_is_begun_less_often(kit: Kit) -> None:
    async def test() -> None:
        began = time.monotonic()
        for _ in range(4):
            died(await kit.call("exits"))
        assert time.monotonic() - began > 0.3  # 0, 0, 0.1 and 0.2 seconds of pause
        assert await kit.call("ok") == Returned("ok")

    kit.run(test)


def test_processor_time_is_bounded_too(tmp_path: Path) -> None:
    kit = Kit(tmp_path, SKILL, cpu_seconds=1)

    async def test() -> None:
        assert died(await kit.call("burns", timeout=None)).endswith(("SIGXCPU", "SIGKILL"))

    kit.run(test)


def test_workers_end_when_the_runner_is_killed(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from process_kit import Kit
kit = Kit(Path(sys.argv[3]), "import os, time\\ndef pid(): return os.getpid()\\ndef burn():\\n while True: pass")
async def main():
    pid = (await kit.call("pid")).value
    kit.submit("burn")
    await asyncio.sleep(0.05)
    print(pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    here = Path(__file__).parent.parent
    host = subprocess.Popen(
        [sys.executable, "-c", program, str(here), str(here.parent), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    with host.stdout:
        pid = int(host.stdout.readline())
        host.kill()
        host.wait(5)
    assert gone(pid)


def test_strict_calls_have_the_same_outcomes(kit: Kit) -> None:
    if kit.processes.level() == "process":
        pytest.skip("this machine confines nothing")

    async def test() -> None:
        assert died(await kit.call("faults", strict=True)) == "worker died with signal SIGSEGV"
        assert await kit.call("sleep", strict=True, timeout=0.2) == TimedOut(ended=True)
        refused = await kit.call("kills_keeper", strict=True, timeout=5)
        assert isinstance(refused, Raised)
        assert isinstance(refused.error, PermissionError)
        assert await kit.call("ok", strict=True) == Returned("ok")

    kit.run(test)

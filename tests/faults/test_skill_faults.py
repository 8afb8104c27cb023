"""The fault list, rows 15–36 inside the host's process: whatever a skill does, its call has one result."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import turn_kit as k
from skill_kit import one_tool, write

from runner import SkillContext

row = pytest.mark.row
TESTS = Path(__file__).parent.parent
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def outcome(tmp_path: Path, function: Any, **flags: Any) -> dict[str, Any]:
    """What one call of a function comes to; the turn goes on whatever that is."""
    tool = k.tool(function, **{"retries": 0, **flags})
    made = k.run(tmp_path, [k.call(function.__name__), k.say("went on")], tool)
    assert made.result.answer == "went on"
    assert made.all_valid()
    (one,) = made.finished
    return one


def host(code: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """A host program of its own, for skills that may take it down."""
    return subprocess.run(
        [sys.executable, "-c", "import turn_kit as k\nfrom pathlib import Path\nimport sys\n" + code, *arguments],
        env=ENV, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def command(
    folder: Path, body: str, *options: str, tool: str = "act"
) -> subprocess.CompletedProcess[str]:
    """`runner run` with one skill that is called once."""
    write(
        folder / "skills",
        one_tool(tool, body, flags="read_only = true\nretries = 0\ntimeout = 0.3"),
    )
    (folder / "script.json").write_text(
        json.dumps({"replies": [k.call(tool), k.say("the answer")]})
    )
    return subprocess.run(
        [sys.executable, "-m", "runner", "run", "go", "--model", "scripted/script.json", *options],
        cwd=folder, env=ENV, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


# ---- hangs ----------------------------------------------------------------------------------------
@row(15)
@pytest.mark.parametrize(
    "body",
    ["import time\ndef act(): time.sleep(60)", "import time\nasync def act(): time.sleep(60)"],
)
def test_a_call_that_sleeps_for_ever_holds_neither_the_turn_nor_the_exit(tmp_path, body):
    began = time.monotonic()
    done = command(tmp_path, body)
    assert (done.returncode, done.stdout) == (0, "the answer\n"), done.stderr
    assert time.monotonic() - began < 20


@row(16)
def test_a_call_that_holds_the_interpreter_ends_with_it_and_the_turn_goes_on(tmp_path):
    def holds() -> str:
        re.match(r"(a+)+$", "a" * 22 + "b")
        return "over"

    assert outcome(tmp_path, holds, read_only=True, timeout=0.1)["kind"] in {"timeout", "ok"}


@row(17)
def test_a_loop_that_swallows_everything_is_left_behind(tmp_path):
    free = threading.Event()

    def swallows() -> str:
        while not free.is_set():
            try:
                free.wait(0.01)
                raise KeyboardInterrupt
            except BaseException:
                pass
        return "late"

    assert outcome(tmp_path, swallows, read_only=True, timeout=0.05)["kind"] == "timeout"
    free.set()


@row(33)
def test_an_async_call_that_blocks_is_named_and_stalls_no_other(tmp_path):
    hang = k.Hang()

    async def blocks() -> str:
        hang.wait()
        return "late"

    async def quick() -> str:
        return "quick"

    batch = [k.call("blocks"), k.call("quick"), k.say("went on")]
    made = k.run(tmp_path, batch, k.tool(blocks, read_only=True, timeout=0.05, retries=0), quick)
    hang.free.set()
    assert made.kinds == ["timeout", "ok"]
    assert "blocks timed out" in made.finished[0]["content"]


@row(34, 35)
@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_ends_after_its_deadline_is_noted_and_reaches_nobody(tmp_path, asynchronous):
    free = threading.Event()

    def late() -> str:
        free.wait(10)
        return "too late"

    async def late_async() -> str:
        while not free.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue
        return "too late"

    async def test():
        function = late_async if asynchronous else late
        replies = [k.call(function.__name__), k.say("went on"), k.say("next turn")]
        tool = k.tool(function, timeout=0.05)
        async with k.turns(tmp_path, replies, tool) as made, k.opened(made) as session:
            await session.run("one")
            assert made.kinds == ["outcome_unknown"]
            free.set()
            await made.heard("tool.late")
            await session.run("two")
            assert "too late" not in str(made.model.requests)
        assert [r["type"] for r in made.records()].count("tool.late") == 1

    k.go(test)


# ---- raises ---------------------------------------------------------------------------------------
class Odd(BaseException):
    """Not an Exception."""


@row(18, 19, 21, 22)
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("mine"), "unavailable"),
        (asyncio.CancelledError("mine"), "crashed"),
        (SystemExit(4), "crashed"),
        (KeyboardInterrupt(), "crashed"),
        (GeneratorExit(), "crashed"),
        (StopIteration(1), "crashed"),
        (StopAsyncIteration(), "crashed"),
        (Odd("strange"), "crashed"),
        (MemoryError(), "crashed"),
        (RecursionError("deep"), "crashed"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "crashed"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "failed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("asynchronous", [False, True])
def test_whatever_is_raised_is_the_calls_result_and_never_taken_for_ours(
    tmp_path, error, kind, asynchronous
):
    def raises() -> str:
        raise error

    async def raises_async() -> str:
        raise error

    one = outcome(tmp_path, raises_async if asynchronous else raises)
    if asynchronous and isinstance(error, StopIteration):
        assert one["kind"] == "crashed"  # Python itself makes a RuntimeError of it
    else:
        assert one["kind"] == kind
        assert type(error).__name__ in one["content"]


@row(21, 22)
def test_running_out_of_stack_or_memory_is_a_result(tmp_path):
    def recurses() -> str:
        return recurses()

    def takes() -> str:
        return bytearray(1 << 60)

    assert "RecursionError" in outcome(tmp_path / "1", recurses)["content"]
    assert "MemoryError" in outcome(tmp_path / "2", takes)["content"]


@row(20)
@pytest.mark.parametrize(
    "ends", ["os._exit(3)", "os.abort()", "ctypes.string_at(0)", "os.kill(os.getpid(), 9)"]
)
def test_a_skill_that_ends_the_host_leaves_a_session_that_says_so(tmp_path, ends):
    code = (
        f"import ctypes, os\ndef ends():\n    {ends}\n"
        "k.run(Path(sys.argv[1]), [k.call('ends'), k.say('x')], ends)\n"
    )
    done = host(code, str(tmp_path))
    assert done.returncode in {3, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGKILL}

    def ends_now() -> str:
        return "ran"

    ends_now.__name__ = "ends"
    made = k.run(tmp_path, [k.call("ends"), k.say("done")], ends_now)
    assert made.kinds == ["outcome_unknown"]
    assert "unknown" in made.tool_messages(0)[0]


# ---- the process is shared ------------------------------------------------------------------------
@row(23)
def test_a_forked_copy_of_the_host_does_not_go_on_as_the_host(tmp_path):
    code = (
        "import os, warnings\nwarnings.simplefilter('ignore')\n"
        "def forks():\n    pid = os.fork()\n    return 'parent' if pid else 'child'\n"
        "made = k.run(Path(sys.argv[1]), [k.call('forks'), k.say('x')], forks)\n"
        "print(made.finished[0]['content'], flush=True)\n"
    )
    done = host(code, str(tmp_path))
    assert done.stdout == "parent\n", done.stderr
    assert len(k.lines(tmp_path / "state" / "sessions" / "s1.jsonl")) == len(
        {r["seq"] for r in k.lines(tmp_path / "state" / "sessions" / "s1.jsonl")}
    )


@row(25)
def test_leaked_threads_and_files_are_no_failure(tmp_path):
    kept, free = [], threading.Event()

    def leaks() -> str:
        for _ in range(50):
            threading.Thread(target=free.wait, args=(10,), daemon=True).start()
            kept.append(Path("/dev/null").open())  # noqa: SIM115 - leaked on purpose
        return "ok"

    assert outcome(tmp_path, leaks)["kind"] == "ok"
    free.set()
    for file in kept:
        file.close()


@row(26)
@pytest.mark.parametrize("size", ["text", "list"])
def test_a_huge_result_is_cut_before_it_is_copied(tmp_path, size):
    def huge() -> object:
        return "x" * 200_000_000 if size == "text" else [0] * 10_000_000

    one = outcome(tmp_path, huge, timeout=30)
    assert one["kind"] == "ok"
    assert len(one["content"]) < 20_000
    assert one["duration"] < 10


@row(27)
def test_values_that_are_no_json_are_described(tmp_path):
    class Evil:
        def __repr__(self):
            raise SystemError

    def odd() -> object:
        loop: list[Any] = [Evil(), {(1, 2): {3}}, float("nan"), "\ud800", 10**6000, b"\xff"]
        loop.append(loop)
        return loop

    one = outcome(tmp_path, odd)
    assert one["kind"] == "ok"
    json.loads(json.dumps(one["content"]))
    assert "unprintable" in one["content"]


@row(28)
@pytest.mark.parametrize(
    ("gives", "kind", "content"),
    [
        (lambda: None, "bad_result", "None"),
        (lambda: (n for n in range(3)), "ok", "[0,1,2]"),
        (lambda: (n for n in iter(int, 1)), "ok", "only the first"),
        (lambda: _coroutine(), "ok", "7"),
    ],
)
def test_what_still_has_to_be_run_is_run_within_bounds(tmp_path, gives, kind, content):
    def give() -> object:
        return gives()

    one = outcome(tmp_path, give, timeout=20)
    assert one["kind"] == kind
    assert content in one["content"]


async def _coroutine():
    await asyncio.sleep(0)
    return 7


LOUD = """
import os, subprocess, sys, threading
def act():
    print("printed")
    sys.stdout.write("written"); sys.stderr.write("to stderr")
    os.write(1, b"past everybody\\n")
    subprocess.run(["echo", "from a program"])
    thread = threading.Thread(target=print, args=("from a thread",)); thread.start(); thread.join()
    {more}
    return "x"
"""


@row(29)
@pytest.mark.parametrize(
    "more", ["pass", "print('z' * 10_000_000)", "os.close(1)", "sys.stdout = None"]
)
def test_nothing_a_skill_prints_reaches_the_answers_stream(tmp_path, more):
    done = command(tmp_path, LOUD.format(more=more), "--set", "limits.tool_timeout=10")
    assert (done.returncode, done.stdout) == (0, "the answer\n"), done.stderr


@row(30)
def test_arguments_that_a_skill_changes_are_changed_for_nobody_else(tmp_path):
    seen = []

    def mutates(names: list, ctx: SkillContext) -> list:
        seen.append(list(names))
        names.append("mine")
        if len(seen) == 1:
            raise ConnectionError("again")
        return names

    tool = k.tool(mutates, idempotent=True)
    made = k.run(tmp_path, [k.call("mutates", names=["a"]), k.say("x")], tool)
    assert seen == [["a"], ["a"]]
    assert made.finished[0]["content"] == '["a","mine"]'
    assert [r["arguments"] for r in made.records() if r["type"] == "tool.started"] == [
        {"names": ["a"]}
    ]
    assert made.sent()[2].tool_calls[0].arguments == {"names": ["a"]}


@row(31)
def test_a_skill_that_changes_the_working_folder_does_so_for_its_own_call_only(tmp_path):
    before = Path.cwd()

    def moves() -> str:
        os.chdir("/")
        return str(Path.cwd())

    assert outcome(tmp_path, moves)["content"] == "/"
    assert Path.cwd() == before


@row(31)
def test_a_skill_that_patches_what_we_use_is_a_limit_that_leaves_the_record_whole(tmp_path):
    kept = builtins.len

    def patches() -> str:
        socket_timeout = __import__("socket").getdefaulttimeout()
        __import__("socket").setdefaulttimeout(socket_timeout)
        signal.getsignal(signal.SIGTERM)
        return "ok"

    assert outcome(tmp_path, patches)["kind"] == "ok"
    assert builtins.len is kept


@row(32)
@pytest.mark.parametrize(
    "body",
    [
        "import atexit, time\ndef act():\n    atexit.register(time.sleep, 60)\n    return 'x'",
        "import threading, time\ndef act():\n    threading.Thread(target=time.sleep, args=(60,)).start()\n    return 'x'",
    ],
)
def test_what_a_skill_leaves_running_does_not_hold_the_exit(tmp_path, body):
    began = time.monotonic()
    done = command(tmp_path, body)
    assert (done.returncode, done.stdout) == (0, "the answer\n"), done.stderr
    assert time.monotonic() - began < 20


@row(36)
def test_two_calls_on_one_file_take_turns_and_are_both_answered(tmp_path):
    def add(letter: str, ctx: SkillContext) -> str:
        file = ctx.path("a.txt", write=True)
        text = file.read_text()
        time.sleep(0.01)
        file.write_text(text + letter)
        return "added"

    (tmp_path / "a.txt").write_text("")
    batch = k.calls(*(("add", {"letter": x}) for x in "abcd"))
    tool = k.tool(add, concurrent=True, permissions=("fs.write",))
    made = k.run(tmp_path, [batch, k.say("x")], tool)
    assert made.kinds == ["ok"] * 4
    assert sorted((tmp_path / "a.txt").read_text()) == [*"abcd"]

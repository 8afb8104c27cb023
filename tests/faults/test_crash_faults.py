"""The fault list, rows 1–14 and 50–53: a process that ends anywhere, and what is found afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import turn_kit as k
import victim

from runner import RecordError, Runner, ScriptedModel, SessionError
from runner.record.resume import MOST_INTERRUPTIONS, NOT_RUN, UNKNOWN, rebuild
from runner.record.trajectory import Trajectory, read

row = pytest.mark.row
TESTS = Path(__file__).parent.parent

# point → was the call reserved by then, was its effect done, and do the records know its result
POINTS: dict[str, tuple[bool, bool, bool]] = {
    "event session.started": (False, False, False),
    "event turn.started": (False, False, False),
    "transform 1": (False, False, False),
    "event model.requested": (False, False, False),
    "model 1": (False, False, False),
    "event model.replied": (False, False, False),
    "pre": (False, False, False),
    "event tool.queued": (False, False, False),
    "event tool.started": (True, False, False),
    "skill before": (True, False, False),
    "skill after": (True, True, False),
    "post": (True, True, False),
    "event tool.finished": (True, True, True),
    "transform 2": (True, True, True),
    "model 2": (True, True, True),
    "event turn.finished": (True, True, True),
}
TABLE: list[tuple[str, ...]] = []


def killed(folder: Path, point: str, replies: list[Any], **tables: Any) -> int:
    """Runs a victim that dies at the point; its exit code."""
    spec = {"folder": str(folder), "replies": replies, "tables": tables}
    done = subprocess.run(
        [sys.executable, str(TESTS / "victim.py"), json.dumps(spec)],
        env={**os.environ, "VICTIM_POINT": point, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        capture_output=True,
        check=False,
    )
    if done.returncode not in {0, -signal.SIGKILL}:
        raise AssertionError(done.stderr.decode()[-2000:])
    return done.returncode


def go_on(folder: Path, *replies: Any, **more: Any) -> k.Turns:
    """Goes on with the session in this process."""
    return k.run(folder, replies, *victim.tools(), goals=["go on"], **more)


@pytest.fixture(scope="module", autouse=True)
def _table(request):
    yield
    if request.config.get_verbosity() <= 0:
        return
    out = request.config.get_terminal_writer()
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        out.line(
            "\n\nkilled at                tool  effects  the model was told         asked again"
        )
        for point, tool, count, told, again in TABLE:
            out.line(f"{point:24} {tool:5} {count:>7}  {told:26} {again}")


@row(1, 2, 3, 4, 5, 6, 7, 8)
@pytest.mark.parametrize(
    ("point", "tool"),
    [(p, "send") for p in POINTS]
    + [(p, "put") for p in ("event tool.started", "skill before", "skill after", "post")],
)
def test_a_kill_anywhere_leaves_a_session_that_goes_on(tmp_path, point, tool):
    reserved, done, known = POINTS[point]
    ask = k.call(tool, to="bob")
    assert killed(tmp_path, point, [ask, k.say("first answer")]) == -signal.SIGKILL
    assert len(victim.effects(tmp_path)) == done
    made = go_on(tmp_path, ask, k.say("second answer"))
    assert made.result.answer == "second answer"
    assert made.all_valid()
    told = made.tool_messages(0)
    found = victim.effects(tmp_path)
    if known:
        assert [text.splitlines()[0] for text in told] == [f"{tool} reached bob"]
        assert made.kinds == ["ok"], "a deliberate repeat"
        assert len(found) == 2
        assert len({e["key"] for e in found}) == 2
    elif not reserved:
        assert told in ([], [NOT_RUN])
        assert made.kinds == ["ok"]
        assert len(found) == 1
    elif tool == "send":
        assert told == [UNKNOWN]
        assert made.kinds == ["outcome_unknown"]
        assert len(found) == done, "it is never started twice by us"
    else:
        assert "no harm" in told[0]
        assert made.kinds == ["ok"]
        assert len({e["key"] for e in found}) == 1, "the key outlives the crash"
    said = (told or ["(nothing)"])[0].splitlines()[0][:25]
    TABLE.append((point, tool, str(int(done)), said, made.kinds[0]))


@row(10)
@pytest.mark.parametrize("again", ["event session.started", "transform 1", "event model.replied"])
def test_a_second_kill_while_it_resumes_changes_nothing_that_is_promised(tmp_path, again):
    ask = k.call("send", to="bob")
    killed(tmp_path, "skill after", [ask])
    assert killed(tmp_path, again, [ask]) == -signal.SIGKILL
    made = go_on(tmp_path, ask, k.say("done"))
    assert made.kinds == ["outcome_unknown"]
    assert len(victim.effects(tmp_path)) == 1
    assert made.all_valid()


@row(11)
def test_a_call_that_ends_the_process_each_time_is_not_made_for_ever(tmp_path):
    ask = k.call("put", to="bob")
    for _ in range(MOST_INTERRUPTIONS):
        assert killed(tmp_path, "skill after", [ask]) == -signal.SIGKILL
    made = go_on(tmp_path, k.calls(("put", {"to": "bob"}), ("put", {"to": "eve"})), k.say("done"))
    assert made.kinds == ["outcome_unknown", "ok"]
    assert "3 times" in made.finished[0]["content"]
    assert made.result.answer == "done"


# ---- torn, corrupt, cut ---------------------------------------------------------------------------
RECORDED: list[bytes] = []


def recorded(folder: Path) -> Path:
    """The trajectory of a session with one call and its answer."""
    path = folder / "state" / "sessions" / "s1.jsonl"
    if RECORDED:
        path.parent.mkdir(parents=True)
        path.write_bytes(RECORDED[0])
    else:
        k.run(folder, [k.call("send", to="bob"), k.say("answer")], *victim.tools())
        RECORDED.append(path.read_bytes())
    return path


@row(8, 12)
def test_a_record_cut_anywhere_costs_that_record_and_no_more(tmp_path):
    whole = recorded(tmp_path / "origin").read_bytes()
    starts = [0, *(i + 1 for i, byte in enumerate(whole) if byte == 10)][:-1]
    cuts = sorted({c for s in starts for c in (s, s + 1, s + 17)} | {len(whole) - 1, len(whole)})
    for cut in cuts:
        path = tmp_path / f"cut{cut}.jsonl"
        path.write_bytes(whole[:cut])
        trajectory = Trajectory(path)
        loaded = trajectory.load()
        trajectory.close()
        kept = whole[:cut].rfind(b"\n") + 1
        assert path.read_bytes() == whole[:kept], "never shortened but for the torn tail"
        assert len(loaded.records) == whole[:kept].count(b"\n")
        torn = path.with_suffix(".torn")
        assert (torn.read_bytes()[:-1] if torn.exists() else b"") == whole[kept:cut]
        assert bool(loaded.damage) == (kept < cut)
        made = rebuild(loaded.records, "s1")
        started = any(r["type"] == "tool.started" for r in loaded.records)
        finished = any(r["type"] == "tool.finished" for r in loaded.records)
        assert bool(made.lost) == (started and not finished)
        assert k.fault(made.messages) == ""


@row(9)
def test_a_torn_record_of_many_megabytes_is_cut_off_and_said_once(tmp_path):
    path = recorded(tmp_path)
    good = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"type":"tool.finished","content":"' + b"x" * 50_000_000)
    made = go_on(tmp_path, k.say("done"))
    assert made.result.answer == "done"
    assert path.read_bytes().startswith(good)
    assert path.stat().st_size < len(good) + 100_000
    assert path.with_suffix(".torn").stat().st_size > 50_000_000
    path.with_suffix(".torn").unlink()


@row(12)
def test_with_power_durability_a_call_with_effects_is_on_the_disk_before_it_starts(tmp_path):
    order = _order_of_syncs(tmp_path)
    assert "effect" in order
    assert order[order.index("effect") - 1] == "sync"
    assert order[-1] == "sync", "and at the end of the turn"


def _order_of_syncs(folder: Path) -> list[str]:
    """When the record is made durable and when the effect happens, heard from an audit of the calls."""
    code = (
        "import json, os, sys\n"
        "order = []\nreal = os.fsync\n"
        "def heard(fd):\n    order.append('sync'); return real(fd)\n"
        "os.fsync = heard\n"
        "import turn_kit as k\n"
        "def send(ctx):\n    order.append('effect'); return 'sent'\n"
        "from pathlib import Path\n"
        "k.run(Path(sys.argv[1]), [k.call('send'), k.say('x')], k.tool(send), record={'durability': 'power'})\n"
        "print(json.dumps(order))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


@row(52)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize(
    "bad",
    [
        b"\x00\xff garbage", b"", b"   ", b"[1,2]", b'"text"', b"null", b'{"no":"type"}',
        b'{"type":5}', b"{" * 5000, b'{"type":"tool.finished","call_id":[],"kind":{}}',
        b'{"type":"model.replied","session":"s1","calls":5}',
        b'{"type":"model.replied","session":"s1","calls":[5,{"name":1},{"name":"x","arguments":[]}]}',
        b'{"type":"turn.started","session":"s1","goal":{"a":1}}',
        b'{"type":"tool.started","session":"s1","fingerprint":["x"],"idempotent":false}',
        b'{"type":"from.the.future","session":"s1","seq":"x"}',
        b'{"type":"session.started","session":"s1","schema":"one"}',
        b'{"type":"note.added","session":"s1","below":true,"text":null}',
    ],
    ids=lambda b: str(b[:24]),
)  # fmt: skip
def test_a_bad_line_anywhere_is_skipped_and_the_rest_is_used(tmp_path, where, bad):
    path = recorded(tmp_path)
    lines = path.read_bytes().split(b"\n")[:-1]
    lines.insert({"first": 0, "middle": len(lines) // 2, "last": len(lines)}[where], bad)
    path.write_bytes(b"\n".join(lines) + b"\n")
    made = go_on(tmp_path, k.say("done"))
    assert made.result.answer == "done"
    assert made.all_valid()
    assert "send reached bob" in str(made.sent(0)) or where == "middle"


@row(52)
def test_a_mark_at_the_start_and_foreign_line_ends_are_no_damage(tmp_path):
    path = recorded(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read(path).damage == []
    made = go_on(tmp_path, k.say("done"))
    assert made.tool_messages(0)[0].startswith("send reached bob")


@row(52)
def test_a_record_of_a_newer_version_is_left_alone(tmp_path):
    path = recorded(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2'))
    before = path.read_bytes()
    with pytest.raises(RecordError, match="newer version"):
        go_on(tmp_path, k.say("done"))
    assert path.read_bytes() == before
    Trajectory(path).close()


@row(53)
@pytest.mark.parametrize("gone", ["tool.finished", "model.replied", "tool.started", "turn.started"])
def test_a_call_without_its_result_and_a_result_without_its_call_are_mended(tmp_path, gone):
    path = recorded(tmp_path)
    lines = [x for x in path.read_bytes().splitlines(True) if f'"{gone}"'.encode() not in x]
    path.write_bytes(b"".join(lines))
    made = go_on(tmp_path, k.say("done"))
    assert made.result.answer == "done"
    assert made.all_valid()


# ---- two writers ----------------------------------------------------------------------------------
HOLD = (
    "import sys, time, os\nfrom pathlib import Path\nfrom runner.record.trajectory import Trajectory\n"
    "t = Trajectory(Path(sys.argv[1]))\n"
    "if sys.argv[2] == 'fork' and os.fork() == 0:\n    print(os.getpid(), flush=True); time.sleep(60)\n"
    "elif sys.argv[2] == 'fork':\n    time.sleep(0.1); os._exit(0)\n"
    "print('held', flush=True)\ntime.sleep(60)\n"
)


def holder(path: Path, how: str = "hold") -> subprocess.Popen[str]:
    """Another process that has the session open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    process.first = process.stdout.readline().strip()  # type: ignore[attr-defined]
    return process


@row(14, 50)
def test_a_session_another_process_has_is_refused_by_its_pid_even_when_that_one_is_stopped(
    tmp_path,
):
    path = recorded(tmp_path)
    process = holder(path)
    try:
        for number in (signal.SIGCONT, signal.SIGSTOP, signal.SIGCONT):
            process.send_signal(number)
            with pytest.raises(SessionError, match=f"in use by process {process.pid}"):
                go_on(tmp_path, k.say("done"))
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    assert go_on(tmp_path, k.say("done")).result.answer == "done"


@row(51)
def test_a_session_that_only_a_left_behind_child_holds_names_that_child(tmp_path):
    path = recorded(tmp_path)
    process = holder(path, "fork")
    child = int(process.first)  # type: ignore[attr-defined]
    try:
        process.wait(10)
        with pytest.raises(SessionError, match=f"process {child} .*left behind by {process.pid}"):
            go_on(tmp_path, k.say("done"))
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()
    for _ in range(500):  # until the kernel has let go of the child's files
        try:
            Trajectory(path).close()
            break
        except SessionError:
            time.sleep(0.01)
    assert go_on(tmp_path, k.say("done")).result.answer == "done"


# ---- signals --------------------------------------------------------------------------------------
SLOW = """
import time, os
def slow(n):
    open(os.environ["MARK"], "a").write("x\\n")
    time.sleep(60)
"""


@row(13)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_a_parallel_batch_ends_in_order_and_at_once(tmp_path, number):
    from skill_kit import one_tool, write

    flags = "concurrent = true\nread_only = true\ntimeout = 60"
    write(
        tmp_path / "skills",
        one_tool("slow", SLOW, "required = ['n']\nproperties.n = { type = 'integer' }", flags),
    )
    batch = k.calls(*(("slow", {"n": n}) for n in range(3)))
    (tmp_path / "script.json").write_text(json.dumps({"replies": [batch, k.say("x")]}))
    mark = tmp_path / "mark"
    process = subprocess.Popen(
        [
            sys.executable, "-m", "runner", "run", "go", "--json", "--session", "s1",
            "--model", "scripted/script.json", "--set", "limits.max_parallel=2",
        ],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        env={**os.environ, "MARK": str(mark), "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    until = time.monotonic() + 30
    while not mark.exists() or len(mark.read_text().split()) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert process.returncode == 130, err.decode()
    assert json.loads(out)["status"] == "cancelled"
    assert b"Traceback" not in err
    records = k.lines(tmp_path / ".runner" / "sessions" / "s1.jsonl")
    kinds = [r["kind"] for r in records if r["type"] == "tool.finished"]
    assert kinds == ["cancelled"] * 3
    assert k.fault(rebuild(records, "s1").messages) == ""


def test_the_table_of_points_covers_every_kind_of_record_of_a_turn(tmp_path):
    made = k.run(tmp_path, [k.call("send", to="bob"), k.say("x")], *victim.tools())
    named = {p.removeprefix("event ") for p in POINTS if p.startswith("event ")}
    assert set(made.types) - named == {"slot.acquired"}


def test_a_session_that_could_not_be_opened_is_not_left_locked(tmp_path):
    async def test():
        async with Runner(
            model=ScriptedModel({"replies": [k.say("x")]}), config=k.settings(tmp_path)
        ) as runner:
            path = tmp_path / "state" / "sessions" / "s1.jsonl"
            path.parent.mkdir(parents=True)
            path.write_text('{"type":"session.started","schema":99}\n')
            with pytest.raises(RecordError):
                await runner.run("go", session="s1")
            path.unlink()
            assert (await runner.run("go", session="s1")).answer == "x"

    asyncio.run(test())

"""The parts of the command line that need no process: texts, logs, what a terminal is shown."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.cli.console import Console
from runner.cli.logs import ToConsole, plain
from runner.cli.options import merged
from runner.cli.progress import Live, Progress
from runner.cli.text import dump, one_line, safe, seconds, table
from runner.log import Log
from runner.redact import Redactor

ACTING = {chr(c) for c in (*range(9), *range(11, 32), *range(127, 160), 0x2028, 0x202E, 0x2066)}


class Mute:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


@given(st.text())
def test_safe_text_acts_on_no_terminal_and_keeps_its_lines(text):
    assert not ACTING & set(safe(text))
    assert safe(text).count("\n") == text.replace("\r\n", "\n").count("\n")


@given(st.text())
def test_one_line_is_one_line(text):
    assert one_line(text).isprintable()
    assert len(one_line(text, 10)) <= 10


@given(st.text())
def test_json_for_a_terminal_means_the_same(text):
    assert json.loads(dump({"a": text})) == {"a": text}
    assert not ACTING & set(dump(text))


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "ascii"])
@given(text=st.text())
def test_json_survives_every_encoding_of_stdout(encoding, text):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="\n")
    Console(out, io.StringIO()).json({"a": text})
    assert json.loads(raw.getvalue().decode(encoding)) == {"a": text}


def test_a_table_is_aligned_and_its_cells_stay_on_their_line():
    assert table([("a", "b\nc"), ("long", "d")]) == ["a     b\\nc", "long  d"]
    assert table([]) == []


@pytest.mark.parametrize(
    ("duration", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (61, "1 min 1 s")]
)
def test_durations_are_said_as_people_do(duration, text):
    assert seconds(duration) == text


def test_options_before_and_after_the_command_join():
    before = {
        "sets": ("a=1",),
        "skills": (),
        "model": "m",
        "verbose": 1,
        "quiet": 0,
        "debug": False,
    }
    after = {
        "sets": ("b=2",),
        "skills": ("s",),
        "model": None,
        "verbose": 1,
        "quiet": 0,
        "debug": True,
    }
    assert merged(before, after) == {
        "sets": ("a=1", "b=2"), "skills": ("s",), "model": "m", "verbose": 2, "quiet": 0, "debug": True,
    }  # fmt: skip


# ---- logs


@pytest.fixture(name="logged")
def _logged(request):
    """A logger whose lines go to a stream of their own."""
    err = io.StringIO()
    handler = ToConsole(Console(io.StringIO(), err), structured=request.param)
    handler.redact = str
    logger = logging.getLogger(f"cli-parts-{request.param}")
    logger.handlers[:], logger.propagate = [handler], False
    logger.setLevel(logging.DEBUG)
    yield Log(logger.name), err
    logger.handlers.clear()


RING: dict = {}
RING["self"] = RING
ODD = [
    RING,
    {(1, 2): "tuple key"},
    Mute(),
    [Mute()],
    "\ud800",
    float("nan"),
    b"\xff",
    {1, 2},
    "\x1b[2J",
]


@pytest.mark.parametrize("logged", [True, False], indirect=True, ids=["structured", "plain"])
@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_logging_never_raises_and_never_acts(logged, value):
    log, err = logged
    log.warning("odd.value", event_=value, name=value, args=value)
    assert err.getvalue().count("\n") == 1
    assert "could not be written" not in err.getvalue()
    assert "\x1b" not in err.getvalue()


def test_a_warning_is_a_sentence():
    err = io.StringIO()
    handler = ToConsole(Console(io.StringIO(), err), structured=False)
    record = logging.makeLogRecord(
        {"msg": "record.damaged", "levelno": 30, "pairs": {"what": "a torn line"}}
    )
    handler.emit(record)
    assert err.getvalue() == "warning: a torn line\n"


@given(
    st.recursive(st.none() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=9)
)
def test_plain_values_can_be_written_as_strict_json(value):
    json.dumps(plain(value), allow_nan=False).encode("utf-8")


# ---- progress


def test_the_progress_line_names_the_tool_and_how_long_it_runs():
    now = [0.0]
    progress = Progress(Console(io.StringIO(), io.StringIO()), lambda: now[0])
    progress(event("model.requested", 2))
    now[0] = 1.5
    assert progress.line() == "iteration 2: thinking 1.5 s"
    progress(event("tool.started", 2, tool="read_file", call_id="a"))
    now[0] = 3.5
    assert progress.line() == "iteration 2: read_file 2.0 s"


def test_a_secret_split_over_pieces_does_not_show_in_live_text():
    err = io.StringIO()
    console = Console(io.StringIO(), err)
    live = Live(console, Redactor({"MY_TOKEN": "hunter2-hunter2"}), Progress(console))
    for piece in ("the key is hunter2", "-hunter2", " and more"):
        live.text(piece)
    live.end()
    assert "hunter2" not in err.getvalue()


def event(type_: str, iteration: int, **data):
    from runner.events import Event

    return Event(seq=1, time="", session="s", turn=1, iteration=iteration, type=type_, data=data)


# ---- signals

WAITS = """
import asyncio, sys
from runner.cli.interrupts import Interrupts
interrupts = Interrupts()
interrupts.on_first = lambda: None
async def main():
    print("ready", flush=True)
    await asyncio.sleep(60)
interrupts.run(main())
"""


@pytest.mark.parametrize(
    ("signals", "least", "most"), [(1, 1.0, 4.0), (2, 0.0, 1.5)], ids=["one", "two"]
)
def test_a_turn_that_does_not_end_is_ended(signals, least, most):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert process.stdout.readline() == b"ready\n"
    began = time.monotonic()
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)  # two at once are one
    assert process.wait(timeout=20) == 130
    process.stdout.close()
    assert least <= time.monotonic() - began <= most

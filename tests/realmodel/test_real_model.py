"""The tasks with a real model: off unless RUNNER_REAL_MODEL is the address of a server.

`RUNNER_REAL_MODEL=http://127.0.0.1:11434 pytest -s tests/realmodel` runs every mode. Further
variables: RUNNER_REAL_MODEL_NAME (`ollama/NAME`; else the server's first model),
RUNNER_REAL_MODEL_MODES (such as `auto`), RUNNER_REAL_MODEL_TASKS (names) and
RUNNER_REAL_MODEL_TABLE (a file the table is added to).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from lane import MODES, Outcome, run_all, table
from tasks import TASKS

URL = os.environ.get("RUNNER_REAL_MODEL", "")
WANTED = os.environ.get("RUNNER_REAL_MODEL_TASKS", "").split()
RUN_MODES = os.environ.get("RUNNER_REAL_MODEL_MODES", " ".join(MODES)).split()
LEAST_SOLVED = 0.85  # of the tasks, in the default mode

pytestmark = pytest.mark.skipif(
    not URL, reason="RUNNER_REAL_MODEL is not set to the address of a server with a model"
)


@pytest.mark.parametrize("mode", RUN_MODES)
def test_a_real_model_does_only_what_was_asked_for(mode, tmp_path, capsys):
    outcomes = asyncio.run(_outcomes(mode, tmp_path))
    _publish(mode, outcomes, capsys)
    assert [o.task.name for o in outcomes if o.left_as_text] == []
    assert {o.task.name: o.wrong for o in outcomes if o.wrong} == {}
    if mode == "auto" and not WANTED:
        unsolved = [o.task.name for o in outcomes if not o.solved]
        assert len(unsolved) <= len(TASKS) * (1 - LEAST_SOLVED), unsolved


async def _outcomes(mode: str, folder: Path) -> list[Outcome]:
    tasks = [task for task in TASKS if not WANTED or task.name in WANTED]
    return [outcome async for outcome in run_all(URL, mode, folder, tasks)]


def _publish(mode: str, outcomes: list[Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    text = table([(mode, outcomes)])
    with capsys.disabled():
        print(f"\n{text}")
    if file := os.environ.get("RUNNER_REAL_MODEL_TABLE"):
        with Path(file).open("a", encoding="utf-8") as out:
            out.write(f"{text}\n\n")

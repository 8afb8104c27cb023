"""Runs the tasks with a real model and counts what it did.

As a script: `python tests/realmodel/lane.py URL MODE [TASK …]`, with the sessions kept in the
folder that REAL_MODEL_KEEP names.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks import ACTING, TASKS, Task

from runner import Event, Runner
from runner.model.base import Chunk, Model, ModelInfo, ModelRequest
from runner.model.choose import make_model
from runner.types import Usage

HERE = Path(__file__).parent
MODES = ("native", "json", "constrained", "auto")
COLUMNS = (
    "replies", "calls", "native", "strict", "extracted", "right tool", "right arguments",
    "solved", "wrong actions", "calls left as text", "seconds",
)  # fmt: skip


class Told:
    """A model that says of itself whether its output can be constrained."""

    def __init__(self, model: Model, constrained: bool | None) -> None:
        self.name = model.name
        self._model, self._constrained = model, constrained

    def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        return self._model.complete(request)

    async def describe(self) -> ModelInfo:
        info = await self._model.describe()
        return info if self._constrained is None else replace(info, constrained=self._constrained)

    def cost(self, usage: Usage) -> float:
        return self._model.cost(usage)

    async def close(self) -> None:
        await self._model.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a model did with one task."""

    task: Task
    status: str
    answer: str
    events: tuple[Event, ...]
    wrong: tuple[str, ...]
    solved: bool
    seconds: float

    @property
    def left_as_text(self) -> bool:
        """The answer itself holds a call of a tool."""
        names = "|".join(
            {e.data["tool"] for e in self.events if e.type == "tool.finished"} | ACTING
        )
        call = rf'"(?:tool|name)"\s*:\s*"(?:{names}|read_file|list_files|search_files|add)"'
        return re.search(call, self.answer) is not None

    def row(self) -> dict[str, float]:
        """The counts of one task."""
        replies = [e.data for e in self.events if e.type == "model.replied"]
        parsed = [e.data for e in self.events if e.type == "reply.parsed"]
        done = [e.data for e in self.events if e.type == "tool.finished"]
        fit = [d for d in done if d["kind"] not in {"invalid_arguments", "unknown_tool"}]
        in_text = [p for p in parsed if p["kind"] == "calls"]
        used = {d["tool"] for d in done}
        return {
            "replies": len(replies),
            "calls": len(done),
            "native": sum(len(r["calls"]) for r in replies),
            "strict": sum(p["recogniser"] == "strict" for p in in_text),
            "extracted": sum(p["recogniser"] != "strict" for p in in_text),
            "right tool": not used - ACTING
            if not self.task.tools
            else bool(used & self.task.tools),
            "right arguments": len(fit),
            "solved": self.solved,
            "wrong actions": len(self.wrong),
            "calls left as text": self.left_as_text,
            "seconds": self.seconds,
        }


def protocol_of(url: str) -> str:
    """`ollama` or `openai`, by what the server at that address answers."""
    root = url.rstrip("/").removesuffix("/v1")
    try:
        with urllib.request.urlopen(f"{root}/api/version", timeout=10) as answer:
            return "ollama" if "version" in json.load(answer) else "openai"
    except (urllib.error.URLError, ValueError):
        return "openai"


def model_at(url: str) -> str:
    """The name of the first model the server has."""
    root = url.rstrip("/").removesuffix("/v1")
    if protocol_of(url) == "ollama":
        with urllib.request.urlopen(f"{root}/api/tags", timeout=10) as answer:
            return str(json.load(answer)["models"][0]["name"])
    with urllib.request.urlopen(f"{root}/v1/models", timeout=10) as answer:
        return str(json.load(answer)["data"][0]["id"])


async def run_all(
    url: str, mode: str, folder: Path, tasks: Sequence[Task] = TASKS
) -> AsyncIterator[Outcome]:
    """The tasks one after another, each in a workspace and a session of its own."""
    for task in tasks:
        workspace = folder / task.name
        workspace.mkdir(parents=True)
        task.lay_out(workspace)
        yield await _run(url, mode, task, workspace, folder / "state")


async def _run(url: str, mode: str, task: Task, workspace: Path, state: Path) -> Outcome:
    events: list[Event] = []
    before = _files(workspace)
    began = time.monotonic()
    async with Runner(
        model=_model(url, mode), config=_config(url, mode, workspace, state), approver=_yes
    ) as runner:
        result = await runner.run(task.goal, session=task.name, listeners=[events.append])
    changed = {n for n, text in _files(workspace).items() if before.get(n) != text}
    changed |= before.keys() - _files(workspace).keys()
    acted = {e.data["tool"] for e in events if e.type == "tool.started"} & ACTING
    return Outcome(
        task=task,
        status=str(result.status),
        answer=result.answer,
        events=tuple(events),
        wrong=(*sorted(changed - task.changes), *sorted(acted - task.may)),
        solved=task.solved(result.answer, workspace),
        seconds=time.monotonic() - began,
    )


async def _yes(*_: object) -> bool:
    return True


def _model(url: str, mode: str) -> Model:
    name = os.environ.get("RUNNER_REAL_MODEL_NAME") or f"{protocol_of(url)}/{model_at(url)}"
    config = Runner.from_config(sets=[f'model.name="{name}"', f'model.base_url="{url}"']).config
    model = make_model(config.model, project=Path.cwd(), environ=os.environ)
    return Told(model, {"json": False, "constrained": True}.get(mode))


def _config(url: str, mode: str, workspace: Path, state: Path) -> dict[str, dict[str, object]]:
    return {
        "model": {
            "base_url": url,
            "tool_mode": "json" if mode == "constrained" else mode,
            "context_window": 8192,
            "max_tokens": 400,
            "timeout": 600.0,
        },
        "limits": {"max_iterations": 8},
        "permissions": {"fs.write": "allow"},
        "paths": {
            "skills": [str(HERE.parents[1] / "skills"), str(HERE / "skills")],
            "workspace": str(workspace),
            "state": str(state),
        },
        "watch": {"backend": "off"},
    }


def _files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in folder.rglob("*")
        if path.is_file()
    }


def table(rows: Iterable[tuple[str, Sequence[Outcome]]]) -> str:
    """The counts of each mode, as a Markdown table."""
    lines = ["| mode | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for mode, outcomes in rows:
        counts = [outcome.row() for outcome in outcomes]
        cells = [f"{sum(row[column] for row in counts):.0f}" for column in COLUMNS]
        lines.append(f"| {mode} ({len(outcomes)} tasks) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


async def _main(url: str, mode: str, names: Sequence[str]) -> None:
    keep = os.environ.get("REAL_MODEL_KEEP") or tempfile.mkdtemp()
    wanted = [task for task in TASKS if not names or task.name in names]
    outcomes = []
    async for outcome in run_all(url, mode, Path(keep), wanted):
        outcomes.append(outcome)
        mark = "solved" if outcome.solved else "NOT   "
        row = outcome.row()
        print(
            f"{mark} {outcome.task.name:15} {row['seconds']:5.0f} s {row['replies']} replies "
            f"{outcome.status} wrong={outcome.wrong} text={outcome.left_as_text} "
            f"{outcome.answer[:150]!r}",
            flush=True,
        )
    print(table([(mode, outcomes)]))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], sys.argv[3:]))

"""Trajectories for tests: real ones by a scripted model, and large or hostile ones by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from runner import Runner, ScriptedModel, TurnResult
from runner.config import Config, config_from
from runner.types import Message

JSON = dict[str, Any]


def call(tool: str, **arguments: Any) -> JSON:
    """A reply with one native call."""
    return {"calls": [{"name": tool, "arguments": arguments}]}


def say(text: str) -> JSON:
    """A reply in words."""
    return {"text": text}


def config(folder: Path, **tables: JSON) -> Config:
    """A config whose state lies below the folder; nothing is watched."""
    paths = {"state": str(folder / "state"), "skills": [], "workspace": str(folder)}
    given = {**tables, "paths": {**paths, **tables.get("paths", {})}, "watch": {"backend": "off"}}
    return config_from(given, project=folder)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session that really ran: how its turns ended, and its transcript."""

    results: list[TurnResult]
    messages: tuple[Message, ...]


def record(
    settings: Config,
    replies: Iterable[JSON],
    *,
    skills: Iterable[Callable[..., Any]] = (),
    goals: Iterable[str] = ("the goal",),
    session: str = "s1",
) -> Recorded:
    """Runs the goals with a scripted model, as a host would."""

    async def run() -> Recorded:
        model = ScriptedModel({"replies": list(replies)})
        async with Runner(model=model, skills=skills, config=settings) as runner:
            async with runner.session(session) as opened:
                results = [await opened.run(goal) for goal in goals]
                assert opened.state is not None
                return Recorded(results, tuple(opened.state.transcript))

    return asyncio.run(run())


def file_of(settings: Config, session: str = "s1") -> Path:
    """Where the session's trajectory lies."""
    return settings.paths.state / "sessions" / f"{session}.jsonl"


def records(path: Path) -> list[JSON]:
    """The lines of a trajectory."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, lines: Iterable[JSON]) -> None:
    """Writes the records as a trajectory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


class Pen:
    """Writes events by the table, one after another on a clock of its own."""

    def __init__(self, session: str = "s1") -> None:
        self.now = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
        self.session, self.turn, self.iteration, self.seq = session, 0, 0, 0

    def event(self, kind: str, after: float = 0.0, **data: Any) -> JSON:
        """One event, so many seconds after the last one."""
        self.now += timedelta(seconds=after)
        self.seq += 1
        return {
            "seq": self.seq,
            "time": self.now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "session": self.session,
            "turn": self.turn,
            "iteration": self.iteration,
            "type": kind,
            **data,
        }


def long_session(iterations: int = 1000, session: str = "s1") -> Iterator[JSON]:
    """A turn of many iterations with two calls each; some are slow, retried or broken."""
    pen = Pen(session)
    yield pen.event("session.started", model="scripted/long", skills=["files"], schema=1)
    pen.turn = 1
    yield pen.event("turn.started", goal="Go through all the files and say what they hold.")
    for number in range(1, iterations + 1):
        pen.iteration = number
        yield from _iteration(pen, number)
    usage = {"input_tokens": 900 * iterations, "output_tokens": 40 * iterations}
    yield pen.event(
        "turn.finished", 0.1, status="completed", answer="That is all of them.",
        iterations=iterations, tool_calls=2 * iterations, usage=usage, cost=1.25, duration=900.0,
    )  # fmt: skip


def _iteration(pen: Pen, number: int) -> Iterator[JSON]:
    names = ["read_file", "search_text"]
    ids = [f"call_{2 * number + i:04d}" for i in range(2)]
    arguments = [{"path": f"docs/part-{number}.md"}, {"query": f"word{number % 17}", "limit": 5}]
    tokens = 400 + (number * 61) % 7000
    yield pen.event(
        "model.requested", 0.02, messages=3 * number, input_tokens_estimate=tokens, tools=names
    )
    calls = [
        {"id": i, "name": n, "arguments": a} for i, n, a in zip(ids, names, arguments, strict=True)
    ]
    yield pen.event(
        "model.replied", 0.8, text="", calls=calls, finish_reason="tool_calls",
        usage={"input_tokens": tokens, "output_tokens": 40}, duration=0.8,
    )  # fmt: skip
    for call_id, name, given in zip(ids, names, arguments, strict=True):
        yield pen.event("tool.queued", 0.001, call_id=call_id, tool=name, arguments=given)
    for call_id, name, given in zip(ids, names, arguments, strict=True):
        yield from _call(pen, number, call_id, name, given)


def _call(pen: Pen, number: int, call_id: str, name: str, given: JSON) -> Iterator[JSON]:
    about = {"call_id": call_id, "tool": name}
    yield pen.event("tool.started", 0.01, **about, arguments=given, idempotent=True)
    retried = number % 29 == 0
    if retried:
        yield pen.event(
            "tool.retried", 0.2, **about, attempt=2, reason="connection reset", delay=0.5
        )
    broken = number % 41 == 0 and name == "search_text"
    yield pen.event(
        "tool.finished", 0.6 if retried else 0.05, **about, ok=not broken,
        kind="timeout" if broken else "ok",
        content="no answer within 10 s" if broken else f"# Part {number}\n" + "Some text. " * 20,
        attempts=2 if retried else 1, duration=0.8 if retried else 0.05, degraded_by=None,
        changes=None, spilled_to=None, coerced=[], output="",
    )  # fmt: skip

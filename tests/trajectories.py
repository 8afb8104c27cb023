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
    goals: Iterable[str | None] = ("the goal",),
    session: str = "s1",
) -> Recorded:
    """Runs the goals with a scripted model, as a host would; None takes the last turn back."""

    async def run() -> Recorded:
        model = ScriptedModel({"replies": list(replies)})
        async with (
            Runner(model=model, skills=skills, config=settings) as runner,
            runner.session(session) as opened,
        ):
            results = [await opened.run(g) if g else await opened.undo() for g in goals]
            assert opened.state is not None
            ended = [result for result in results if isinstance(result, TurnResult)]
            return Recorded(ended, tuple(opened.state.transcript))

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

    def event(self, type_: str, after: float = 0.0, /, **data: Any) -> JSON:
        """One event, so many seconds after the last one."""
        self.now += timedelta(seconds=after)
        self.seq += 1
        return {
            "seq": self.seq,
            "time": self.now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "session": self.session,
            "turn": self.turn,
            "iteration": self.iteration,
            "type": type_,
            **data,
        }


def long_session(iterations: int = 1000, session: str = "s1") -> Iterator[JSON]:
    """A turn of many iterations with two calls each; some are slow, retried or broken."""
    pen = Pen(session)
    yield pen.event("session.started", model="scripted/long", skills=["files"], schema=1)
    pen.turn = 1
    yield pen.event("turn.started", goal="Go through all the files and say what they hold.")
    for number in range(1, iterations):
        pen.iteration = number
        yield from _iteration(pen, number)
    pen.iteration = iterations
    yield pen.event(
        "model.requested", 0.02, messages=3 * iterations, input_tokens_estimate=900, tools=[]
    )
    yield _replied(pen, 0.8, "That is all of them.", [])
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


HOSTILE = (
    '</script><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">'
    " \x1b[31mred\x1b[0m \u202egnp.exe \u2066x\u2069 <!-- & \u2028 \U0001f600 \x00"
)


def eventful_session(session: str = "s1") -> Iterator[JSON]:
    """Two turns with everything that can happen in them, and texts that would like to act."""
    pen = Pen(session)
    yield pen.event("session.started", model="scripted/odd", skills=["mail", "files"], schema=1)
    pen.turn = 1
    yield pen.event("turn.started", goal="Tidy the notes and tell Ada. " + HOSTILE)
    yield pen.event("slot.waiting", 0.01, position=1)
    yield pen.event("slot.acquired", 1.5, position=0)
    yield from _asked_and_approved(pen)
    yield from _braked(pen)
    yield from _with_a_helper(pen)
    pen.iteration = 4
    yield pen.event(
        "model.requested", 0.1, messages=14, input_tokens_estimate=2100, tools=["read_file"]
    )
    yield pen.event("model.retried", 0.4, reason="rate limit", delay=1.2)
    yield _replied(pen, 2.4, "The notes are tidy and Ada knows. " + HOSTILE, [])
    yield pen.event(
        "turn.finished", 0.01, status="completed", answer="The notes are tidy and Ada knows.",
        iterations=4, tool_calls=5, usage={"input_tokens": 5200, "output_tokens": 310},
        cost=0.0123, duration=14.2,
    )  # fmt: skip
    pen.turn, pen.iteration = 2, 0
    yield pen.event("turn.started", 20, goal="Now send it to everybody.")
    pen.iteration = 1
    yield pen.event(
        "model.requested", 0.1, messages=16, input_tokens_estimate=2300, tools=["send_mail"]
    )
    calls = [{"id": "call_0009", "name": "send_mail", "arguments": {"to": "all@example.org"}}]
    yield _replied(pen, 1.1, "", calls)
    about = {"call_id": "call_0009", "tool": "send_mail"}
    yield pen.event("tool.queued", 0.01, **about, arguments=calls[0]["arguments"])
    yield pen.event(
        "tool.started", 0.01, **about, arguments=calls[0]["arguments"], idempotent=False
    )


def _replied(pen: Pen, after: float, text: str, calls: list[JSON]) -> JSON:
    return pen.event(
        "model.replied", after, text=text, calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        usage={"input_tokens": 1300, "output_tokens": 77}, duration=after + 0.3,
    )  # fmt: skip


def _ended(pen: Pen, after: float, about: JSON, kind: str, content: str, **more: Any) -> JSON:
    plain: JSON = {
        "attempts": 1, "duration": after, "degraded_by": None, "changes": None, "spilled_to": None,
        "coerced": [], "output": "",
    }  # fmt: skip
    data = {**plain, **about, "ok": kind == "ok", "kind": kind, "content": content, **more}
    return pen.event("tool.finished", after, **data)


def _asked_and_approved(pen: Pen) -> Iterator[JSON]:
    pen.iteration = 1
    tools = ["read_file", "edit_file", "send_mail", "agent"]
    yield pen.event("model.requested", 0.3, messages=2, input_tokens_estimate=1320, tools=tools)
    edit = {"path": "notes.md", "old": "teh", "new": "the"}
    mail = {"to": "ada@example.org", "body": HOSTILE}
    calls = [
        {"id": "call_0001", "name": "edit_file", "arguments": edit},
        {"id": "call_0002", "name": "send_mail", "arguments": mail},
    ]
    yield _replied(pen, 1.8, "I will mend the spelling first, then write to Ada.", calls)
    edited = {"call_id": "call_0001", "tool": "edit_file"}
    mailed = {"call_id": "call_0002", "tool": "send_mail"}
    yield pen.event("approval.asked", 0.01, **mailed, capability="net")
    yield pen.event("approval.answered", 3.2, **mailed, capability="net", decision="allow")
    yield pen.event("tool.queued", 0.01, **edited, arguments=edit)
    yield pen.event("tool.queued", 0.01, **mailed, arguments=mail)
    yield pen.event("tool.started", 0.05, **edited, arguments=edit, idempotent=False)
    changes = {"created": [], "modified": ["notes.md"], "deleted": []}
    yield _ended(pen, 0.3, edited, "ok", "1 line changed in notes.md", changes=changes)
    yield pen.event("tool.started", 0.02, **mailed, arguments=mail, idempotent=True)
    yield pen.event("tool.retried", 0.4, **mailed, attempt=2, reason="peer reset", delay=0.7)
    sent = "sent " + HOSTILE
    yield _ended(pen, 1.3, mailed, "ok", sent, attempts=2, output="SMTP \x1b[2J250 OK")


def _braked(pen: Pen) -> Iterator[JSON]:
    pen.iteration = 2
    yield pen.event(
        "model.requested", 0.1, messages=6, input_tokens_estimate=1710, tools=["read_file"]
    )
    calls = [
        {"id": f"call_000{n}", "name": "read_file", "arguments": {"path": "notes.md"}}
        for n in (3, 4)
    ]
    yield _replied(pen, 0.9, "", calls)
    text = "\n".join(f"{n}  a line of the notes" for n in range(1, 90))
    for n, (kind, content) in enumerate((("ok", text), ("timeout", "no answer within 10 s")), 3):
        about = {"call_id": f"call_000{n}", "tool": "read_file"}
        yield pen.event("tool.queued", 0.01, **about, arguments={"path": "notes.md"})
        yield pen.event("tool.started", 0.05, **about, arguments={"path": "notes.md"})
        yield _ended(pen, 0.4, about, kind, content, spilled_to="/state/spills/s1/result-1.txt")
    yield pen.event("breaker.opened", 0.01, tool="read_file", pause=60.0)
    yield pen.event("loop.noticed", 0.01, form="identical", count=2, tool="read_file")
    yield pen.event("note.added", 0.01, text="[Loop notice] You just did this.", below=True)
    yield pen.event(
        "context.truncated", 0.01, before_tokens=6100, after_tokens=1900, iterations=[1]
    )
    failed = {"mail": "skills/mail/skill.py:3: SyntaxError: '(' was never closed"}
    yield pen.event(
        "skills.changed", 0.1, added=[], updated=["files"], removed=[], failed=failed, generation=2
    )


def _with_a_helper(pen: Pen) -> Iterator[JSON]:
    pen.iteration = 3
    yield pen.event(
        "model.requested", 0.1, messages=10, input_tokens_estimate=1900, tools=["agent"]
    )
    task = {"task": "Look through the archive."}
    yield _replied(pen, 0.7, "", [{"id": "call_0005", "name": "agent", "arguments": task}])
    about = {"call_id": "call_0005", "tool": "agent"}
    yield pen.event("tool.queued", 0.01, **about, arguments=task)
    yield pen.event("tool.started", 0.01, **about, arguments=task, idempotent=False)
    child = Pen("s1.helper-1")
    child.now, child.seq, child.turn, child.iteration = pen.now, pen.seq, 1, 1
    parent = {"parent": pen.session}
    yield child.event("agent.started", 0.01, agent="default", status="running", **parent)
    yield child.event("turn.started", 0.01, goal=task["task"], **parent)
    yield child.event(
        "model.requested", 0.02, messages=2, input_tokens_estimate=500, tools=[], **parent
    )
    yield child.event(
        "model.replied", 1.2, text="Nothing there.", calls=[], finish_reason="stop", usage=None,
        duration=1.2, **parent,
    )  # fmt: skip
    pen.now, pen.seq = child.now, child.seq
    yield pen.event("agent.finished", 0.02, agent="default", status="completed")
    yield _ended(pen, 0.01, about, "ok", "completed: Nothing there.")

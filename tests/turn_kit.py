"""Turns of a real runner with a scripted model: what it sent, what it did, what the record says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trajectories

from runner import Runner, ScriptedModel, Session, TurnResult
from runner.catalog.functions import tool_from
from runner.events import Event
from runner.types import Message

JSON = dict[str, Any]
LIMIT = 30.0  # seconds a test's turn may take before it is called a hang


def say(text: str, **more: Any) -> JSON:
    """A reply in words."""
    return {"text": text, **more}


def call(tool: str, _id: str = "", **arguments: Any) -> JSON:
    """A reply with one native call."""
    return calls((tool, arguments, _id))


def calls(*wanted: tuple[Any, ...]) -> JSON:
    """A reply with several: `calls(("echo", {"text": "a"}), ("echo", {"text": "b"}, "id"))`."""
    entries = []
    for tool, arguments, *rest in wanted:
        entries.append(
            {"name": tool, "arguments": arguments, **({"id": rest[0]} if any(rest) else {})}
        )
    return {"calls": entries}


def tool(function: Callable[..., Any], **flags: Any) -> Any:
    """A function as a tool with these flags."""
    return tool_from(function, **flags)


@dataclass
class Turns:
    """A runner, its model and everything that happened, while it runs and afterwards."""

    folder: Path
    model: ScriptedModel
    runner: Runner
    events: list[Event] = field(default_factory=list)
    results: list[TurnResult] = field(default_factory=list)
    _waiting: list[tuple[Callable[[Event], bool], asyncio.Future[Event]]] = field(
        default_factory=list
    )

    def listen(self, event: Event) -> None:
        """Hears every event."""
        self.events.append(event)
        for waits, future in self._waiting:
            if not future.done() and waits(event):
                future.set_result(event)

    async def heard(self, type_: str, *, count: int = 1, **data: Any) -> Event:
        """The event of that type with that data, now or as soon as it comes."""

        def fits(event: Event) -> bool:
            return event.type == type_ and all(event.data.get(k) == v for k, v in data.items())

        before = [e for e in self.events if fits(e)]
        if len(before) >= count:
            return before[count - 1]
        left = count - len(before)

        def waits(event: Event) -> bool:
            nonlocal left
            left -= fits(event)
            return left <= 0

        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting.append((waits, future))
        return await asyncio.wait_for(future, LIMIT)

    def of(self, type_: str) -> list[JSON]:
        """The data of all events of a type."""
        return [dict(e.data) for e in self.events if e.type == type_]

    @property
    def types(self) -> list[str]:
        """The types of all events, in order."""
        return [e.type for e in self.events]

    @property
    def finished(self) -> list[JSON]:
        """The finished calls."""
        return self.of("tool.finished")

    @property
    def kinds(self) -> list[str]:
        """What the finished calls came to."""
        return [one["kind"] for one in self.finished]

    @property
    def result(self) -> TurnResult:
        """How the last turn ended."""
        return self.results[-1]

    def sent(self, index: int = -1) -> tuple[Message, ...]:
        """The messages of a model request."""
        return self.model.requests[index].messages

    def tool_messages(self, index: int = -1) -> list[str]:
        """The results in a model request."""
        return [m.content for m in self.sent(index) if m.role == "tool"]

    def records(self, session: str = "s1") -> list[JSON]:
        """The session's record on disk."""
        return trajectories.records(self.folder / "state" / "sessions" / f"{session}.jsonl")

    def all_valid(self) -> bool:
        """True when every provider would have accepted every request."""
        return all(fault(request.messages) == "" for request in self.model.requests)


def fault(messages: Sequence[Message]) -> str:
    """Empty when every provider accepts this history, else what is wrong with it."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message.role == "system" and index:
            return f"system message at {index}"
        if message.role == "tool":
            if not waiting or message.tool_call_id != waiting.pop(0):
                return f"a result without its call at {index}"
            continue
        if waiting:
            return f"{len(waiting)} call(s) unanswered before {index} ({message.role})"
        if index and message.role == messages[index - 1].role == "user":
            return f"two user messages at {index}"
        waiting = [c.id for c in message.tool_calls]
        if len(set(waiting)) != len(waiting) or not all(waiting):
            return f"ids at {index}: {waiting}"
    return f"{len(waiting)} call(s) never answered" if waiting else ""


def settings(folder: Path, **tables: Any) -> Any:
    """A config below the folder that allows everything and is quick; `tables` change it."""
    given: JSON = {
        "permissions": {"fs.read": "allow", "fs.write": "allow", "net": "allow", "exec": "allow"},
        "limits": {"gate_wait": 0.2, "tool_timeout": 5.0},
    }
    for name, values in tables.items():
        given[name] = {**given.get(name, {}), **values}
    return trajectories.config(folder, **given)


@asynccontextmanager
async def turns(
    folder: Path,
    replies: Iterable[JSON],
    *skills: Any,
    approver: Any = None,
    plugins: Iterable[Any] = (),
    environ: dict[str, str] | None = None,
    rules: Sequence[JSON] = (),
    model_object: Any = None,
    config: Any = None,
    repeat_last: bool = False,
    **tables: Any,
) -> AsyncIterator[Turns]:
    """A started runner over the folder."""
    script = {"replies": list(replies), "rules": list(rules), "repeat_last": repeat_last}
    made = model_object or ScriptedModel(script)
    runner = Runner(
        model=made,
        skills=skills,
        plugins=plugins,
        config=config or settings(folder, **tables),
        approver=approver,
        environ=environ,
    )
    async with runner:
        yield Turns(folder, made, runner)


async def one_turn(made: Turns, goal: str = "go", session: str = "s1") -> TurnResult:
    """Runs one turn in a session of the runner."""
    result = await made.runner.run(goal, session=session, listeners=[made.listen])
    made.results.append(result)
    return result


def run(
    folder: Path, replies: Iterable[JSON], *skills: Any, goals: Sequence[str] = ("go",), **more: Any
) -> Turns:
    """Runs the goals in one session, from start to end."""

    async def main() -> Turns:
        async with turns(folder, replies, *skills, **more) as made:
            for goal in goals:
                await asyncio.wait_for(one_turn(made, goal), LIMIT)
            return made

    return asyncio.run(main())


def go(test: Callable[[], Any]) -> Any:
    """Runs a test's coroutine in bounded time."""
    return asyncio.run(asyncio.wait_for(test(), LIMIT))


class Hang:
    """Something a skill can hang on: `wait` returns when the test says so, or after a minute."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.began = threading.Semaphore(0)
        self.count = 0

    def wait(self) -> None:
        """Hangs."""
        self.count += 1
        self.began.release()
        self.free.wait(60)

    async def reached(self, times: int = 1) -> None:
        """Returns once so many more calls hang here."""
        for _ in range(times):
            assert await asyncio.to_thread(self.began.acquire, timeout=LIMIT)


@asynccontextmanager
async def opened(made: Turns, name: str = "s1") -> AsyncIterator[Session]:
    """A session of the runner whose events are heard."""
    async with made.runner.session(name, listeners=[made.listen]) as session:
        yield session


def lines(path: Path) -> list[Any]:
    """The JSON lines of a file; none when there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]

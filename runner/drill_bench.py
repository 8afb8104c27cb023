"""The bench a tool is drilled on: a runner of its own, a model that only calls, faults on order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .calls.breaker import Breaker
from .catalog.skill import Skill
from .config import Config
from .events import Event
from .model.base import CallPart, Chunk, ModelInfo, ModelRequest
from .runner import Runner
from .session import Session
from .settings import PermissionsConfig
from .skill import ToolError
from .types import JSON, Entry, SessionInfo, Tool, ToolCall, Usage

Act = Literal["works", "hangs", "breaks", "drops", "objects"]
DEADLINE = 0.2  # seconds a drilled call gets
LATE = 3.0  # seconds a call that was let go has to end
_HANG_LIMIT = 60.0
_POLL = 0.01
_CONTEXT = "__context"
STAND_IN = "drilled: a stand-in for the tool's own result"


@dataclass(slots=True)
class Fault:
    """A function that does what the drill says next, and remembers the keys it was called with.

    `own` is the tool's own code, run where the tool works or hangs; None leaves it out.
    """

    own: Entry | None = None
    asynchronous: bool = False
    script: deque[Act] = field(default_factory=deque)
    keys: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def entry(self) -> Entry:
        """What the tool loads instead of its own function, `async` if that is."""
        return Entry(self._later if self.asynchronous else self._now, _CONTEXT, self.asynchronous)

    def _now(self, **given: Any) -> Any:
        act, own = self._begin(given)
        value = own() if own is not None else STAND_IN
        if act == "hangs":
            self.released.wait(_HANG_LIMIT)
        return value

    async def _later(self, **given: Any) -> Any:
        act, own = self._begin(given)
        value = await own() if own is not None else STAND_IN
        if act == "hangs":
            await _until(self.released.is_set, _HANG_LIMIT)
        return value

    def _begin(self, given: dict[str, Any]) -> tuple[Act, Callable[[], Any] | None]:
        """What this attempt is to do, and the tool's own code where it may run."""
        context = given.pop(_CONTEXT)
        self.keys.append(context.idempotency_key)
        act = self.script.popleft() if self.script else "works"
        match act:
            case "breaks":
                raise RuntimeError("drilled: the tool is broken")
            case "drops":
                raise ConnectionError("drilled: the connection was cut off")
            case "objects":
                raise ToolError("drilled: the arguments are wrong")
        own = self.own
        if own is None:
            return act, None
        extra = {own.context_parameter: context} if own.context_parameter else {}
        return act, lambda: own.function(**given, **extra)


@dataclass(slots=True)
class Reconcile:
    """What the tool's `reconcile` answers: the next of `answers`, else that it cannot say."""

    answers: deque[str] = field(default_factory=deque)
    own: bool = False

    def entry(self) -> Entry:
        """What is loaded instead of the tool's own."""
        return Entry(lambda **_given: self.answers.popleft() if self.answers else "unknown")


class _Caller:
    """The null model: asks for the call it is given, then ends the turn."""

    name = "drill"

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self.arguments: JSON | None = None

    async def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        arguments, self.arguments = self.arguments, None
        if arguments is None:
            yield Chunk(text="drilled", finish="stop")
            return
        yield Chunk(call=CallPart(index=0, name=self._tool, arguments=arguments))
        yield Chunk(finish="tool_calls")

    async def describe(self) -> ModelInfo:
        return ModelInfo(name=self.name, context_window=200_000, tools=True)

    def cost(self, usage: Usage) -> float:
        return 0.0

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class Clock:
    """Monotonic time that can be moved forward; only the breaker looks at it."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass(slots=True, kw_only=True)
class Bench:
    """One runner, one session, one tool whose function is the `fault`."""

    runner: Runner
    session: Session
    tool: Tool
    arguments: JSON
    fault: Fault
    model: _Caller
    reconcile: Reconcile
    events: list[Event]
    clock: Clock = field(default_factory=Clock)

    async def call(self, *script: Act) -> Mapping[str, Any]:
        """One call through all gates, its attempts as scripted; the data of `tool.finished`."""
        self.fault.script.extend(script)
        self.model.arguments, before = self.arguments, len(self.events)
        await self.session.run("drill")
        self.fault.script.clear()
        done = [e for e in self.events[before:] if e.type == "tool.finished"]
        return done[0].data if done else {"kind": "cancelled", "content": "", "ok": False}

    @property
    def breaker(self) -> Breaker:
        """The tool's breaker."""
        return self.runner.shared.breaker(self.tool.name)

    def heard(self, type_: str) -> list[Event]:
        """The events of that type so far."""
        return [event for event in self.events if event.type == type_]

    def places(self) -> int:
        """Calls that still have a place."""
        return self.runner.shared.gate(self.tool).used

    async def let_go(self) -> bool:
        """Lets the calls that hang end; true when all have in time."""
        self.fault.released.set()
        abandoned = self.runner.shared.abandoned
        return await _until(lambda: not abandoned, LATE)


@asynccontextmanager
async def bench(
    config: Config,
    skill: Skill,
    tool: Tool,
    arguments: JSON,
    *,
    fallbacks: Sequence[Tool] = (),
    own: Entry | None = None,
    asynchronous: bool = False,
    really: bool = False,
    retries: int | None = None,
) -> AsyncIterator[Bench]:
    """A fresh bench. `own` runs where the tool is to work; `really` leaves fallbacks as they are."""
    fault, reconcile = Fault(own, asynchronous), Reconcile()
    drilled = replace(
        tool,
        flags=replace(
            tool.flags, timeout=DEADLINE, isolation="thread", max_concurrency=1,
            retries=tool.flags.retries if retries is None else retries,
        ),
        code=None,
        load=fault.entry,
        load_named=_named(tool, reconcile, really=really),
    )  # fmt: skip
    others = [other if really else _stood_in(other) for other in fallbacks]
    stand = replace(skill, state="ready", hooks=(), tools=(drilled, *others), load_module=None)
    model, events = _Caller(tool.name), list[Event]()
    runner = Runner(
        model=model, skills=[stand], config=_short(config), approver=_agrees, record=False
    )
    clock = Clock()
    async with runner, runner.session(listeners=[events.append], stream=False) as session:
        c = config.breaker
        runner.shared.breakers[tool.name] = Breaker(c.failures, c.pause, c.max_pause, clock)
        made = Bench(
            runner=runner, session=session, tool=drilled, arguments=arguments, fault=fault,
            model=model, reconcile=reconcile, events=events, clock=clock,
        )  # fmt: skip
        try:
            yield made
        finally:
            fault.released.set()


async def _until(true: Callable[[], bool], limit: float) -> bool:
    """Waits until it is true, or so many seconds; threads end when they want to and tell nobody."""
    until = time.monotonic() + limit
    while not true() and time.monotonic() < until:  # noqa: ASYNC110 - set from any thread
        await asyncio.sleep(_POLL)
    return true()


def _short(config: Config) -> Config:
    """The config without what would wait, watch or be about other skills."""
    return replace(
        config,
        limits=replace(config.limits, slots=1, gate_wait=0.05, max_offered_tools=1000),
        watch=replace(config.watch, backend="off"),
        paths=replace(config.paths, skills=()),
        model=replace(config.model, tool_mode="native", context_window=0),
        permissions=_asking_nobody(config.permissions),
    )


async def _agrees(_call: ToolCall, _tool: Tool, _session: SessionInfo) -> str:
    return "allow"


_agrees.automatic = True  # type: ignore[attr-defined] # no person has looked at the call


def _asking_nobody(rules: PermissionsConfig) -> PermissionsConfig:
    """Whoever drills a tool has agreed to its calls; what is denied stays denied."""

    def agreed(action: Any) -> Any:
        return "allow" if action == "ask" else action

    return replace(
        rules,
        **{
            name: agreed(getattr(rules, name))
            for name in ("fs_read", "fs_write", "net", "exec", "env")
        },
        tools={name: agreed(action) for name, action in rules.tools.items()},
        scoped={name: agreed(action) for name, action in rules.scoped.items()},
    )


def _named(tool: Tool, reconcile: Reconcile, *, really: bool) -> Callable[[str], Entry]:
    """What `module:function` loads: what reconcile answers is scripted, a fallback stands in."""
    own = tool.load_named

    def load(name: str) -> Entry:
        if name == tool.flags.reconcile and not reconcile.own:
            return reconcile.entry()
        if really and own is not None:
            return own(name)
        return Entry(lambda **_given: f"drilled: a stand-in for {name}")

    return load


def _stood_in(tool: Tool) -> Tool:
    entry = Entry(lambda **_given: f"drilled: a stand-in for {tool.name}")
    flags = replace(tool.flags, isolation="thread")
    return replace(tool, flags=flags, load=lambda: entry, code=None)

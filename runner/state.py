"""What lives longer than a call: a turn, a session, and what all sessions share."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .calls.baselines import Baselines
from .calls.breaker import Breaker
from .calls.gate import Gate
from .calls.ledger import Ledger
from .calls.locks import PathLocks
from .calls.permissions import Policy
from .calls.process import Processes
from .calls.worker import Job, SkillLoop, Workers
from .config import Config
from .context.history import Checker
from .context.loopguard import LoopGuard
from .context.window import Window
from .events import PLAIN_FIELDS, Emit, Event, Listener, now
from .log import get_logger
from .model.ask import Silence
from .model.base import Model, ModelInfo
from .plugins import Plugins
from .record.trajectory import Trajectory
from .redact import Redactor
from .slots import ModelGate
from .types import JSON, NOTHING, Message, SessionInfo, Status, Tool, ToolCall, Usage

LOCAL_REQUESTS, CLOUD_REQUESTS = 1, 5  # at once, unless the config says so
GRACE_SECONDS = 1.0  # what a cancelled turn still gives to snapshots and hooks, all together
log = get_logger()
Approver = Callable[[ToolCall, Tool, SessionInfo], Awaitable[Any]]


class TurnCancelled(Exception):
    """Somebody cancelled the turn while it was waiting."""


class TurnEnded(Exception):
    """A brake ends the turn: status, and what is to be said when the model says nothing."""

    def __init__(self, status: Status, reason: str, *, closing: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.closing = closing


@dataclass(slots=True, kw_only=True)
class Turn:
    """One turn under way."""

    number: int
    goal: str
    guard: LoopGuard
    began: float
    deadline: float | None = None
    iteration: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    cancelled: bool = False
    nudges: int = 0
    faults: int = 0
    overflows: int = 0
    restate: bool = False
    steered: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    running: dict[str, Callable[[], Any]] = field(default_factory=dict)
    cancelled_calls: set[str] = field(default_factory=set)
    used: dict[str, JSON] = field(default_factory=dict)
    outer: Outer | None = None
    helpers: set[Callable[[], Any]] = field(default_factory=set)
    alike: dict[str, asyncio.Future[None]] = field(default_factory=dict)  # equal calls, one by one
    _cancellers: set[Callable[[], Any]] = field(default_factory=set)
    _patient_until: float = 0.0

    def cancel(self) -> None:
        """Ends whatever the turn is waiting for. A second time does nothing."""
        if self.cancelled:
            return
        self.cancelled = True
        self._patient_until = time.monotonic() + GRACE_SECONDS
        for stop in {*self.running.values(), *self._cancellers}:
            stop()

    def steer(self, text: str) -> None:
        """Says something at the next iteration. Agents at work end with what they have, so it comes soon."""
        self.steered.append(text)
        for stop in tuple(self.helpers):
            stop()

    def cancel_call(self, call_id: str) -> bool:
        """Ends one call; False when it is not running."""
        stop = self.running.get(call_id)
        if stop is None:
            return False
        self.cancelled_calls.add(call_id)
        stop()
        return True

    def cancellable(self, stop: Callable[[], Any], call_id: str = "") -> _Cancellable:
        """While inside, cancelling the turn, or the call of that id, calls `stop`."""
        return _Cancellable(self._cancellers, self.running, stop, call_id)

    async def wait(self, awaitable: Awaitable[Any], call_id: str = "") -> Any:
        """Awaits it, or raises `TurnCancelled` as soon as the turn, or that call, is cancelled."""
        if self.cancelled or call_id in self.cancelled_calls:
            _close(awaitable)
            raise TurnCancelled
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - there is always one where one can await
        with self.cancellable(task.cancel, call_id):
            try:
                return await awaitable
            except asyncio.CancelledError:
                if not self.cancelled and call_id not in self.cancelled_calls:
                    raise
                task.uncancel()
                raise TurnCancelled from None

    async def see_out(self, awaitable: Awaitable[Any]) -> Any:
        """Awaits it, also after a cancel, but then not for long: None when it did not end in time."""
        task = asyncio.ensure_future(awaitable)
        try:
            return await self.wait(asyncio.shield(task))
        except TurnCancelled:
            await asyncio.wait([task], timeout=max(0.0, self._patient_until - time.monotonic()))
            if task.done():
                return task.result()
            task.cancel()
            return None


class _Cancellable:
    """A context manager as a class: several are entered in each iteration, and this is the cheap kind."""

    __slots__ = ("_all", "_call_id", "_new", "_running", "_stop")

    def __init__(
        self,
        all_: set[Callable[[], Any]],
        running: dict[str, Callable[[], Any]],
        stop: Callable[[], Any],
        call_id: str,
    ) -> None:
        self._all, self._running, self._stop, self._call_id = all_, running, stop, call_id

    def __enter__(self) -> None:
        self._new = self._stop not in self._all
        self._all.add(self._stop)
        if self._call_id:
            self._running[self._call_id] = self._stop

    def __exit__(self, *_: object) -> None:
        self._running.pop(self._call_id, None)
        if self._new:
            self._all.discard(self._stop)


class Reporter:
    """Numbers, redacts and hands out a session's events. A child's events join its parent's."""

    def __init__(
        self,
        redactor: Redactor,
        *,
        session: str,
        trajectory: Trajectory | None = None,
        first: int = 0,
        extra: Mapping[str, Any] = NOTHING,
    ) -> None:
        self._redactor = redactor
        self._session = session
        self._extra = extra
        self.trajectory = trajectory
        self.listeners: list[Listener] = []
        self.seq = first
        self.turn = 0
        self.iteration = 0
        self._root = self

    def child(self, session: str) -> Reporter:
        """A reporter whose events appear in this one's stream, with the child's session."""
        child = Reporter(self._redactor, session=session, extra={"parent": self._session})
        child._root = self._root
        return child

    def emit(self, type_: str, *, clean: Mapping[str, Any] = NOTHING, **data: Any) -> None:
        """Records an event. `clean` holds values that were redacted already."""
        root = self._root
        root.seq += 1
        for key in data.keys() - PLAIN_FIELDS:
            data[key] = self._redactor.value(data[key])
        if clean:
            data.update(clean)
        if self._extra:
            data.update(self._extra)
        event = Event(root.seq, now(), self._session, self.turn, self.iteration, type_, data)
        if root.trajectory is not None:
            root.trajectory.append(event)
        for listener in root.listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - observing never breaks what is observed
                log.warning("listener.failed", error=repr(error))

    def sync(self) -> None:
        """Makes the record survive a power loss, where the session asked for it."""
        if self._root.trajectory is not None:
            self._root.trajectory.sync()


@dataclass(slots=True, kw_only=True)
class SessionState:
    """One conversation: its transcript, working folder, side effects and limits."""

    id: str
    config: Config
    model: Model
    info: ModelInfo
    policy: Policy
    workspace: Path
    baselines: Baselines
    cwd: Path
    ledger: Ledger
    window: Window
    reporter: Reporter
    context_window: int
    mode: str  # "native" or "json": how this session's model is given its tools
    stream: bool = True
    only_skills: frozenset[str] | None = None
    prompt: str = ""
    parent: str | None = None
    agent: str | None = None
    turns: int = 0
    turn: Turn | None = None
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    transcript: list[Message] = field(default_factory=list)
    remembered: dict[str, bool] = field(default_factory=dict)
    opened_skills: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)
    warned: set[str] = field(default_factory=set)
    spilled: bool = False
    may_remember: bool = False
    calibrated: bool = False
    text_calls: int = 0
    ids: int = 0
    silence: Silence = field(default_factory=Silence)
    schema_refused: bool = False
    prepared: Any = None
    prepared_for: Any = None
    checker: Checker = field(default_factory=Checker)
    on_text: Callable[[str], None] | None = None
    on_reasoning: Callable[[str], None] | None = None
    on_restart: Callable[[], None] | None = None
    moves: dict[str, Path] = field(default_factory=dict)
    recent_outputs: list[str] = field(default_factory=list)
    emit: Emit = field(init=False)  # records an event: `emit("tool.started", call_id=…)`

    def __post_init__(self) -> None:
        self.emit = self.reporter.emit

    def add(self, message: Message) -> None:
        """Appends to the transcript, which is never edited, and to the context."""
        self.transcript.append(message)
        self.window.add(message)

    def next_id(self) -> str:
        """A call id that is unique in this session and accepted by every provider."""
        self.ids += 1
        return f"call_{self.ids:04d}"

    def describe(self) -> SessionInfo:
        """The frozen description that hooks and approvers see."""
        turn = self.turn
        return SessionInfo(
            id=self.id,
            workspace=str(self.workspace),
            model=self.model.name,
            turn=self.turns,
            iteration=turn.iteration if turn else 0,
            parent=self.parent,
            agent=self.agent,
        )


@dataclass(frozen=True, slots=True)
class Outer:
    """What a sub-agent's turn works for: the turn that pays for it and whose limits bind it, too."""

    session: SessionState
    turn: Turn


def charge(session: SessionState, turn: Turn, usage: Usage) -> None:
    """Adds a request's tokens and cost to the turn and its session, and to those they work for."""
    cost = session.model.cost(usage)
    while True:
        turn.usage += usage
        turn.cost += cost
        session.usage += usage
        session.cost += cost
        if turn.outer is None:
            return
        session, turn = turn.outer.session, turn.outer.turn


@dataclass(slots=True, kw_only=True)
class Shared:
    """What all sessions of a runner share. Changed on the core loop only."""

    config: Config
    registry: Any  # catalog.registry.Registry, or anything with `snapshot`
    workers: Workers
    skill_loop: SkillLoop
    processes: Processes
    plugins: Plugins
    redactor: Redactor
    locks: PathLocks
    model_gate: ModelGate
    protected: tuple[Path, ...] = ()
    approver: Approver | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    breakers: dict[str, Breaker] = field(default_factory=dict)
    gates: dict[str, Gate] = field(default_factory=dict)
    in_flight: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)  # tools whose last call was not over at once
    loaded: set[tuple[str, int]] = field(default_factory=set)  # skill and generation
    stuck: Counter[str] = field(default_factory=Counter)  # calls past their deadline, by skill
    edits_pending: Callable[[], bool] = lambda: False  # a saved skill is not in the registry yet
    abandoned: dict[int, tuple[str, Job]] = field(default_factory=dict)
    home: str = ""  # the process's working folder, while calls run
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    built_ins: dict[str, Tool] = field(default_factory=dict)
    spills: Path = Path()
    model_for: Callable[[str], Awaitable[Model]] | None = None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    sessions: dict[str, SessionState] = field(default_factory=dict)
    snapshot_skip: frozenset[str] = frozenset()
    model_gates: dict[str, ModelGate] = field(default_factory=dict)

    def asking_gate(self, info: ModelInfo, name: str) -> ModelGate:
        """The right to ask a model. Those of this machine share theirs, any other has its own."""
        key = "" if info.local else name
        if key not in self.model_gates:
            usual = LOCAL_REQUESTS if info.local else CLOUD_REQUESTS
            self.model_gates[key] = ModelGate(self.config.model.max_concurrency or usual)
        return self.model_gates[key]

    def breaker(self, tool: str) -> Breaker:
        """The tool's breaker, shared by all sessions because its peer is."""
        if tool not in self.breakers:
            c = self.config.breaker
            self.breakers[tool] = Breaker(c.failures, c.pause, c.max_pause, self.clock)
        return self.breakers[tool]

    def gate(self, tool: Tool, where: str = "thread") -> Gate:
        """The tool's places; a changed limit, or another place to run, means a new gate."""
        key = f"{tool.name}:{tool.flags.places}"
        key = key if where == "thread" else f"{key}:{where}"
        if key not in self.gates:
            self.gates[key] = Gate(tool.flags.places)
        return self.gates[key]


def working_folder() -> str:
    """The process's working folder; empty when there is none any more."""
    try:
        return os.getcwd()  # noqa: PTH109 - the path as a text, once per call
    except FileNotFoundError:
        return ""


def _close(awaitable: Any) -> None:
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()

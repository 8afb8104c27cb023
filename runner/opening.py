"""How a session begins: new or rebuilt from its trajectory, with its limits, folder and record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .calls.baselines import Baselines
from .calls.ledger import Ledger
from .calls.permissions import Policy
from .config import Config
from .context.loopguard import LoopGuard
from .context.window import Window
from .events import SCHEMA, Listener
from .log import get_logger
from .memory import asks_to_remember
from .model.base import Model, ModelInfo
from .record.resume import Rebuilt, rebuild
from .record.trajectory import Trajectory, check_id, file_of
from .state import Reporter, SessionState, Shared, Turn, working_folder
from .types import Message

DEFAULT_WINDOW = 8192  # tokens, when neither the config nor the server says
OLLAMA_WINDOW = (
    16_384  # at most, unless the config says more: the trained maximum fills small machines
)
log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a session is opened with."""

    id: str
    config: Config
    model: Model
    info: ModelInfo
    policy: Policy
    workspace: Path
    prompt: str = ""
    record: bool = True
    listeners: Sequence[Listener] = ()
    only_skills: frozenset[str] | None = None
    stream: bool = True


def new_id() -> str:
    """A fresh session id."""
    return os.urandom(6).hex()


async def open_state(shared: Shared, plan: Plan) -> SessionState:
    """The session's state, rebuilt when its trajectory exists. Emits `session.started`."""
    if not plan.record:
        return await _begun(shared, plan, Rebuilt(), None)
    fsync = plan.config.record.durability == "power"
    trajectory = Trajectory(file_of(plan.config.paths.state, check_id(plan.id)), fsync=fsync)
    try:
        loaded = trajectory.load()
        rebuilt = rebuild(loaded.records, plan.id)
        for sentence in (*loaded.damage, *rebuilt.damage):
            log.warning("record.damaged", what=sentence)
        return await _begun(shared, plan, rebuilt, trajectory)
    except BaseException:
        trajectory.close()  # whoever tries again must not find it locked by us
        raise


async def _begun(
    shared: Shared, plan: Plan, rebuilt: Rebuilt, trajectory: Trajectory | None
) -> SessionState:
    reporter = Reporter(shared.redactor, session=plan.id, trajectory=trajectory, first=rebuilt.seq)
    reporter.listeners += plan.listeners
    state = make_state(plan, reporter)
    _restore(state, rebuilt)
    snapshot = shared.registry.snapshot
    state.emit(
        "session.started",
        model=plan.model.name,
        skills=[s.name for s in snapshot.skills if s.live],
        schema=SCHEMA,
        context_window=state.context_window,
    )
    if shared.plugins.has("session_started"):
        await shared.plugins.notify("session_started", session=state.describe())
    shared.sessions[plan.id] = state
    return state


def make_state(plan: Plan, reporter: Reporter) -> SessionState:
    """A session with nothing in it yet."""
    return SessionState(
        id=plan.id,
        config=plan.config,
        model=plan.model,
        info=plan.info,
        policy=plan.policy,
        workspace=plan.workspace,
        baselines=Baselines(),
        cwd=plan.workspace,
        ledger=Ledger(plan.id),
        window=Window((Message(role="system", content="-"),)),
        reporter=reporter,
        context_window=window_of(plan.config, plan.info),
        mode=mode_of(plan.config, plan.info),
        prompt=plan.prompt,
        only_skills=plan.only_skills,
        stream=plan.stream,
    )


def window_of(config: Config, info: ModelInfo) -> int:
    """Tokens of context: from the config, else what the server says, else 8,192."""
    if config.model.context_window:
        return config.model.context_window
    said = info.context_window or DEFAULT_WINDOW
    return min(said, OLLAMA_WINDOW) if info.name.startswith("ollama") else said


def mode_of(config: Config, info: ModelInfo) -> str:
    """How tools are given to the model: native calls, unless it cannot, is small, or the config says text."""
    wanted = config.model.tool_mode
    if wanted != "auto":
        return wanted
    return "json" if info.tools is False or info.small else "native"


def begin_turn(shared: Shared, session: SessionState, goal: str) -> Turn:
    """The next turn of the session. Emits `turn.started`."""
    c = session.config
    now = shared.clock()
    session.turns += 1
    if not shared.in_flight and not shared.abandoned:
        shared.home = working_folder()  # the host may have moved, no skill can have
    turn = Turn(
        number=session.turns,
        goal=goal,
        guard=LoopGuard(
            warn=c.loop.warn, refuse=c.loop.refuse, stop=c.loop.stop, similarity=c.loop.similarity
        ),
        began=now,
        deadline=now + c.limits.turn_timeout if c.limits.turn_timeout else None,
    )
    session.turn = turn
    session.may_remember = session.parent is None and asks_to_remember(goal)
    session.ledger.begin_turn(turn.number)
    session.reporter.turn, session.reporter.iteration = turn.number, 0
    session.emit("turn.started", goal=goal)
    session.add(Message(role="user", content=goal, mark="goal"))
    return turn


async def close_state(shared: Shared, state: SessionState) -> None:
    """Ends a session: its record is closed and its lock given back."""
    shared.sessions.pop(state.id, None)
    state.silence.close()
    if shared.plugins.has("session_finished"):
        await shared.plugins.notify("session_finished", session=state.describe())
    if state.reporter.trajectory is not None:
        state.reporter.trajectory.close()
        state.reporter.trajectory = None


def _restore(state: SessionState, rebuilt: Rebuilt) -> None:
    for message in rebuilt.messages:
        state.add(message)
    for lost in rebuilt.lost.values():
        state.ledger.lose(lost.fingerprint, lost.tool, lost.key, lost.how)
    for fingerprint, key in rebuilt.open_keys.items():
        state.ledger.keep_key(fingerprint, key)
    state.turns, state.ids, state.spilled = rebuilt.turns, rebuilt.ids, rebuilt.spilled

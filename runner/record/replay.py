"""Replay: a recorded session run again, with recorded results or live skills, and compared.

The real loop runs: parser, admission, loop guard and history. The model is never asked, and in a
pure replay no tool runs and nothing is read but the record. A turn that was taken back runs, since
what its tools did stayed done, and is then taken back again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ..config import Config
from ..context.history import problem, valid
from ..errors import SessionError
from ..loop import run_turn
from ..model.scripted import ScriptedModel
from ..opening import begin_turn
from ..revise import undo
from ..runner import Runner
from ..session import Session
from ..settings import HooksConfig
from ..state import Approver, SessionState, Shared
from ..types import JSON, Message
from .divergence import Divergence
from .player import Over, Player
from .tools import RecordedTools
from .turns import RecordedTurn, Story, figure, load, story

UNLIMITED = 10**9
NO_MODEL: JSON = {"replies": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay came to. `left_out`: call id → why the skill was not run."""

    story: Story
    live: bool
    messages: tuple[Message, ...]
    compared: int
    ran: int
    left_out: dict[str, str]
    damage: tuple[str, ...]
    divergence: Divergence | None

    def to_dict(self) -> JSON:
        """The object of `trace replay --json`."""
        return {
            "session": self.story.session,
            "mode": "live" if self.live else "pure",
            "turns": [
                {
                    "turn": t.number,
                    "status": t.status,
                    "iterations": len(t.replies),
                    "undone": t.undone_after > 0,
                }
                for t in self.story.turns
            ],
            "calls": self.compared,
            "ran": self.ran,
            "left_out": [{"call_id": i, "why": why} for i, why in self.left_out.items()],
            "answer": self.story.answer,
            "damage": list(self.damage),
            "divergence": self.divergence.to_dict() if self.divergence else None,
        }


async def replay(
    config: Config,
    session: str,
    *,
    live: bool = False,
    start: int = 1,
    approver: Approver | None = None,
) -> Replayed:
    """Runs the session again. Iterations before `start` stand as recorded.

    `live`: the calls run with today's skills, through admission; what asks for permission is
    left out unless `approver` allows it.
    """
    loaded = load(config.paths.state, session)
    told = story(loaded.records, session)
    settings = _live_config(config) if live else _pure_config(config)
    with ExitStack() as stack:
        runner = Runner(
            model=ScriptedModel(NO_MODEL),
            config=settings,
            environ=None if live else {},
            record=False,
        )
        async with runner, runner.session(session, stream=False) as opened:
            state = _opened(opened)
            player = Player(told, state, live=live, start=start, ask=approver)
            if live:
                folder = tempfile.TemporaryDirectory(prefix="runner-replay-")
                runner.shared.spills = Path(stack.enter_context(folder))
                runner.shared.approver = player.approver
            else:
                runner.shared.registry.close()
                player.tools = RecordedTools(told)
                runner.shared.registry, runner.shared.built_ins = player.tools, {}
            await _play(runner.shared, state, player)
    return Replayed(
        story=told,
        live=live,
        messages=tuple(state.transcript),
        compared=player.compared,
        ran=player.ran,
        left_out=player.left_out,
        damage=tuple(loaded.damage),
        divergence=player.divergence or _history(state.transcript, told),
    )


async def _play(shared: Shared, state: SessionState, player: Player) -> None:
    state.model = player
    state.reporter.listeners.append(player.heard)
    shared.plugins.register(player, "replay")
    limits = state.config.limits
    for turn in player.told.turns:
        most = len(turn.replies) + 1
        if turn.status == "max_iterations" and turn.finished:
            most = int(figure(turn.finished.get("iterations"))) or most
        state.config = replace(state.config, limits=replace(limits, max_iterations=most))
        if not await _turn(shared, state, player, turn):
            return
        for _ in player.told.undone_after(turn):
            undo(state)


async def _turn(shared: Shared, state: SessionState, player: Player, turn: RecordedTurn) -> bool:
    """One turn; False when the replay is over."""
    player.begin(turn)
    try:
        result = await run_turn(shared, state, begin_turn(shared, state, turn.goal))
        player.end(result.status.value, result.answer)
    except Over:
        return player.divergence is None
    return True


def _history(messages: Sequence[Message], told: Story) -> Divergence | None:
    """The checker's word on the whole conversation."""
    head = Message(role="system", content="-")
    wrong = problem(valid([head, *messages])) if messages else ""
    if not wrong:
        return None
    return Divergence(
        what="the history", turn=len(told.turns), number=0, recorded="valid", now=wrong
    )


def _opened(session: Session) -> SessionState:
    if session.state is None:
        raise SessionError(f"session {session.id!r} is closed")
    return session.state


def _live_config(config: Config) -> Config:
    """As configured, but that nothing ends a turn, changes under way or stays behind."""
    limits = replace(config.limits, turn_timeout=0.0, max_total_tokens=0, max_cost=0.0)
    return replace(config, limits=limits, watch=replace(config.watch, backend="off"))


def _pure_config(config: Config) -> Config:
    """No skills, no plugins, no hooks and no limits of size: recorded results stand as they are."""
    live = _live_config(config)
    return replace(
        live,
        model=replace(config.model, context_window=UNLIMITED),
        limits=replace(live.limits, max_offered_tools=UNLIMITED),
        results=replace(
            config.results,
            max_chars=UNLIMITED,
            line_chars=UNLIMITED,
            spill_chars=UNLIMITED,
            batch_chars=UNLIMITED,
        ),
        paths=replace(config.paths, skills=()),
        hooks=HooksConfig(),
        plugins=replace(config.plugins, modules=()),
        memory=replace(config.memory, enabled=False),
        agents={},
    )

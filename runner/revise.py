"""What a person changes between two turns: a turn taken back, a smaller context, another model."""

from __future__ import annotations

from .context.history import Checker
from .context.loopguard import LoopGuard
from .context.window import Step, Window
from .errors import SessionError
from .opening import mode_of, window_of
from .record.resume import before_last_goal
from .state import SessionState, Shared, Turn
from .summary import summarise

SHARE = 0.5  # of the context as it stands: what a person who asks for less is given


def undo(state: SessionState) -> str:
    """Takes the last turn out of the conversation; its goal. What its tools did stays done."""
    kept, goal = before_last_goal(state.transcript)
    if goal is None:
        raise SessionError(f"session {state.id!r} has no turn that could be taken back")
    window = Window(state.window.head, calibration=state.window.calibration)
    for message in kept:
        window.add(message)
    state.transcript, state.window, state.checker = kept, window, Checker()
    state.emit("turn.undone", goal=goal)
    return goal


async def compact(shared: Shared, state: SessionState) -> list[Step]:
    """Makes the context half as large, as an overflow would: truncate, summarise, slide."""
    turn = Turn(number=state.turns, goal=state.window.goal, guard=_guard(state), began=0.0)
    window, budget = state.window, max(1, int(state.window.tokens * SHARE))
    steps = [window.truncate(budget)]
    if window.tokens > budget and state.config.context.summarise:
        steps.append(await summarise(shared, state, turn, window.oldest(budget)))
    if window.tokens > budget:
        steps.append(window.slide(budget))
    made = [step for step in steps if step is not None]
    for step in made:
        state.emit(
            f"context.{step.name}",
            before_tokens=step.before_tokens,
            after_tokens=step.after_tokens,
            iterations=step.iterations,
        )
    return made


async def use_model(shared: Shared, state: SessionState, name: str) -> None:
    """Gives the session another model; the conversation stays."""
    if shared.model_for is None:
        raise SessionError("this runner cannot make another model")
    model = await shared.model_for(name)
    info = await model.describe()
    state.model, state.info = model, info
    state.mode, state.context_window = mode_of(state.config, info), window_of(state.config, info)
    state.prepared = state.prepared_for = None
    state.schema_refused = state.calibrated = False
    state.emit("model.changed", model=model.name)


def _guard(state: SessionState) -> LoopGuard:
    loop = state.config.loop
    return LoopGuard(warn=loop.warn, refuse=loop.refuse, stop=loop.stop, similarity=loop.similarity)

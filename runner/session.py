"""One conversation. Turns run one at a time; each ends with a result, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from . import revise
from .context.window import Step
from .endings import account, ended
from .errors import SessionError
from .events import Event, Listener
from .loop import run_turn
from .opening import Plan, begin_turn, close_state, open_state
from .slots import Slots
from .state import SessionState, Shared, Turn, TurnCancelled
from .types import Status, TurnResult

PATIENCE = 5.0  # seconds a cancelled turn gets to put its placeholders in order


class Session:
    """Use as `async with runner.session() as session`. Not for several tasks at once."""

    def __init__(self, shared: Shared, slots: Slots, plan: Plan) -> None:
        self._shared = shared
        self._slots = slots
        self._plan = plan
        self._listeners: list[Listener] = []  # registered before it was opened
        self._state: SessionState | None = None
        self._busy = False
        self._free = asyncio.Event()
        self._running: asyncio.Future[TurnResult] | None = None

    @property
    def id(self) -> str:
        """The session's name."""
        return self._plan.id

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def listen(self, listener: Listener) -> None:
        """Calls it with every event from now on. It must not block."""
        self._listeners.append(listener)
        if self._state is not None:
            self._state.reporter.listeners.append(listener)

    async def run(self, goal: str) -> TurnResult:
        """One turn. Raises `SessionError` when one is under way, `RecordError` when it cannot be kept."""
        if not isinstance(goal, str) or not goal.strip():
            raise SessionError("the goal is empty; say what is to be done")
        state = await self._open()
        if self._busy:
            await self._let_go(state)
        if self._busy:
            raise SessionError(f"session {self.id!r} is in the middle of a turn; use steer()")
        self._busy = True
        self._free.clear()
        try:
            turn = begin_turn(self._shared, state, goal)
            task = self._running = asyncio.ensure_future(self._slotted(state, turn))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                turn.cancel()
                await asyncio.wait([task], timeout=PATIENCE)
                task.cancel()
                raise
        finally:
            self._busy = False
            self._running = None
            state.turn = None
            self._free.set()

    async def stream(self, goal: str) -> AsyncIterator[Event]:
        """One turn as its events, the last one `turn.finished`. Whoever breaks off cancels the turn."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        state = await self._open()
        state.reporter.listeners.append(queue.put_nowait)
        task = asyncio.ensure_future(self.run(goal))
        task.add_done_callback(lambda _t: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            await task
        finally:
            state.reporter.listeners.remove(queue.put_nowait)
            if not task.done():
                self.cancel()
                await asyncio.wait([task], timeout=PATIENCE)

    def cancel(self) -> None:
        """Ends the turn under way; its result says `cancelled`."""
        if self._state is not None and self._state.turn is not None:
            self._state.turn.cancel()

    def cancel_call(self, call_id: str) -> bool:
        """Ends one running call; the turn goes on. False when it is not running."""
        turn = self._state.turn if self._state is not None else None
        return turn is not None and turn.cancel_call(call_id)

    def steer(self, text: str) -> None:
        """Says something to the model at the next iteration of the turn under way."""
        if self._state is None or self._state.turn is None:
            raise SessionError("there is no turn to steer; use run()")
        self._state.turn.steer(text)

    async def undo(self) -> str:
        """Takes the last turn out of the conversation and gives its goal, to be run again or not.

        What its tools did stays done. Raises `SessionError` in the middle of a turn, or without one.
        """
        return revise.undo(await self._idle())

    async def compact(self) -> list[Step]:
        """Makes the context about half as large; the steps it took. Raises in the middle of a turn."""
        return await revise.compact(self._shared, await self._idle())

    async def use_model(self, name: str) -> None:
        """Goes on with another model, `PROVIDER/MODEL`. Raises `ConfigError` or `ModelError`."""
        await revise.use_model(self._shared, await self._idle(), name)

    async def close(self) -> None:
        """Lets the session go; it can be resumed by its id."""
        self.cancel()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=PATIENCE)
        if self._state is not None:
            await close_state(self._shared, self._state)
            self._state = None

    @property
    def state(self) -> SessionState | None:
        """For the runner's own board and command line."""
        return self._state

    async def _open(self) -> SessionState:
        if self._state is None:
            self._state = await open_state(self._shared, self._plan)
            self._state.reporter.listeners += self._listeners
        return self._state

    async def _idle(self) -> SessionState:
        state = await self._open()
        if self._busy:
            raise SessionError(f"session {self.id!r} is in the middle of a turn; cancel it first")
        return state

    async def _let_go(self, state: SessionState) -> None:
        """A turn that was cancelled, or whose stream was broken off, ends before the next one begins."""
        for _ in range(3):  # a stream that nobody reads any more begins to end in these
            await asyncio.sleep(0)
        if state.turn is None or not state.turn.cancelled:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._free.wait()
        except TimeoutError:
            pass  # it is still in the middle of a turn

    async def _slotted(self, state: SessionState, turn: Turn) -> TurnResult:
        try:
            await turn.wait(
                self._slots.enter(lambda place: state.emit("slot.waiting", position=place))
            )
        except TurnCancelled:
            reason = account(turn, "cancelled before it began")
            return await self._told(
                turn, ended(self._shared, state, turn, Status.CANCELLED, reason)
            )
        try:
            state.emit("slot.acquired", position=0)
            result = await run_turn(self._shared, state, turn)
        finally:
            self._slots.leave()
        return await self._told(turn, result)

    async def _told(self, turn: Turn, result: TurnResult) -> TurnResult:
        plugins, state = self._shared.plugins, self._state
        if state is not None and plugins.has("turn_finished"):
            await turn.see_out(
                plugins.notify("turn_finished", result=result, session=state.describe())
            )
        return result

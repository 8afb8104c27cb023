"""Put the pieces of a streamed reply together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from ..parsing.strict import read_arguments
from ..types import JSON, ModelReply, ToolCall
from .base import CallPart, Chunk
from .errors import cut_off

HEARTBEAT = 0.25
MOST_OPEN = 64  # calls that may be under way at once; in a reply of thousands the rest are complete
CUT = (
    "the reply was cut by the output limit (max_tokens) before this call was complete, so it was "
    "not run; send less in one call, or one call at a time"
)


async def collect(
    chunks: AsyncIterator[Chunk],
    *,
    next_id: Callable[[], str],
    on_text: Callable[[str], None] | None = None,
    on_reasoning: Callable[[str], None] | None = None,
    on_chunk: Callable[[], None] | None = None,
    model: str = "the model",
) -> ModelReply:
    """The whole reply. Raises `ModelUnavailable` when the stream ends before it is complete.

    Every call gets a fresh id: providers number them anew in each reply, leave them out or
    repeat them.
    """
    text: list[str] = []
    reasoning: list[str] = []
    calls = Calls()
    finish, usage = "", None
    async with aclosing(cast("Any", chunks)) as pieces:
        async for chunk in pieces:
            if on_chunk:
                on_chunk()
            if chunk.text:
                text.append(chunk.text)
                if on_text:
                    on_text(chunk.text)
            if chunk.reasoning:
                reasoning.append(chunk.reasoning)
                if on_reasoning:
                    on_reasoning(chunk.reasoning)
            if chunk.call:
                calls.add(chunk.call)
            finish = chunk.finish or finish
            usage = chunk.usage or usage
    if not finish:
        raise cut_off(model)
    return ModelReply(
        text="".join(text),
        reasoning="".join(reasoning),
        tool_calls=tuple(
            _tool_call(one, next_id(), cut=finish == "length") for one in calls.started
        ),
        finish=finish,
        usage=usage,
    )


def _tool_call(started: Started, call_id: str, *, cut: bool) -> ToolCall:
    arguments = started.arguments
    read = arguments if isinstance(arguments, dict) else read_arguments(arguments)
    fault = CUT if cut else read if isinstance(read, str) else ""
    return ToolCall(
        id=call_id,
        name=started.name,
        arguments=read if isinstance(read, dict) else {},
        source="native",
        fault=fault,
    )


async def heartbeats(work: Future[Any], *, timeout_s: float) -> AsyncIterator[Chunk]:
    """Empty chunks until `work`, done on another thread, has ended: busy is not silent."""
    ended = asyncio.wrap_future(work)
    try:
        while not ended.done():
            await asyncio.wait({ended}, timeout=min(timeout_s / 4, HEARTBEAT))
            yield Chunk()
        await ended
    finally:
        ended.cancel()


@dataclass(slots=True)
class Started:
    """A native call while its pieces arrive."""

    index: int | None
    id: str
    name: str
    arguments: str | JSON

    def complete(self) -> bool:
        """Whether nothing can follow: the arguments are already a whole JSON value."""
        if isinstance(self.arguments, dict):
            return True
        try:
            json.loads(self.arguments)
        except (ValueError, RecursionError):
            return False
        return True


@dataclass(slots=True)
class Calls:
    """The native calls of one reply. Invariant: pieces of two calls are never mixed.

    A new id or a new name at the same index is a new call (Ollama's adapters number every call
    0, and some servers send no index at all).
    """

    started: list[Started] = field(default_factory=list)

    def add(self, part: CallPart) -> None:
        """Takes the next piece, in the order in which it came."""
        target = self._find(part)
        if target is None:
            self.started.append(Started(part.index, part.id or "", part.name, part.arguments))
            return
        target.id = target.id or part.id or ""
        target.name = target.name or part.name
        if isinstance(part.arguments, str) and isinstance(target.arguments, str):
            if not (part.name and part.arguments == target.arguments):
                target.arguments += part.arguments
        elif not target.arguments:
            target.arguments = part.arguments

    def _find(self, part: CallPart) -> Started | None:
        for started in reversed(self.started[-MOST_OPEN:]):
            if part.id and started.id:
                if part.id == started.id and part.index in {started.index, None}:
                    return started if _continues(started, part) else None
                continue
            if part.index is None or started.index in {part.index, None}:
                return started if _continues(started, part) else None
        return None


def _continues(started: Started, part: CallPart) -> bool:
    if part.name and started.name and part.name != started.name:
        return False
    if not part.name:
        return isinstance(part.arguments, str) or not started.arguments
    if part.id and part.id == started.id and part.arguments in ("", started.arguments):
        return True
    return not started.complete()

"""What the tests of the model adapters share: a request, and one reply or its error."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from runner.errors import ModelError
from runner.model.base import Model, ModelRequest, ToolSpec
from runner.model.stream import collect
from runner.types import Message, ModelReply, ToolCall

TOOL = ToolSpec(
    "read_file",
    "Reads a file.",
    {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "range": {"type": "object", "properties": {"from": {"type": "integer"}}},
        },
    },
)
CALL = ToolCall(id="c7", name="read_file", arguments={"path": "a.txt"})
HISTORY = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="What is in a.txt?"),
    Message(role="assistant", content="", tool_calls=(CALL,)),
    Message(role="tool", content="nothing", tool_call_id="c7", tool="read_file"),
)


def ids() -> Callable[[], str]:
    """Fresh call ids: c0, c1, …"""
    numbers = itertools.count()
    return lambda: f"c{next(numbers)}"


def request(**fields: Any) -> ModelRequest:
    """A request with a user's message and one tool."""
    return ModelRequest(**{"messages": HISTORY[:2], "tools": (TOOL,), "timeout": 60.0, **fields})


async def reply_of(model: Model, **fields: Any) -> ModelReply:
    """One reply, without retries."""
    return await collect(model.complete(request(**fields)), next_id=ids(), model=model.name)


async def attempt(model: Model, **fields: Any) -> ModelReply | ModelError:
    """One reply, or the error it ended with."""
    try:
        return await reply_of(model, **fields)
    except ModelError as error:
        return error
    finally:
        await model.close()


def outcome(model: Model, **fields: Any) -> ModelReply | ModelError:
    """One reply, or the error it ended with, from outside an event loop."""
    return asyncio.run(attempt(model, **fields))


def called(reply: ModelReply | ModelError) -> list[tuple[str, Any]]:
    """The calls of a reply that has no faults."""
    assert isinstance(reply, ModelReply), reply
    assert not any(call.fault for call in reply.tool_calls)
    return [(call.name, call.arguments) for call in reply.tool_calls]

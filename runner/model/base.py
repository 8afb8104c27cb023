"""What a model is to the runner: one request in, chunks of one reply out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..types import JSON, Message, Usage

SMALL = 4.0  # billions of parameters: up to here calls are asked for as text from the start
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is offered to a model; `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything one model call needs. `timeout`: seconds without a byte. `schema`: constrains the text."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 4096
    temperature: float = 0.0
    context_window: int = 8192
    schema: JSON | None = None
    stop: tuple[str, ...] = ()
    timeout: float = 120.0
    stream: bool = True


# Not frozen: there is one for each token, and a frozen one takes twice as long to make.
@dataclass(slots=True, kw_only=True)
class CallPart:
    """A piece of a native tool call; `arguments` as a dict is complete, as text a fragment."""

    index: int | None = None
    id: str | None = None
    name: str = ""
    arguments: str | JSON = ""


@dataclass(slots=True, kw_only=True)
class Chunk:
    """A piece of a reply. A reply is complete once a chunk names its `finish`, else it was cut."""

    text: str = ""
    reasoning: str = ""
    call: CallPart | None = None
    finish: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What is known about a model before it is asked; None is unknown."""

    name: str
    context_window: int | None = None
    tools: bool | None = None
    thinking: bool | None = None
    local: bool = False
    constrained: bool = False
    size: float | None = None  # billions of parameters

    @property
    def small(self) -> bool:
        """A local model that rarely emits native calls, whatever its template promises."""
        return self.local and self.size is not None and self.size <= SMALL


def size_of(name: str) -> float | None:
    """Billions of parameters by a model's name, such as `qwen2.5-coder:1.5b`; None when it tells none."""
    found = _SIZE.search(name)
    if found is None:
        return None
    number = float(found[1])
    return number if found[2].lower() == "b" else number / 1000


@runtime_checkable
class Model(Protocol):
    """A language model. `complete` raises only `ModelError`; `describe` never raises."""

    name: str

    def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The reply to one request, in pieces; closing the iterator ends the request."""
        ...

    async def describe(self) -> ModelInfo:
        """What the server, or a table, says about this model."""
        ...

    def cost(self, usage: Usage) -> float:
        """US dollars for that usage; 0 when unknown."""
        ...

    async def close(self) -> None:
        """Frees connections, threads and processes."""
        ...

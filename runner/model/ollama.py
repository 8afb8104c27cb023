"""Ask a local Ollama server, in its own protocol.

Not through the official `ollama` client (0.6): it drops `truncate`, nested parameter schemas, call
ids and Retry-After, and takes 345 to 446 ms to the first request where httpx alone takes half.
`keep_alive` is not sent: how long a model stays in memory is the server's to say (five minutes, or
OLLAMA_KEEP_ALIVE).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from ..errors import ModelError, ModelRefused
from ..types import JSON, Message, Usage
from .base import CallPart, Chunk, ModelInfo, ModelRequest, size_of
from .errors import OK, classify, cut_off, read_retry_after
from .openai import openai_tool
from .wire import Answer, CutError, exchange

DEFAULT_URL = "http://127.0.0.1:11434"
ADVICE = "is Ollama running? start it with: ollama serve"
MAX_WINDOW = 16_384  # a model's trained maximum would fill a small machine's memory
DESCRIBE_TIMEOUT = 5.0


class OllamaModel:
    """A model of an Ollama server. `warnings` tells what was mended in its address."""

    def __init__(self, model: str, *, base_url: str = "", api_key: str = "") -> None:
        self.name = f"ollama/{model}"
        self.url, self.warnings = mend_url(base_url)
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._info: ModelInfo | None = None

    async def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The reply of `/api/chat`, line by line."""
        url = f"{self.url}/api/chat"
        body = self._body(request)
        async with exchange("POST", url, body, headers=self._headers, advice=ADVICE) as answer:
            if answer.status != OK:
                raise await self._failure(answer)
            try:
                async for line in answer.lines():
                    for chunk in self._chunks(line):
                        yield chunk
                        if chunk.finish:
                            return
            except CutError:
                raise cut_off(self.name) from None
        raise cut_off(self.name)

    async def describe(self) -> ModelInfo:
        """What `/api/show` says; asked until it answers once."""
        if self._info is None:
            try:
                async with asyncio.timeout(DESCRIBE_TIMEOUT):
                    self._info = self._read_info(await self._show())
            except (ModelError, TimeoutError, ValueError, CutError):
                return ModelInfo(
                    name=self.name, local=True, constrained=True, size=size_of(self._model)
                )
        return self._info

    def cost(self, usage: Usage) -> float:
        """Nothing: the machine is the user's own."""
        return 0.0

    async def close(self) -> None:
        """Nothing to free: each request has its own connection."""

    def _body(self, request: ModelRequest) -> JSON:
        options: JSON = {
            "num_ctx": request.context_window,
            "num_predict": request.max_tokens,
            "temperature": request.temperature,
        }
        if request.stop:
            options["stop"] = list(request.stop)
        body: JSON = {
            "model": self._model,
            "messages": _messages(request.messages, thinking=self._thinks()),
            "stream": request.stream,
            "options": options,
            "truncate": False,  # an error instead of a prompt cut from the front in silence
        }
        if request.tools:
            body["tools"] = [openai_tool(tool) for tool in request.tools]
        if request.schema is not None:
            body["format"] = request.schema
            if self._thinks():
                body["think"] = False  # thinking comes before the format and is not held to it
        return body

    def _thinks(self) -> bool:
        return self._info is not None and bool(self._info.thinking)

    def _chunks(self, line: str) -> Iterator[Chunk]:
        if not line:  # part of a long line: a sign of life
            yield Chunk()
            return
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            raise self._strange(line) from None
        message = (data.get("message") or {}) if isinstance(data, dict) else None
        if not isinstance(message, dict):
            raise self._strange(line)
        if data.get("error"):
            raise classify(None, line, model=self.name)
        yield Chunk(text=_text(message, "content"), reasoning=_text(message, "thinking"))
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            yield Chunk(call=_call_part(call if isinstance(call, dict) else {}))
        if data.get("done"):
            yield Chunk(finish=_text(data, "done_reason") or "stop", usage=_usage(data))

    def _strange(self, line: str) -> ModelError:
        if line.lstrip().startswith("<"):
            return classify(OK, "<html>", model=self.name, where=self.url)
        return ModelRefused(f"{self.name} at {self.url} answered no JSON: is it an Ollama server?")

    async def _failure(self, answer: Answer) -> ModelError:
        return classify(
            answer.status,
            await answer.text(65_536),
            model=self.name,
            where=self.url,
            retry_after=read_retry_after(answer.headers),
        )

    async def _show(self) -> JSON:
        url, payload = f"{self.url}/api/show", {"model": self._model}
        async with exchange("POST", url, payload, headers=self._headers) as answer:
            if answer.status != OK:
                raise await self._failure(answer)
            data = json.loads(await answer.text())
            return data if isinstance(data, dict) else {}

    def _read_info(self, shown: JSON) -> ModelInfo:
        capabilities = shown.get("capabilities")
        able = capabilities if isinstance(capabilities, list) else None
        details = shown.get("details")
        said = details.get("parameter_size") if isinstance(details, dict) else None
        return ModelInfo(
            name=self.name,
            context_window=_window(shown),
            tools=None if able is None else "tools" in able,
            thinking=None if able is None else "thinking" in able,
            local=True,
            constrained=True,
            size=size_of(str(said)) or size_of(self._model),
        )


def mend_url(base_url: str) -> tuple[str, list[str]]:
    """The server's root address, and what was wrong with the one given."""
    url = (base_url.strip() or DEFAULT_URL).rstrip("/")
    if "://" not in url:  # as OLLAMA_HOST has it: a host, perhaps with a port
        host, slash, path = url.partition("/")
        port = "" if re.search(r":\d+$", host) else ":11434"
        url = f"http://{'127.0.0.1' if host.startswith(':') else ''}{host}{port}{slash}{path}"
    url = url.replace("://0.0.0.0", "://127.0.0.1")  # where a server listens is not where it is
    for ending in ("/v1", "/api"):
        if url.endswith(ending):
            mended = url.removesuffix(ending)
            return mended, [
                f"[model] base_url: Ollama's own address has no {ending}; using {mended}"
            ]
    return url, []


async def list_models(url: str, *, timeout_s: float) -> list[str]:
    """The names of the models an Ollama server has; none when it does not answer in time."""
    try:
        async with asyncio.timeout(timeout_s), exchange("GET", f"{url}/api/tags") as answer:
            data = json.loads(await answer.text())
    except (ModelError, TimeoutError, ValueError, CutError):
        return []
    models = data.get("models") if isinstance(data, dict) else None
    names = [m.get("name") or m.get("model") for m in models or () if isinstance(m, dict)]
    return [name for name in names if isinstance(name, str)]


def _messages(messages: Sequence[Message], *, thinking: bool) -> list[JSON]:
    """All of them, with the reasoning of the turn under way for a model that thinks."""
    sent = [_message(message) for message in messages]
    for index in range(_turn_start(messages) if thinking else len(sent), len(sent)):
        if messages[index].reasoning:
            sent[index]["thinking"] = messages[index].reasoning
    return sent


def _turn_start(messages: Sequence[Message]) -> int:
    """Where the last goal is, or the user's last message when none is marked."""
    goals = [index for index, message in enumerate(messages) if message.mark == "goal"]
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    return (goals or users or [0])[-1]


def _message(message: Message) -> JSON:
    sent: JSON = {"role": message.role, "content": message.content}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        sent["tool_name"] = message.tool or ""
        sent["tool_call_id"] = message.tool_call_id or ""
    return sent


def _text(data: JSON, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _call_part(call: JSON) -> CallPart:
    said = call.get("function")
    function = said if isinstance(said, dict) else {}
    index, arguments = function.get("index"), function.get("arguments")
    return CallPart(
        index=index if isinstance(index, int) else None,
        id=_text(call, "id") or None,
        name=_text(function, "name"),
        arguments=arguments if isinstance(arguments, (dict, str)) else {},
    )


def _usage(data: JSON) -> Usage | None:
    read, written = _count(data.get("prompt_eval_count")), _count(data.get("eval_count"))
    return None if read is None and written is None else Usage(read or 0, written or 0)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _window(shown: JSON) -> int | None:
    info = shown.get("model_info")
    trained = (
        value
        for key, value in (info.items() if isinstance(info, dict) else ())
        if key.endswith(".context_length") and isinstance(value, int)
    )
    sizes = [size for size in (*trained, *_configured(shown.get("parameters"))) if size > 0]
    return min([*sizes, MAX_WINDOW]) if sizes else None


def _configured(parameters: Any) -> Iterable[int]:
    """`num_ctx` of the model's own file."""
    for line in parameters.splitlines() if isinstance(parameters, str) else ():
        name, _, value = line.strip().partition(" ")
        if name == "num_ctx" and value.strip().isdecimal():
            yield int(value)

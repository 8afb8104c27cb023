"""Run a model file inside this process: llama.cpp's server on a private loopback port."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import ConfigError, ModelError, ModelRefused
from ..types import JSON, Usage
from .base import CallPart, Chunk, ModelInfo, ModelRequest, size_of
from .errors import OK, classify, cut_off, one_line, read_retry_after
from .openai import openai_message, openai_tool, response_format
from .stream import heartbeats
from .wire import CutError, exchange

CACHE_MIB = 256
DATA = "data:"


class LlamacppModel:
    """A GGUF file; its server starts with the first request and ends with `close`.

    The window of the first request is the window of the server.
    """

    def __init__(self, file: Path, name: str = "", *, threads: int = 0) -> None:
        if not file.is_file():
            raise ConfigError(f"[model] name: there is no model file {file}")
        self.name = name or f"llamacpp/{file.name}"
        self.warnings: list[str] = []
        self._file = file
        self._threads = threads
        self._key = secrets.token_urlsafe(24)
        self._server: Future[Any] | None = None

    async def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The reply of the server's OpenAI protocol, streamed whatever the request says."""
        server = self._started(request.context_window)
        async for beat in heartbeats(server, timeout_s=request.timeout):
            yield beat
        url = f"{_address(server.result())}/v1/chat/completions"
        headers = {"Authorization": f"Bearer {self._key}"}
        async with exchange("POST", url, _body(request), headers=headers) as answer:
            if answer.status != OK:
                raise classify(
                    answer.status,
                    await answer.text(65_536),
                    model=self.name,
                    retry_after=read_retry_after(answer.headers),
                )
            try:
                async for line in answer.lines():
                    for chunk in self._chunks(line):
                        yield chunk
            except CutError:
                raise cut_off(self.name) from None

    async def describe(self) -> ModelInfo:
        """What is known without loading the file."""
        return ModelInfo(
            name=self.name, local=True, constrained=True, size=size_of(self._file.stem)
        )

    def cost(self, usage: Usage) -> float:
        """Nothing: the machine is the user's own."""
        return 0.0

    async def close(self) -> None:
        """Ends the server and gives its memory back."""
        self._server = None

    def _started(self, window: int) -> Future[Any]:
        if self._server is None:
            self._server = Future()
            self._server.set_running_or_notify_cancel()  # who stops waiting does not stop it
            threading.Thread(target=self._start, args=(self._server, window), daemon=True).start()
        return self._server

    def _start(self, future: Future[Any], window: int) -> None:
        try:
            library: Any = import_module("xllamacpp")
            future.set_result(library.Server(self._parameters(library, window)))
        except ImportError as error:
            advice = "llamacpp/ models need the extra `local`: pip install 'slotrunner[local]'"
            future.set_exception(ModelRefused(f"{advice} ({one_line(str(error))})"))
        except Exception as error:  # noqa: BLE001  the library raises bare ones for a bad file
            refused = f"llama.cpp cannot load {self._file}: {one_line(str(error))}"
            future.set_exception(ModelRefused(refused))

    def _parameters(self, library: Any, window: int) -> Any:
        parameters = library.CommonParams()
        parameters.model.path = str(self._file)
        parameters.hostnames = ["127.0.0.1"]
        parameters.port = 0
        parameters.api_keys = [self._key]
        parameters.n_ctx = window
        parameters.n_parallel = 1
        parameters.use_jinja = True
        parameters.ui = False
        parameters.offline = True
        parameters.cache_ram_mib = CACHE_MIB
        parameters.verbosity = 0
        if self._threads:
            parameters.cpuparams.n_threads = self._threads
            parameters.cpuparams_batch.n_threads = self._threads
        return parameters

    def _chunks(self, line: str) -> Iterator[Chunk]:
        if not line.startswith(DATA) or line.endswith("[DONE]"):
            return
        try:
            data = json.loads(line[len(DATA) :])
        except (ValueError, RecursionError):
            raise self._unreadable(line) from None
        if data.get("error"):
            raise classify(None, json.dumps(data), model=self.name)
        for choice in data.get("choices") or ():
            yield from _parts(choice.get("delta") or {})
            yield Chunk(finish=choice.get("finish_reason") or "")
        yield Chunk(usage=_usage(data))

    def _unreadable(self, line: str) -> ModelError:
        return ModelRefused(f"{self.name} answered no JSON: {one_line(line)}")


def _address(server: Any) -> str:
    address = str(server.listening_address)
    return address if "://" in address else f"http://{address}"


def _body(request: ModelRequest) -> JSON:
    body: JSON = {
        "messages": [openai_message(message) for message in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": True,
    }
    if request.tools:
        body["tools"] = [openai_tool(tool) for tool in request.tools]
    if request.stop:
        body["stop"] = list(request.stop)
    if request.schema is not None:
        body["response_format"] = response_format(request.schema)
    return body


def _parts(delta: JSON) -> Iterator[Chunk]:
    yield Chunk(text=delta.get("content") or "", reasoning=delta.get("reasoning_content") or "")
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        yield Chunk(
            call=CallPart(
                index=call.get("index"),
                id=call.get("id"),
                name=function.get("name") or "",
                arguments=function.get("arguments") or "",
            )
        )


def _usage(data: JSON) -> Usage | None:
    usage = data.get("usage")
    if not usage:
        return None
    return Usage(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)

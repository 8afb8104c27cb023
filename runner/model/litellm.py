"""Ask any other provider, through litellm; the one module that imports it, late.

Importing it takes seconds and 200 MB, so `preload` does that on a thread of its own. Its
retries, its accumulator, its error classes and its printing are not used: they merge parallel
calls, hide failures behind one class and write to stdout.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from ..errors import ModelError, ModelRefused, ModelUnavailable
from ..types import JSON, Usage
from .base import CallPart, Chunk, ModelInfo, ModelRequest, size_of
from .errors import SERVER_FAULT, classify, cut_off, one_line, read_retry_after
from .openai import openai_message, openai_tool, response_format
from .stream import heartbeats

BEFORE_IMPORT = {
    "LITELLM_OFFLINE_MODE": "true",  # else it fetches a price list, and waits for it
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",  # else it loads the project's .env
    "LITELLM_LOG": "ERROR",
}
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
PREFIX = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)\b(?: -|:)?\s*)+")
NOT_JSON = re.compile(r"Expecting value|Empty or invalid response from LLM endpoint")
BODY = re.compile(r"""b['"](\{.*\})['"]""", re.DOTALL)
SILENT = 5.0  # seconds after our own limit at which litellm's own would end a request


class LitellmModel:
    """A model of any provider litellm knows, or of an OpenAI-compatible server at `base_url`."""

    def __init__(
        self, name: str, *, base_url: str = "", api_key: str = "", key_env: str = ""
    ) -> None:
        self.name = name
        self.warnings: list[str] = []
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._key_env = key_env
        self._prices: tuple[float, float] = (0.0, 0.0)
        self._info: ModelInfo | None = None
        self._used = False
        preload()

    async def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The reply as litellm's chunks have it, assembled by us."""
        async for beat in heartbeats(preload(), timeout_s=request.timeout):
            yield beat
        litellm = await _loaded()
        self._use()
        try:
            answer = await litellm.acompletion(**self._arguments(request))
            if not request.stream:
                for chunk in _whole(answer):
                    yield chunk
                return
            async with aclosing(answer) as pieces:
                async for chunk in self._streamed(pieces):
                    yield chunk
        except ModelError:
            raise
        except Exception as error:  # litellm raises whatever its provider code raises
            raise self._failure(error) from error

    async def describe(self) -> ModelInfo:
        """What litellm's own table says, offline; its server is not asked."""
        if self._info is None:
            litellm = await _loaded()
            known: JSON = {}
            with suppress(Exception):  # an unknown model raises one of several classes
                known = litellm.get_model_info(self.name)
            self._info = self._read_info(known)
        return self._info

    def cost(self, usage: Usage) -> float:
        """US dollars by litellm's table; 0 when it does not know the model or is not loaded."""
        per_input, per_output = self._prices
        return usage.input_tokens * per_input + usage.output_tokens * per_output

    async def close(self) -> None:
        """Closes litellm's connections once no model uses them any more."""
        if self._used:
            self._used = False
            await _CLIENTS.release()

    def _use(self) -> None:
        _quiet()
        if not self._used:
            self._used = True
            _CLIENTS.users += 1

    def _arguments(self, request: ModelRequest) -> JSON:
        arguments: JSON = {
            "model": self.name,
            "messages": [openai_message(message) for message in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stream": request.stream,
            "timeout": request.timeout + SILENT,
            "max_retries": 0,
            "drop_params": True,  # some models take no temperature
        }
        if self._base_url:
            arguments["api_base"] = self._base_url
        if self._api_key or self._base_url:
            arguments["api_key"] = self._api_key or "none"
        if request.stream:
            arguments["stream_options"] = {"include_usage": True}
        if request.tools:
            arguments["tools"] = [openai_tool(tool) for tool in request.tools]
            arguments["allowed_openai_params"] = ["tools"]
        if request.stop:
            arguments["stop"] = list(request.stop)
        if request.schema is not None:
            arguments["response_format"] = response_format(request.schema)
        return arguments

    async def _streamed(self, pieces: AsyncIterator[Any]) -> AsyncIterator[Chunk]:
        """A body that is no stream at all, such as HTML, gives an empty reply that "stops"."""
        something = False
        async for piece in pieces:
            usage = _usage(piece)
            something = something or usage is not None
            yield Chunk(usage=usage)
            for choice in piece.choices[:1]:
                something = something or choice.finish_reason is None
                if choice.finish_reason and not something:
                    raise ModelRefused(
                        f"{self._place()} answered no reply, perhaps HTML: is base_url right?"
                    )
                for chunk in _parts(choice.delta):
                    yield chunk
                yield Chunk(finish=choice.finish_reason or "")

    def _failure(self, error: Exception) -> ModelError:
        status = getattr(error, "status_code", None)
        text = self._masked(_said(error))
        if "before a finish_reason" in text or "MidStream" in type(error).__name__:
            return cut_off(self.name)
        if _is_timeout(error):
            return ModelUnavailable(f"{self._place()} did not answer in time")
        if "Connection error" in text or "Cannot connect" in text:
            return ModelUnavailable(one_line(f"cannot reach {self._place()}: {text}"))
        if NOT_JSON.search(text) or isinstance(error.__cause__, ValueError):
            return ModelRefused(f"{self._place()} answered HTML, not JSON: is base_url right?")
        headers = {
            str(name).lower(): str(value)
            for name, value in (
                getattr(getattr(error, "response", None), "headers", None) or {}
            ).items()
        }
        return classify(
            status if isinstance(status, int) else SERVER_FAULT,
            text,
            model=self.name,
            where=self._base_url,
            retry_after=read_retry_after(headers),
            key_env=self._key_env,
        )

    def _place(self) -> str:
        return f"{self.name} at {self._base_url}" if self._base_url else self.name

    def _masked(self, text: str) -> str:
        return text.replace(self._api_key, "***") if self._api_key else text

    def _read_info(self, known: JSON) -> ModelInfo:
        host = urlsplit(self._base_url).hostname
        prices = known.get("input_cost_per_token"), known.get("output_cost_per_token")
        self._prices = (prices[0] or 0.0, prices[1] or 0.0)
        local = host in LOCAL_HOSTS
        return ModelInfo(
            name=self.name,
            context_window=known.get("max_input_tokens") or None,
            tools=known.get("supports_function_calling"),
            thinking=known.get("supports_reasoning"),
            local=local,
            constrained=local or bool(known.get("supports_response_schema")),
            size=size_of(self.name),
        )


class _Clients:
    """litellm keeps its connections in one place per process; closed when the last user leaves."""

    def __init__(self) -> None:
        self.users = 0

    async def release(self) -> None:
        self.users -= 1
        if self.users == 0:
            litellm = await _loaded()
            with suppress(Exception):  # closing is a courtesy; some providers' clients cannot
                await litellm.close_litellm_async_clients()
                litellm.in_memory_llm_clients_cache.flush_cache()


_CLIENTS = _Clients()
_LOCK = threading.Lock()
_LIBRARY: list[Future[Any]] = []


def preload() -> Future[Any]:
    """Begins the import on a daemon thread, once per process; the future gives the module."""
    with _LOCK:
        if not _LIBRARY:
            future: Future[Any] = Future()
            future.set_running_or_notify_cancel()  # who stops waiting does not stop the import
            _LIBRARY.append(future)
            threading.Thread(target=_load, args=(future,), daemon=True).start()
        return _LIBRARY[0]


async def _loaded() -> Any:
    return await asyncio.wrap_future(preload())


def _load(future: Future[Any]) -> None:
    for name, value in BEFORE_IMPORT.items():
        os.environ.setdefault(name, value)
    _quiet()
    try:
        litellm: Any = import_module("litellm")
        litellm.suppress_debug_info = True
        litellm.disable_aiohttp_transport = True
        litellm.telemetry = False
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logger = logging.getLogger(name)
            logger.handlers[:] = [logging.NullHandler()]  # with none, Python would print its errors
            logger.setLevel(logging.ERROR)
    except Exception as error:  # noqa: BLE001  somebody else's package may raise anything
        refused = ModelRefused(f"litellm cannot be imported: {one_line(str(error))}")
        refused.__cause__ = error
        future.set_exception(refused)
    else:
        future.set_result(litellm)


def _quiet() -> None:
    """litellm makes pydantic warn about litellm's own models; that is nobody's business here."""
    warnings.filterwarnings("ignore", module=r"litellm(\.|$)")
    warnings.filterwarnings(
        "ignore", message=r"Items? .* `ReadOnly` qualifier", category=UserWarning
    )
    warnings.filterwarnings("ignore", message=r"Pydantic serializer warnings", category=UserWarning)


def _whole(answer: Any) -> Iterator[Chunk]:
    for choice in answer.choices[:1]:
        yield from _parts(choice.message)
        yield Chunk(finish=choice.finish_reason or "stop")
    yield Chunk(usage=_usage(answer))


def _parts(delta: Any) -> Iterator[Chunk]:
    text, reasoning = getattr(delta, "content", None), getattr(delta, "reasoning_content", None)
    if text or reasoning:
        yield Chunk(text=text or "", reasoning=reasoning or "")
    for call in getattr(delta, "tool_calls", None) or ():
        function = call.function
        arguments = function.arguments
        part = CallPart(
            index=getattr(call, "index", None),
            id=call.id or None,
            name=function.name or "",
            arguments=arguments if isinstance(arguments, (str, dict)) else "",
        )
        yield Chunk(call=part)


def _usage(piece: Any) -> Usage | None:
    usage = getattr(piece, "usage", None)
    if usage is None:
        return None
    return Usage(max(0, usage.prompt_tokens or 0), max(0, usage.completion_tokens or 0))


def _said(error: Exception) -> str:
    """What the provider said, out of litellm's wrapping: class names and `b'{…}'`."""
    text = PREFIX.sub("", str(error))
    body = BODY.search(text)
    return body[1] if body else text


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or type(error).__name__ in {"Timeout", "APITimeoutError"}

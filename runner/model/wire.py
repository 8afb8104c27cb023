"""One HTTP request to a model server, its answer read line by line, over httpx.

httpx is imported with the first request: it costs more than the rest of the way there.
"""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ..errors import ModelError, ModelRefused
from .errors import one_line, unreachable

MAX_LINE = 32_000_000
COMMAND_LINE = "httpx._main"


class CutError(Exception):
    """The connection ended inside an answer."""


@dataclass(slots=True)
class Answer:
    """An HTTP answer whose body is still to be read. Header names are matched in any case."""

    status: int
    headers: Mapping[str, str]
    _response: Any = field(repr=False)

    async def text(self, limit: int = 32_000_000) -> str:
        """The body so far as it comes, at most `limit` bytes; an early end is not an error."""
        parts: list[bytes] = []
        size = 0
        try:
            async for block in self._blocks():
                parts.append(block)
                size += len(block)
                if size >= limit:
                    break
        except CutError:
            pass
        return b"".join(parts)[:limit].decode("utf-8", "replace")

    async def lines(self) -> AsyncIterator[str]:
        """Each line that is not blank, and "" for a block that ends none: the server is alive.

        Lines end at a line feed alone; httpx's own reader also ends them at U+2028 and U+0085,
        which JSON allows inside a string. Raises `CutError` when the connection ends early.
        """
        begun: list[bytes] = []  # joined once: a long line comes in thousands of blocks
        size = 0
        async for block in self._blocks():
            first, *more = block.split(b"\n")
            begun.append(first)
            size += len(first)
            if not more:
                yield ""
            else:
                *whole, rest = b"".join(begun), *more
                for line in whole:
                    if line.strip():
                        yield line.decode("utf-8", "replace").rstrip("\r")
                begun, size = [rest], len(rest)
            if size > MAX_LINE:
                raise CutError
        if last := b"".join(begun).strip():
            yield last.decode("utf-8", "replace")

    async def _blocks(self) -> AsyncIterator[bytes]:
        import httpx

        try:
            async for block in self._response.aiter_bytes():
                yield block
        except httpx.RequestError as error:
            raise CutError from error


@asynccontextmanager
async def exchange(
    method: str,
    url: str,
    payload: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    advice: str = "",
) -> AsyncIterator[Answer]:
    """Sends one request; leaving the block closes the connection, which also ends the server's work.

    Each request has its own connection, so a model may be used from one event loop after another.
    There is no time limit here: who waits knows how long. A redirect is an answer like any other.
    Raises `ModelUnavailable`, with `advice`, when the server cannot be reached.
    """
    parts = _address(url)
    httpx = _httpx()
    body = (
        b"" if payload is None else json.dumps(payload, ensure_ascii=False).encode(errors="replace")
    )
    sent = {"User-Agent": "slotrunner", "Content-Type": "application/json", **(headers or {})}
    try:
        client = _client(httpx, parts)
    except (ValueError, ImportError, OSError, httpx.InvalidURL) as error:
        # a proxy address that is none, a SOCKS proxy without its package, a missing SSL_CERT_FILE
        said = f"the proxy or certificate variables of the environment: {one_line(str(error))}"
        raise ModelRefused(said) from error
    async with client:
        try:
            request = client.build_request(method, url, content=body, headers=sent)
            response = await client.send(request, stream=True)
        except (httpx.RequestError, httpx.InvalidURL, UnicodeError) as error:
            raise _failure(httpx, error, parts, advice) from error
        try:
            yield Answer(response.status_code, response.headers, response)
        finally:
            await response.aclose()


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts
    except ValueError as error:
        raise ModelRefused(f"base_url {url!r}: {error}") from error
    raise ModelRefused(f"base_url {url!r} is not an address such as http://127.0.0.1:11434")


def _httpx() -> Any:
    """httpx without its command line, which would import rich and pygments: half of its time."""
    if "httpx" not in sys.modules:
        sys.modules[COMMAND_LINE] = None  # type: ignore[assignment] # reads as "not installed"
        try:
            import httpx
        finally:
            sys.modules.pop(COMMAND_LINE, None)
    import httpx

    return httpx


def _client(httpx: Any, parts: SplitResult) -> Any:
    host = parts.hostname or ""
    loopback = host in {"localhost", "::1"} or host.startswith("127.")
    trust: ssl.SSLContext = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; the real one takes 20 ms to load
        if loopback and parts.scheme == "http"
        else _certificates()
    )
    # A proxy's loopback is not this machine's, so HTTP_PROXY is not meant for it.
    return httpx.AsyncClient(verify=trust, timeout=None, trust_env=not loopback)


@cache
def _certificates() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()


def _failure(httpx: Any, error: Exception, parts: SplitResult, advice: str) -> ModelError:
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if isinstance(error, (httpx.LocalProtocolError, UnicodeEncodeError)):
        # the error itself would show the key
        return ModelRefused(
            "the key has signs that no HTTP header can carry; see [model] api_key_env"
        )
    if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError)):
        return ModelRefused(f"base_url {where}: {one_line(str(error))}")
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ModelRefused(
            f"{where}: {cause.verify_message}; SSL_CERT_FILE names the file to trust"
        )
    return unreachable(where, _reason(httpx, error, cause), advice=advice)


def _reason(httpx: Any, error: Exception, cause: BaseException) -> str:
    if isinstance(error, httpx.RemoteProtocolError):
        closed = "disconnected" in str(error)
        return "the connection was closed without an answer" if closed else "it does not speak HTTP"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, ConnectionError):
        return "the connection was closed"
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _cause(error: BaseException) -> BaseException:
    """The system's own error below httpx's, which says only that all attempts failed."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno is not None:
            return inner
        if isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[-1]
        else:
            inner = inner.__cause__ or inner.__context__
    return error

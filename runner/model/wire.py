"""HTTP to a model server: one request per connection, the answer line by line.

Our own few lines because importing an HTTP library costs more than the rest of `runner run`
(httpx 90 ms, the official ollama client 270 ms, both measured), and because they hide what we
must see: the Retry-After header, a stream that was cut, a body that is not JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..errors import ModelRefused
from .errors import unreachable

BLOCK = 65_536
MAX_LINE = 32_000_000


class CutError(Exception):
    """The connection ended inside an answer."""


@dataclass(slots=True)
class Answer:
    """An HTTP answer whose body is still to be read. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    _reader: asyncio.StreamReader = field(repr=False)

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
        """Each line that is not blank. Raises `CutError` when the connection ends early."""
        rest = b""
        async for block in self._blocks():
            *whole, rest = (rest + block).split(b"\n") if rest else block.split(b"\n")
            for line in whole:
                if line.strip():
                    yield line.decode("utf-8", "replace").rstrip("\r")
            if len(rest) > MAX_LINE:
                raise CutError
        if rest.strip():
            yield rest.decode("utf-8", "replace")

    async def _blocks(self) -> AsyncIterator[bytes]:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            async for block in self._chunked():
                yield block
            return
        length = self.headers.get("content-length", "")
        left = int(length) if length.isdecimal() else -1
        while left:
            block = await self._read(BLOCK if left < 0 else min(BLOCK, left))
            if not block and left < 0:
                return
            if not block:
                raise CutError
            left -= len(block) if left > 0 else 0
            yield block

    async def _chunked(self) -> AsyncIterator[bytes]:
        while size := await self._chunk_size():
            while size:
                block = await self._read(min(BLOCK, size))
                if not block:
                    raise CutError
                size -= len(block)
                yield block
            await self._reader.readline()

    async def _chunk_size(self) -> int:
        line = await self._line()
        try:
            return int(line.split(b";")[0], 16)
        except ValueError:
            raise CutError from None

    async def _read(self, size: int) -> bytes:
        try:
            return await self._reader.read(size)
        except OSError:
            raise CutError from None

    async def _line(self) -> bytes:
        try:
            return await self._reader.readline()
        except (OSError, ValueError):
            raise CutError from None


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

    Raises `ModelUnavailable`, with `advice`, when the server cannot be reached.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ModelRefused(f"base_url {url!r} is not an address such as http://127.0.0.1:11434")
    reader, writer = await _connect(url, advice)
    try:
        writer.write(_head_and_body(method, url, payload, headers or {}))
        yield await _answer(reader, writer, url)
    finally:
        writer.close()


async def _connect(url: str, advice: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        port = parts.port or (443 if secure else 80)
        return await asyncio.open_connection(parts.hostname, port, ssl=secure or None, limit=BLOCK)
    except OSError as error:
        raise unreachable(where, _reason(error), advice=advice) from error
    except ValueError as error:
        raise ModelRefused(f"base_url {where}: {error}") from error


def _head_and_body(method: str, url: str, payload: Any, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    body = (
        b""
        if payload is None
        else json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")
    )
    lines = {
        "Host": parts.netloc.rpartition("@")[2],
        "User-Agent": "slotrunner",
        "Accept": "*/*",
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers,
    }
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str) -> Answer:
    try:
        await writer.drain()
        first = await reader.readline()
        headers: dict[str, str] = {}
        while (line := await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
    except (OSError, ValueError) as error:
        raise unreachable(url, _reason(error)) from error
    protocol, _, rest = first.partition(b" ")
    status = rest.split(b" ")[0].strip()
    if not protocol.startswith(b"HTTP/") or not status.isdigit():
        reason = (
            "it does not speak HTTP" if first else "the connection was closed without an answer"
        )
        raise unreachable(url, reason)
    return Answer(int(status), headers, reader)


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionError):
        return "the connection was closed"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return (
        "connection refused" if "refused" in text.lower() or "Connect call failed" in text else text
    )

"""Messages between the runner and a worker process: length-prefixed JSON, with a cap."""

from __future__ import annotations

import json
import struct
from typing import Any

from ..types import JSON

MAX_BYTES = 8 * 1024 * 1024
HEADER = struct.Struct("!I")
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class FrameTooLarge(Exception):
    """A message over the cap; `size` in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes; at most {MAX_BYTES:,} may cross")
        self.size = size


def pack(message: JSON) -> bytes:
    """The message as bytes; raises `FrameTooLarge`, or what `json` raises for what is not JSON."""
    body = _encode(message).encode("ascii")
    if len(body) > MAX_BYTES:
        raise FrameTooLarge(len(body))
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> JSON:
    """The message in a frame's body; raises `ValueError` when it is not a JSON object."""
    try:
        message: Any = json.loads(body.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the data is wrong, not a type of ours
    return message


class Splitter:
    """Cuts a stream of bytes into the bodies of frames."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now; raises `FrameTooLarge` as soon as one announces itself."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        while len(buffer) >= HEADER.size:
            (size,) = HEADER.unpack_from(buffer)
            if size > MAX_BYTES:
                raise FrameTooLarge(size)
            end = HEADER.size + size
            if len(buffer) < end:
                break
            found.append(bytes(buffer[HEADER.size : end]))
            del buffer[:end]
        return found

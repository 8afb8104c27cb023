"""One text for equal calls, and the key a call keeps across attempts and crashes."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from ..jsontext import encode_sorted

_FLOAT = re.compile(r"\d(?:\.|e)|NaN|Infinity")  # only then is there anything to make alike


def canonical(value: Any) -> str:
    """The same text for equal JSON values: keys sorted, `1.0` as `1`, no whitespace."""
    text = encode_sorted(value)
    return encode_sorted(_plain(value)) if _FLOAT.search(text) else text


def idempotency_key(
    session: str, turn: int | str, tool: str, arguments: Any, succeeded: int
) -> str:
    """The same for every attempt of one call; another one once the same call has succeeded."""
    call = arguments if isinstance(arguments, str) else canonical(arguments)
    text = encode_sorted([session, turn, tool, call, succeeded])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value

"""Turn whatever a skill returned into text.

Runs code of the value itself (`__repr__`, generators), so it belongs where skill code runs.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import json
import math
import os
import re
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from .clean import clean, is_binary, is_harmless

MAX_CHARS = 4_000_000
_MAX_DEPTH = 60
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_MAX_DRAWN = 10_000
_MAX_REPR_CHARS = 500
_MAX_INT_BITS = 14_000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_AS_TEXT = (decimal.Decimal, fractions.Fraction, uuid.UUID, complex, dt.timedelta)
_AS_DATE = (dt.date, dt.time)
_MAGIC = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"RIFF", "RIFF media"),
    (b"%PDF", "PDF document"),
    (b"PK\x03\x04", "ZIP archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"(\xb5/\xfd", "zstd data"),
    (b"7z\xbc\xaf", "7z archive"),
    (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"),
    (b"SQLite format 3", "SQLite database"),
    (b"\x00asm", "WebAssembly"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"PAR1", "Parquet table"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Compacted:
    """A value and its text, made where the value's own code may run."""

    value: Any
    text: str | None


def compacted(value: Any) -> Compacted:
    """The value with its text."""
    return Compacted(value, compact(value)[0])


def said(error: BaseException) -> str:
    """What an error says about itself. Runs its own code, which may do anything but raise."""
    try:
        return _text(str(error))[0]
    except BaseException:  # noqa: BLE001 - a skill's own __str__ may raise anything
        return f"<unprintable {type(error).__name__}>"


async def drawn(items: AsyncIterator[Any]) -> list[Any]:
    """The items of an async generator, as many as are drawn from a plain one."""
    found = []
    async for item in items:
        found.append(item)
        if len(found) == _MAX_DRAWN:
            break
    return found


def compact(value: Any) -> tuple[str | None, bool]:
    """The value as text, None when there is nothing, and whether something was lost.

    Containers become JSON without whitespace. Never raises for anything a value is or does, and
    stays quick for huge ones: what is over the budget is left out and said.
    """
    if value is None:
        return None, False
    if isinstance(value, str):
        text, lost = _text(value)
        return text or None, lost
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(
            bytes(value[: MAX_CHARS + 4]),
            value.nbytes if isinstance(value, memoryview) else len(value),
        )
    walk = _Walk()
    plain = walk.plain(value, 0)
    if isinstance(plain, str):
        return plain or None, walk.lost
    return _encode(plain), walk.lost


def _text(text: str) -> tuple[str, bool]:
    if len(text) <= MAX_CHARS and is_harmless(text):
        return text, False
    if is_binary(text):
        return f"binary data, {len(text)} characters of text that are mostly unprintable", True
    if len(text) > MAX_CHARS:
        half = MAX_CHARS // 2
        gone = len(text) - 2 * half
        text = (
            f"{text[:half]}\n[{gone} characters left out: the result is too large]\n{text[-half:]}"
        )
        return clean(text), True
    cleaned = clean(text)
    return cleaned, "\N{REPLACEMENT CHARACTER}" in cleaned and cleaned != text


def _bytes(data: bytes, size: int) -> tuple[str | None, bool]:
    if not size:
        return None, False
    if size <= MAX_CHARS:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return _described(data, size), True
        if "\0" not in text and not is_binary(text):
            return clean(text) or None, False
    return _described(data, size), True


def _described(data: bytes, size: int) -> str:
    kind = next((name for magic, name in _MAGIC if data.startswith(magic)), "")
    return f"binary data, {size} bytes" + (f" ({kind})" if kind else "")


class _Walk:
    """One walk over one value: counts what it spends, and remembers whether something was lost."""

    def __init__(self) -> None:
        self.lost = False
        self._left = MAX_CHARS
        self._inside: set[int] = set()

    def plain(self, value: Any, depth: int) -> Any:
        """The value as `json.dumps` takes it."""
        self._left -= 2
        kind = type(value)
        if kind is str:
            return self._str(value)
        if kind is bool or value is None:
            return value
        if kind is int:
            return self._int(value)
        if kind is float:
            return self._float(value)
        if depth > _MAX_DEPTH:
            return self._loss("<nested too deeply>")
        if id(value) in self._inside:
            return self._loss("<the value contains itself>")
        self._inside.add(id(value))
        try:
            return self._container(value, depth)
        except Exception as error:  # noqa: BLE001 - the value's own code: repr, iteration, properties
            return self._loss(f"<unprintable {type(value).__name__}: {type(error).__name__}>")
        finally:
            self._inside.discard(id(value))

    def _container(self, value: Any, depth: int) -> Any:
        match value:
            case enum.Enum():
                return self.plain(value.value, depth + 1)
            case Mapping():
                return self._mapping(value.items(), depth)
            case tuple() if hasattr(value, "_asdict"):
                return self._mapping(value._asdict().items(), depth)
            case list() | tuple():
                return self._sequence(value, depth)
            case AbstractSet():
                return self._sequence(_in_order(value), depth)
            case str():
                return self._str(str(value))
            case bytes() | bytearray() | memoryview():
                return self._loss(f"<{_described(bytes(value[:16]), len(value))}>")
            case Iterator():
                return self._sequence(value, depth, limit=_MAX_DRAWN)
            case _:
                return self._object(value, depth)

    def _object(self, value: Any, depth: int) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
            return self._mapping(fields, depth)
        if isinstance(value, _AS_DATE):
            return value.isoformat()
        if isinstance(value, os.PathLike):
            return self._str(os.fsdecode(value))
        if isinstance(value, _AS_TEXT):
            return self._str(str(value))
        if isinstance(value, int):
            return self._int(int(value))
        if isinstance(value, float):
            return self._float(float(value))
        for name in ("model_dump", "tolist"):  # pydantic; numpy
            if callable(getattr(type(value), name, None)):
                return self.plain(getattr(value, name)(), depth + 1)
        return self._loss(self._str(_ADDRESS.sub("", repr(value))[:_MAX_REPR_CHARS]))

    def _mapping(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, part in items:
            if self._left <= 0:
                self.lost = True
                plain["…"] = "more was left out: the result is too large"
                break
            name = self._str(key) if type(key) is str else self._key(key, depth)
            self.lost = self.lost or name in plain
            plain[name] = self.plain(part, depth + 1)
        return plain

    def _sequence(self, parts: Iterable[Any], depth: int, limit: int | None = None) -> list[Any]:
        plain: list[Any] = []
        for part in parts:
            if self._left <= 0 or len(plain) == limit:
                self.lost = True
                total = f" of {len(parts)}" if isinstance(parts, list | tuple) else ""
                plain.append(f"… only the first {len(plain)}{total} are shown")
                break
            plain.append(self.plain(part, depth + 1))
        return plain

    def _key(self, key: Any, depth: int) -> str:
        plain = self.plain(key, depth + 1)
        if isinstance(plain, str):
            return plain
        return _encode(plain)

    def _str(self, text: str) -> str:
        room = max(1000, self._left)
        self._left -= len(text)
        if len(text) > room:
            text = self._loss(f"{text[:room]}… {len(text) - room} characters left out")
        if text.isprintable():
            return text
        text, lost = _text(text)
        self.lost = self.lost or lost
        return text

    def _int(self, value: int) -> Any:
        if value.bit_length() > _MAX_INT_BITS:
            digits = int(value.bit_length() * math.log10(2))
            return self._loss(f"<an integer of about {digits} digits>")
        self._left -= value.bit_length() // 4
        return value

    def _float(self, value: float) -> Any:
        self._left -= 8
        if math.isfinite(value):
            return value
        return self._loss(None)

    def _loss(self, shown: Any) -> Any:
        self.lost = True
        return shown


def _in_order(values: AbstractSet[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: (type(value).__name__, str(value)))

"""What crosses between processes: exceptions and results as data, and back."""

from __future__ import annotations

import builtins
from typing import Any

from ..errors import SkillError
from ..skill import ToolError
from ..types import JSON
from .compact import compact, said
from .frames import MAX_BYTES, FrameTooLarge, pack

_MESSAGE_CHARS = 20_000
_LINES = 10_000_000
_OURS = "/runner/calls/"


class ResultTooLarge(Exception):
    """A result that is too large to leave its process; nothing of it is kept."""


class WorkerDied(Exception):
    """The process a call ran in ended before it answered."""


def too_large(size: object) -> ResultTooLarge:
    """What is said of a result of that size; anything but a number is a size nobody knows."""
    known = f"{size:,}" if isinstance(size, int) else "too many"
    return ResultTooLarge(
        f"the result has at least {known} bytes, and at most {MAX_BYTES:,} can be handed over. "
        "Ask for less, or let the tool write a file and name it."
    )


def describe(error: BaseException) -> JSON:
    """The exception as JSON: its classes, text and the place it was raised at."""
    known = {"ToolError": ToolError, "SkillError": SkillError}
    types = [
        cls.__name__
        for cls in type(error).__mro__
        if cls is known.get(cls.__name__) or cls is getattr(builtins, cls.__name__, None)
    ]
    file, line = _place(error)
    return {
        "name": type(error).__name__,
        "types": types,
        "text": said(error)[:_MESSAGE_CHARS],
        "retryable": isinstance(error, ToolError) and bool(error.retryable),
        "file": file,
        "line": line,
    }


def rebuild(data: Any) -> BaseException:
    """An exception of the same name, class, text and place as the one described.

    Never raises: what a worker says may be anything.
    """
    if not isinstance(data, dict):
        data = {}
    text = str(data.get("text", ""))
    named = data.get("types")
    types = [str(name) for name in named] if isinstance(named, list) else []
    if "ToolError" in types:
        return ToolError(text, retryable=data.get("retryable") is True)
    if "SkillError" in types:
        return SkillError(text)
    return _placed(_like(str(data.get("name", "Exception")), types, text), data)


def pack_result(head: JSON, value: Any) -> bytes:
    """A frame with the value: as it is when it is JSON, else as the text the model would see.

    Raises `FrameTooLarge` with the size, known or at least so large.
    """
    least = _least_size(value)
    if least > MAX_BYTES:
        raise FrameTooLarge(least)
    try:
        return pack({**head, "value": value})
    except FrameTooLarge:
        raise
    except (TypeError, ValueError, RecursionError):
        text, lossy = compact(value)
        return pack({**head, "value": text, "lossy": lossy})


def _least_size(value: Any) -> int:
    """A lower bound of the value's size as JSON, without walking through it."""
    kind = type(value)
    if kind is str:
        return len(value)
    if kind not in (list, tuple, dict):
        return 0
    total = 2 * len(value)
    if total < 2000:  # noqa: PLR2004 - looking one level deeper stays cheap
        for part in value.values() if kind is dict else value:
            if type(part) is str:
                total += len(part)
            elif type(part) in (list, tuple, dict):
                total += 2 * len(part)
    return total


def _place(error: BaseException) -> tuple[str, int]:
    """The innermost line that is not ours; walked by hand, because a traceback may be very long."""
    file, line, trace = "", 0, error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if _OURS not in name and "/asyncio/" not in name:
            file, line = name, trace.tb_lineno or 0
        trace = trace.tb_next
    return file, line


def _like(name: str, types: list[str], text: str) -> BaseException:
    found = (getattr(builtins, cls, None) for cls in types)
    base = next(
        (cls for cls in found if isinstance(cls, type) and issubclass(cls, BaseException)),
        Exception,
    )
    if not issubclass(base, Exception) or issubclass(base, StopIteration | StopAsyncIteration):
        base = Exception  # SystemExit and its kin mean something to whoever handles them
    name = name if name.isidentifier() else "Exception"
    body = {"__init__": lambda *_: None, "__str__": lambda _: text, "__module__": "skill"}
    made: BaseException
    try:
        made = type(name, (base,), body)(text)
    except TypeError:  # some classes want more than a text, such as exception groups
        made = type(name, (Exception,), body)(text)
    return made


def _placed(error: BaseException, data: JSON) -> BaseException:
    """Gives the exception a traceback that ends where the original was raised."""
    line, file = data.get("line"), data.get("file")
    if not isinstance(line, int) or not isinstance(file, str) or not 0 < line < _LINES:
        return error
    name = file.replace("\0", "").encode("utf-8", "backslashreplace").decode()
    code = compile("raise error", name, "exec").replace(co_firstlineno=line)
    try:
        exec(code, {"error": error})  # noqa: S102 - one statement of ours
    except BaseException as raised:  # noqa: BLE001 - it is the one just made
        return raised
    return error

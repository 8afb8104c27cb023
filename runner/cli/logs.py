"""Log lines on stderr: sentences for a person, or structured with `-v`. Logging never raises."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..log import get_logger
from .console import Console
from .text import one_line

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_MAX_DEPTH = 6
_MAX_CHARS = 2000


def configure(console: Console, *, verbose: int = 0) -> None:
    """Sends the package's log to the console, and nothing of it anywhere else."""
    level = logging.ERROR if console.quiet and not verbose else LEVELS[min(verbose, 2)]
    handler = ToConsole(console, structured=verbose > 0)
    for name in ("runner", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
    # Python would print a traceback, secrets included, about a thread or finaliser of a skill
    threading.excepthook = lambda failed: _unhandled(failed, failed.thread)
    sys.unraisablehook = lambda failed: _unhandled(failed, failed.object)


def _unhandled(failed: Any, where: object) -> None:
    if failed.exc_value is None or isinstance(failed.exc_value, SystemExit):
        return
    trace = failed.exc_traceback
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    get_logger().warning(
        "exception.unhandled",
        where=getattr(where, "name", None) or type(where).__name__,
        at=at,
        error=f"{type(failed.exc_value).__name__}: {_text(failed.exc_value)}",
    )


def redact_with(redact: Callable[[str], str]) -> None:
    """From now on every line goes through `redact`, which knows this run's secrets."""
    for handler in logging.getLogger("runner").handlers:
        if isinstance(handler, ToConsole):
            handler.redact = redact


class ToConsole(logging.Handler):
    """Writes each record as one line."""

    def __init__(self, console: Console, *, structured: bool) -> None:
        super().__init__()
        self.console = console
        self.redact: Callable[[str], str] | None = None
        self._structured = structured
        self._render: Callable[[dict[str, Any]], str] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """As `logging.Handler` does; whatever goes wrong, the run goes on."""
        try:
            line = self._structured_line(record) if self._structured else _sentence(record)
            self.console.say(self._clean(line) + "\n")
        except Exception:  # noqa: BLE001 - observing never breaks what is observed
            self.console.say("warning: a log line could not be written\n")

    def _clean(self, line: str) -> str:
        if self.redact is None:
            import os

            from ..redact import Redactor

            self.redact = Redactor(os.environ).text
        return self.redact(line)

    def _structured_line(self, record: logging.LogRecord) -> str:
        if self._render is None:
            self._render = _renderer(terminal=self.console.err_is_terminal)
        pairs = {str(key): plain(value) for key, value in _pairs(record).items()}
        fields = {**pairs, "event": record.getMessage(), "level": record.levelname.lower()}
        return one_line(self._render(fields))


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON can hold it, whatever it is: cycles, odd keys and a failing repr included."""
    if depth > _MAX_DEPTH:
        return "…"
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            text = value.encode("utf-8", "backslashreplace").decode("utf-8")
            return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…"
        case Mapping():
            return {plain(_text(k)): plain(v, depth + 1) for k, v in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(one, depth + 1) for one in value]
        case _:
            return plain(_text(value))


def _renderer(*, terminal: bool) -> Callable[[dict[str, Any]], str]:
    """structlog does the layout; nothing of its global configuration is touched or used."""
    from structlog import dev, processors

    stamp = processors.TimeStamper(fmt="iso", utc=True)
    layout: Any = dev.ConsoleRenderer(colors=False) if terminal else processors.JSONRenderer()
    return lambda fields: str(layout(None, "", dict(stamp(None, "", fields))))


def _sentence(record: logging.LogRecord) -> str:
    word = "error" if record.levelno >= logging.ERROR else "warning"
    pairs = _pairs(record)
    what = record.getMessage().replace(".", " ")
    if set(pairs) == {"what"}:
        return one_line(f"{word}: {_text(pairs['what'])}")
    said = ", ".join(f"{key} {_text(value)}" for key, value in pairs.items())
    return one_line(f"{word}: {what}: {said}" if said else f"{word}: {what}", _MAX_CHARS)


def _pairs(record: logging.LogRecord) -> Mapping[str, Any]:
    pairs = getattr(record, "pairs", None)
    return pairs if isinstance(pairs, Mapping) else {}


def _text(value: Any) -> str:
    try:
        return str(value)
    except BaseException:  # noqa: BLE001 - a skill's value may have a failing __str__
        return f"<unprintable {type(value).__name__}>"

"""Our logger: event names and key–value pairs, redacted, over `logging.getLogger("runner")`."""

from __future__ import annotations

import logging
from typing import Any


class Log:
    """`log.info("tool.finished", tool=…)`. Never raises into a turn, whatever the values are."""

    def __init__(self, name: str = "runner") -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **pairs: Any) -> None:
        self._write(logging.DEBUG, event, pairs)

    def info(self, event: str, **pairs: Any) -> None:
        self._write(logging.INFO, event, pairs)

    def warning(self, event: str, **pairs: Any) -> None:
        self._write(logging.WARNING, event, pairs)

    def _write(self, level: int, event: str, pairs: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            try:
                self._logger.log(level, "%s", event, extra={"pairs": pairs})
            except Exception:  # noqa: BLE001, S110 - a host's handler: there is nowhere left to say it
                pass


def get_logger() -> Log:
    """The logger of the package. Only the command line configures output, to stderr."""
    return Log()

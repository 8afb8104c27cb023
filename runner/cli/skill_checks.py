"""`runner skills check`: the findings, once or again with every save."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from ..catalog.checks import Finding, check, root_of
from ..catalog.registry import Registry
from ..catalog.watcher import Backend, Watcher
from ..config import Config
from ..plugins import arguments_of_hooks
from .console import Console

_CLEAR = "\x1b[2J\x1b[3J\x1b[H"
_COLOURS = {"error": "31;1", "warning": "33"}


class Checked:
    """What to check and how to say it: some paths, else a registry. Gives an exit code."""

    def __init__(
        self,
        config: Config,
        where: Registry | Sequence[Path],
        console: Console,
        *,
        as_json: bool,
        strict: bool,
    ) -> None:
        self.config = config
        self.where = where
        self.console = console
        self._as_json = as_json
        self._strict = strict

    def once(self) -> int:
        """Checks, prints, and gives the exit code."""
        findings = check(self.where, hookspecs=arguments_of_hooks())
        return self._said(findings)

    def _said(self, findings: Sequence[Finding]) -> int:
        if self._as_json:
            self.console.json([finding.to_dict() for finding in findings], indent=2)
        elif self.console.colours:
            self.console.draw("".join(map(_coloured, findings)))
        elif findings:
            self.console.answer("\n".join(map(str, findings)))
        levels = [finding.level for finding in findings]
        errors, warnings = levels.count("error"), levels.count("warning")
        self.console.note(f"{errors} error(s), {warnings} warning(s)")
        return int(errors > 0 or (self._strict and warnings > 0))


def repeat(checked: Checked) -> int:
    """Checks, then again whenever a skill changes, until Ctrl-C. Never returns otherwise."""
    console = checked.console
    where = checked.where
    watched = where if isinstance(where, Registry) else _registry(where, checked.config)
    saved = threading.Event()
    watcher = Watcher(
        watched,
        backend=_backend(checked.config),
        debounce=checked.config.watch.debounce,
        on_change=lambda _change: saved.set(),
    )
    watcher.start()
    try:
        while True:
            if console.out_is_terminal:
                console.draw(_CLEAR)
            checked.once()
            console.note(f"{time.strftime('%H:%M:%S')} waiting for a save; Ctrl-C leaves")
            saved.wait()
            saved.clear()
    finally:
        watcher.stop()


def _registry(paths: Sequence[Path], config: Config) -> Registry:
    """A registry of the roots that hold the paths, only to notice saves by."""
    found = Registry(list(dict.fromkeys(map(root_of, paths))), project=config.project)
    found.scan()
    return found


def _backend(config: Config) -> Backend:
    asked = config.watch.backend
    return "auto" if asked == "off" else asked  # type: ignore[return-value]  # the config checked it


def _coloured(finding: Finding) -> str:
    from .text import safe

    level = f"\x1b[{_COLOURS[finding.level]}m{finding.level}\x1b[0m"
    return f"{safe(finding.path)}: {level}: {safe(finding.message)}\n"

"""What a call would change in a file, as a diff to look at before saying yes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .text import one_line

_MOST_BYTES = 1_000_000
_MOST_LINES = 60
_MOST_CHARS = 400
_PATHS = ("path", "file_path", "file", "filename")
_PAIRS = (("old", "new"), ("old_text", "new_text"), ("old_string", "new_string"))


def diff(arguments: Mapping[str, Any], workspace: Path) -> tuple[list[str], frozenset[str]]:
    """The lines of a unified diff, and the arguments it stands for; nothing when it is no file write.

    A file write has a path with `content`, or a path with an old and a new text. Lines are safe.
    """
    name = next((n for n in _PATHS if isinstance(arguments.get(n), str)), "")
    if not name:
        return [], frozenset()
    if isinstance(arguments.get("content"), str):
        before = _text(workspace, arguments[name])
        if before is not None:
            return _shown(before, arguments["content"], arguments[name]), frozenset({"content"})
    for old, new in _PAIRS:
        pair = arguments.get(old), arguments.get(new)
        if isinstance(pair[0], str) and isinstance(pair[1], str):
            return _shown(pair[0], pair[1], arguments[name]), frozenset({old, new})
    return [], frozenset()


def _shown(before: str, after: str, name: str) -> list[str]:
    made = list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    )  # the first two lines name files
    lines = [_cut(line) for line in made[2:]] or ["(no change)"]
    head = [f"--- {one_line(name)}", f"+++ {one_line(name)}"]
    if len(lines) > _MOST_LINES:
        left = len(lines) - _MOST_LINES
        lines = [*lines[:_MOST_LINES], f"… {left} more lines of this diff"]
    return [*head, *lines]


def _cut(line: str) -> str:
    shown = one_line(line)
    if len(shown) <= _MOST_CHARS:
        return shown
    return f"{shown[:_MOST_CHARS]}… ({len(shown) - _MOST_CHARS} more)"


def _text(workspace: Path, name: str) -> str | None:
    """What the file holds now; empty when there is none, None when it cannot be compared."""
    try:
        path = (workspace / name).resolve()
        if not path.is_relative_to(workspace.resolve()):
            return None
        if not path.exists():
            return ""
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError):
        return None

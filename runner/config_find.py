"""Find the project that a folder belongs to: the nearest one above it, as git finds its repository."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_FILE = Path("config", "runner.toml")


def find(cwd: Path, home: Path) -> tuple[Path | None, str]:
    """The config file of `cwd`, else of the nearest project above; a warning when one is left out.

    The search ends with a folder that holds `.git`, and before the home folder or the root of the
    file system. What belongs to another user is not taken from above: a config runs commands.
    """
    ceiling = Path(os.path.realpath(home))
    for folder in (cwd, *Path(os.path.realpath(cwd)).parents):
        above = folder != cwd
        if above and folder in (ceiling, folder.parent):
            break
        file = folder / DEFAULT_FILE
        if _is_there(file):
            if above and not _ours(folder, file.parent, file):
                return None, (
                    f"{file} is left out: it, or its folder, belongs to another user; "
                    "name it with --config to use it"
                )
            return file, ""
        if os.path.lexists(folder / ".git"):
            break
    return None, ""


def _is_there(file: Path) -> bool:
    try:
        return file.exists() or file.is_symlink()
    except OSError:  # reading it will say why
        return True


def _ours(*paths: Path) -> bool:
    try:
        return all(path.stat().st_uid == os.geteuid() for path in paths)
    except OSError:
        return False

"""Can file events be relied on here? Network and container mounts deliver none."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_SILENT = re.compile(r"9p|drvfs|nfs\d?|cifs|smb\w*|fuse(\..*)?|vboxsf|virtiofs|afs|sshfs|prl_fs")
_LOCAL_FUSE = frozenset({"fuseblk", "fuse.portal"})
_SHARE = 0.8  # of the system's watches; others need some too


def silent_mount(folder: Path, mounts: str | None = None) -> str:
    """The type of the file system that delivers no events for this folder; empty when it does."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""  # not Linux: its events work on local disks, the reconcile scan does the rest
    best, kind = "", ""
    real = os.path.realpath(folder)
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004  # device, place, type
            continue
        point = re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), fields[1])
        below = real == point or real.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind if _SILENT.fullmatch(kind) and kind not in _LOCAL_FUSE else ""


def too_many(folders: int, limit: int | None = None) -> str:
    """Why so many folders cannot all be watched; empty when they can.

    watchdog says nothing when the system's limit is reached: the rest would be silent.
    """
    limit = limit_here() if limit is None else limit
    if not limit or folders <= limit * _SHARE:
        return ""
    return f"{folders:,} folders need more than the {limit:,} watches the system allows"


def limit_here() -> int:
    """How many folders this user may watch; 0 when the system has no such limit."""
    try:
        return int(Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def events_here(platform: str = sys.platform) -> str:
    """The name of this system's file events."""
    return {"linux": "inotify", "darwin": "FSEvents"}.get(platform, platform)

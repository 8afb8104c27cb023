"""What `runner doctor` looks at besides the config and the model: folders, watch, system, Python."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from ..catalog.filesystems import events_here, limit_here, silent_mount, too_many
from ..config import Config

Level = Literal["ok", "warning", "error"]
_OLDEST_CLOCK = 1_735_689_600  # 2025: before it, keys and certificates are refused
_NEWEST_CLOCK = 2_524_608_000  # 2050: after it, they have all expired
_JUMP_S = 0.5
_MOST_FILES = 5_000
_MOST_FOLDERS = 50_000
_KNOWN_PTH = {"_virtualenv.pth", "easy-install.pth", "distutils-precedence.pth"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `fix` says what to do about it."""

    name: str
    level: Level
    found: str
    fix: str = ""


def folders(config: Config) -> Iterator[Check]:
    """The workspace, and the folder where sessions are kept: there, writable, private."""
    workspace, state = config.paths.workspace, config.paths.state
    if workspace.is_dir():
        yield Check("workspace", "ok", str(workspace))
    else:
        said, fix = f"there is no folder {workspace}", f"mkdir -p {workspace}"
        yield Check("workspace", "error", said, fix)
    nearest = next(p for p in (state, *state.parents) if p.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        yield _private(state)
    else:
        said, fix = f"{nearest} cannot be written", "--state DIR, or [paths] state"
        yield Check("state", "error", said, fix)


def _private(state: Path) -> Check:
    if not state.is_dir():
        return Check("state", "ok", f"{state}, made with the first session")
    fix = f"chmod -R go= {state}"
    if os.name == "posix" and state.stat().st_mode & 0o022:
        return Check("state", "warning", f"{state} can be written by others", fix)
    kept = list(islice(_files(state), _MOST_FILES))
    loose = [found for found in kept if found.st_mode & 0o077]
    if loose and os.name == "posix":
        said = f"{len(loose)} of {len(kept)} files in {state} can be read by others"
        return Check("state", "warning", said, fix)
    return Check("state", "ok", f"{state}, {len(kept)} file(s), yours alone")


def _files(folder: Path) -> Iterator[os.stat_result]:
    for where, _, names in os.walk(folder):
        for name in names:
            found = (Path(where) / name).lstat()
            if stat.S_ISREG(found.st_mode):
                yield found


def watch(config: Config) -> Iterator[Check]:
    """How edits of skills are noticed, and whether the system gives enough watches."""
    if config.watch.backend in {"off", "poll"}:
        yield Check("watch", "ok", f"{config.watch.backend}, as configured")
        return
    roots = [root for root in config.paths.skills if root.is_dir()]
    for root in roots:
        if kind := silent_mount(root):
            fix = "nothing to do: edits are polled for; or move the skills to a local disk"
            yield Check("watch", "warning", f"{root} is on {kind}, which tells of no edits", fix)
            return
    count = sum(_folders_below(root) for root in roots)
    if reason := too_many(count):
        fix = "sudo sysctl fs.inotify.max_user_watches=524288; until then edits are polled for"
        yield Check("watch", "warning", reason, fix)
        return
    limit = limit_here()
    most = f"; {count:,} folders of {limit:,} watches" if limit else f"; {count:,} folders"
    yield Check("watch", "ok", f"file events by {events_here()}{most}")


def _folders_below(root: Path) -> int:
    """The folders that a watch of the root takes, itself included."""
    count = 0
    for _, names, _ in os.walk(root):
        count += 1
        if count + len(names) > _MOST_FOLDERS:
            return count + len(names)
    return count


def isolation(_config: Config) -> Iterator[Check]:
    """What a skill with `isolation = "strict"` is held by on this machine."""
    from ..calls.process import Processes

    level = Processes(environ=os.environ).level()
    if level == "process":
        said = "a strict skill gets a process of its own and limits; nothing here confines it"
        fix = "use a Linux kernel from 5.13 on, or install bubblewrap"
        yield Check("isolation", "warning", said, fix)
    else:
        yield Check("isolation", "ok", f"strict skills are confined by {level}")


def system(config: Config) -> Iterator[Check]:
    """The clock, and what is special about Windows Subsystem for Linux."""
    yield clock(time.time())
    try:
        release = Path("/proc/sys/kernel/osrelease").read_text(encoding="utf-8")
    except OSError:
        return
    places = {"workspace": config.paths.workspace, "state": config.paths.state}
    places |= {f"skills {root.name}": root for root in config.paths.skills}
    on_windows = [what for what, path in places.items() if silent_mount(path) in {"9p", "drvfs"}]
    yield from wsl(release, on_windows)


def clock(now: float) -> Check:
    """Is it a time at which certificates and keys are valid?"""
    shown = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now))
    if _OLDEST_CLOCK < now < _NEWEST_CLOCK:
        return Check("clock", "ok", shown)
    fix = "set the clock: with a wrong year certificates and keys are refused"
    return Check("clock", "error", f"{shown} cannot be right", fix)


def jumped(before: float, after: float) -> Iterator[Check]:
    """Wall clock minus monotonic clock, twice: when they differ somebody has set the clock."""
    moved = after - before
    if abs(moved) > _JUMP_S:
        fix = "let the clock be slewed (chrony); time limits here do not depend on it, records do"
        said = f"the clock was set by {moved:+.1f} s while this ran"
        yield Check("clock", "warning", said, fix)


def wsl(release: str, on_windows: list[str]) -> Iterator[Check]:
    """Version 1 lacks what watching and confining need; Windows folders are slow and silent."""
    lower = release.lower()
    if "microsoft" not in lower:
        return
    if "wsl2" not in lower and "microsoft-standard" not in lower:
        fix = "wsl --set-version DISTRIBUTION 2"
        yield Check("wsl", "warning", "WSL 1: events and confinement are missing", fix)
    elif on_windows:
        said = f"WSL 2; on a Windows disk, slow and without events: {', '.join(on_windows)}"
        yield Check("wsl", "warning", said, "move them below your home folder in Linux")
    else:
        yield Check("wsl", "ok", "WSL 2, all folders on the Linux disk")


def python(_config: Config) -> Iterator[Check]:
    """The interpreter, and files that run code whenever it starts."""
    ignored = "; PYTHONDONTWRITEBYTECODE has no effect on skills, compiled from their source"
    note = ignored if os.environ.get("PYTHONDONTWRITEBYTECODE") else ""
    yield Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}{note}")
    strays = sorted(stray_pth_files())
    for path in strays:
        fix = "look inside: it runs code whenever Python starts; remove it unless you put it there"
        yield Check("pth files", "warning", f"{path} belongs to no installed package", fix)
    if not strays:
        yield Check("pth files", "ok", "each belongs to an installed package")


def stray_pth_files() -> set[str]:
    """`.pth` files beside the installed packages that none of them put there."""
    from importlib.metadata import distributions

    places = {Path(p).resolve() for p in sys.path if p.endswith(("site-packages", "dist-packages"))}
    found = {path for place in places for path in place.glob("*.pth")}
    found = {path for path in found if path.name not in _KNOWN_PTH}
    for distribution in distributions():
        if not found:
            break
        record = distribution.read_text("RECORD") or distribution.read_text("installed-files.txt")
        for file in distribution.files or () if ".pth" in (record or "") else ():
            if file.suffix == ".pth":
                found.discard(Path(str(distribution.locate_file(file))).resolve())
    return {str(path) for path in found}

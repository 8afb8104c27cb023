"""The program of a worker process: keeps the worker, which serves one skill's functions.

`python -I worker_main.py FD PATHS` becomes two processes. The keeper never runs a skill's code: it
waits for the worker's end, or for the runner to hang up, ends whatever the worker left behind,
orphans included, and then ends as the worker did. `… probe LANDLOCK PATHS` tests confinement.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

_SET_SUBREAPER, _SET_PARENT_DEATH = 36, 1
_SWEEP_SECONDS = 0.6
_LOOK_MS = 2000
_MANY_THREADS, _MANY_FILES = 8, 32


def main() -> None:
    """Begins as the keeper; comes back as the worker and serves until the runner hangs up."""
    if sys.argv[1] == "probe":
        sys.path[:] = json.loads(sys.argv[3])
        from runner.calls import confine

        confine.self_test(landlock=sys.argv[2] == "landlock")
        return
    line = socket.socket(fileno=int(sys.argv[1]))
    _keep(line)
    sys.path[:] = json.loads(sys.argv[2])
    try:
        from runner.calls.serve import serve  # this is a program: it has no package of its own

        serve(line)
    except (ConnectionError, EOFError):
        pass  # the runner hung up
    finally:
        os._exit(0)  # whatever threads and exit handlers the skill left do not hold us up


def _keep(line: socket.socket) -> None:
    """Forks while this process has one thread. Returns in the worker only."""
    libc = _libc()
    if libc is not None:
        libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    parent, keeper = os.getppid(), os.getpid()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    worker = os.fork()
    if worker:
        os.setpgid(worker, worker)
        _watch(worker, parent, line, woken)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(woken)
    os.close(wake)
    os.setpgid(0, 0)
    if libc is not None:
        libc.prctl(_SET_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)


def _watch(worker: int, parent: int, line: socket.socket, woken: int) -> NoReturn:
    poll = select.poll()
    poll.register(line, 0)  # hanging up is always reported
    poll.register(woken, select.POLLIN)
    status: int | None = None
    while status is None:
        ready = {fd for fd, _events in poll.poll(_LOOK_MS)}
        if woken in ready:
            _emptied(woken)
        status = _reap(worker)
        if line.fileno() in ready or os.getppid() != parent:
            break
    try:
        os.killpg(worker, signal.SIGKILL)
    except OSError:
        pass  # nobody is left in it
    until = time.monotonic() + _SWEEP_SECONDS
    while time.monotonic() < until and _has_children():
        for child in _children():
            os.kill(child, signal.SIGKILL)
        found = _reap(worker)
        status = found if status is None else status
        select.select([woken], [], [], 0.002)
        _emptied(woken)
    _end_like(status)


def _end_like(status: int | None) -> NoReturn:
    """Ends with the worker's exit code or signal, so that whoever waits for us learns it."""
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        _no_core()
        os.kill(os.getpid(), number)
    os._exit(0 if status is None else os.WEXITSTATUS(status))


def _reap(worker: int) -> int | None:
    """Collects the dead; the worker's status when it is among them."""
    status = None
    while True:
        try:
            found, how = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if not found:
            return status
        if found == worker:
            status = how


def _has_children() -> bool:
    if not hasattr(os, "waitid"):
        return False  # macOS, where nobody can adopt orphans anyway
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    """Our children: as a subreaper, everything that descends from the worker and lost its parent."""
    me = str(os.getpid())
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()]
    except OSError:
        pass  # a kernel without that file
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == me:
            found.append(int(entry.parent.name))
    return found


def _emptied(pipe: int) -> None:
    try:
        os.read(pipe, 4096)
    except BlockingIOError:
        pass


def _no_core() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _libc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    main()

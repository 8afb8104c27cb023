"""Run one process group until it ends, its time is up, or nobody waits for it."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

MAX_OUTPUT_BYTES = 10_000_000
POLL_S = 0.02
GRACE_S = 0.5
DRAIN_S = 0.2


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed to stdout and stderr."""

    exit_code: int
    output: str
    killed: Literal["", "timeout", "cancelled"] = ""


def run_until(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: dict[str, str],
    keep: int,
    timeout_s: float,
    cancelled: Callable[[], bool],
) -> Ended:
    """Waits for the process itself; what it left in the background is not waited for."""
    deadline = time.monotonic() + timeout_s
    process = subprocess.Popen(  # noqa: S603 - running what it is given is this skill's purpose
        arguments,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(keep,),
        start_new_session=True,
    )
    killed: Literal["", "timeout", "cancelled"] = ""
    with process, _Reader(process) as reader:
        try:
            while process.poll() is None and not killed:
                reader.read(POLL_S)
                killed = "cancelled" if cancelled() else _late(deadline)
        finally:
            if process.returncode is None:
                _kill_group(process)
        reader.drain(DRAIN_S)
    code = process.returncode
    return Ended(code if code >= 0 else 128 - code, reader.text(), killed)


def _late(deadline: float) -> Literal["", "timeout"]:
    return "timeout" if time.monotonic() >= deadline else ""


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Asks the whole group to end, then makes it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Reader:
    """Collects a process's output, head and tail when there is too much. Never blocks for long."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            raise ValueError("the process has no pipe")
        self._pipe = process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe, selectors.EVENT_READ)
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def read(self, wait_s: float) -> bool:
        """Takes what is there, waiting a moment for it; False when there was nothing."""
        if not self._open:
            time.sleep(min(wait_s, 0.002))
            return False
        if not self._selector.select(wait_s):
            return False
        data = os.read(self._pipe, 65_536)
        self._open = bool(data)
        if not data:
            self._selector.unregister(self._pipe)
        self._keep(data)
        return bool(data)

    def drain(self, most_s: float) -> None:
        """Takes what is still in the pipe, even while a background process goes on writing."""
        until = time.monotonic() + most_s
        while self._open and self.read(0) and time.monotonic() < until:
            pass

    def text(self) -> str:
        """The output as text; bytes that are not UTF-8 are replaced."""
        cut = f"\n[… {self._cut:,} bytes left out …]\n".encode() if self._cut else b""
        return bytes(self._head + cut + self._tail).decode("utf-8", "replace").rstrip("\n")

    def _keep(self, data: bytes) -> None:
        half = MAX_OUTPUT_BYTES // 2
        room = max(0, half - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * half:
            self._cut += len(self._tail) - half
            del self._tail[:-half]

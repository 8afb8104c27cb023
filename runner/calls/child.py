"""One worker process as the runner sees it: begun, spoken with, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ..errors import SkillError
from ..types import JSON, Code
from . import confine
from .frames import FrameTooLarge, Splitter, pack, unpack
from .worker import Workers

PROGRAM = str(Path(__file__).with_name("worker_main.py"))
KILL_SECONDS = 0.7  # what the keeper is given to sweep; after that it is killed too
_CHUNK = 64 * 1024  # more would be mapped and unmapped for each message
_LARGE = 128 * 1024  # a message from here on is decoded on a thread
Confining = Literal["landlock+seccomp", "bwrap"]
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a worker is begun with: a version of a skill, its terms (None: not confined) and limits."""

    code: Code
    terms: confine.Terms | None
    level: confine.Level
    limits: confine.Limits
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Process:
    """A started worker: its process, our end of the socket, and what it prints."""

    popen: subprocess.Popen[bytes]
    line: socket.socket
    output: int


def start(order: Order) -> Process:
    """Starts the program and tells it its skill; blocking. Raises `SkillError`."""
    ours, theirs = socket.socketpair()
    output, printed = os.pipe()
    try:
        popen = subprocess.Popen(  # noqa: S603 - our own program
            _command(order, theirs.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env=clean_environment(order.environ),
            cwd="/",
        )
    except OSError as error:
        ours.close()
        os.close(output)
        raise SkillError(f"a worker process could not be started: {error}") from error
    finally:
        theirs.close()
        os.close(printed)
    process = Process(popen, ours, output)
    try:
        ours.settimeout(10.0)
        ours.sendall(_boot(order))
    except (OSError, FrameTooLarge) as error:
        end(process)
        raise SkillError(f"a worker process could not be told its skill: {error}") from error
    ours.setblocking(False)
    os.set_blocking(output, False)
    return process


def end(process: Process) -> None:
    """Hangs up, which makes the keeper sweep, and waits; blocking, at most a second."""
    _hang_up(process.line)
    try:
        process.popen.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        _kill_group(process.popen.pid)
        try:
            process.popen.wait(0.3)
        except subprocess.TimeoutExpired:
            pass  # stuck in the kernel: it has the signal, and nobody listens to it any more
    process.line.close()
    os.close(process.output)


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The few variables any worker gets."""
    return {name: environ[name] for name in _PASSED_ON if name in environ}


class Child:
    """The core loop's side of a worker. `on_message` is called for each message, in order.

    `gone` is done, with how it ended, once nothing of it runs any more. `unread`: it ended without
    reading the last message.
    """

    def __init__(self, process: Process, threads: Workers) -> None:
        self.process = process
        self.on_message: Callable[[JSON], None] = lambda _message: None
        self.on_gone: Callable[[], None] = lambda: None
        self.calls = 0
        self.known: set[tuple[str, str]] = set()
        self.session: JSON = {}  # what it was last told of its session
        self.reason = ""
        self.unread = False
        self.printed = b""
        self.loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[str] = self.loop.create_future()
        self._threads = threads
        self._splitter = Splitter()
        self._sending: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self.loop.add_reader(process.line, self._readable)
        self.loop.add_reader(process.output, self.drain)

    @property
    def alive(self) -> bool:
        """False from the moment its end is noticed or wanted."""
        return not self._ending

    def send(self, frame: bytes) -> None:
        """Sends a frame; what the socket does not take at once follows by itself."""
        try:
            sent = self.process.line.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.unread = True
            self.kill("")
            return
        if sent < len(frame):
            self._sending = self.loop.create_task(self._rest(frame[sent:]))

    def drain(self) -> None:
        """Takes what it printed; keeps the first part of it."""
        for _ in range(64):  # at most 4 MB at a time, so that nobody else has to wait
            try:
                data = os.read(self.process.output, 16384)
            except BlockingIOError:
                return
            if not data:
                self.loop.remove_reader(self.process.output)
                return
            if len(self.printed) < 8192:  # noqa: PLR2004 - 2,000 characters of up to four bytes
                self.printed += data[:8192]

    def kill(self, reason: str) -> None:
        """Ends it with all it started; `reason` says why for whoever waits for it."""
        if not self._ending:
            self._ending = True
            self.reason = reason
            self.loop.remove_reader(self.process.line)
            _hang_up(self.process.line)
            self._task = self.loop.create_task(self._end())

    def _readable(self) -> None:
        try:
            data = self.process.line.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:  # it ended with something unread
            self.unread = True
            data = b""
        if not data:
            self.kill("")
            return
        try:
            bodies = self._splitter.feed(data)
            for body in bodies:
                if len(body) > _LARGE:
                    self.loop.remove_reader(self.process.line)
                    self._task = self.loop.create_task(self._large(body))
                else:
                    self._hear(unpack(body))
        except (FrameTooLarge, ValueError) as error:
            self.kill(f"it sent a message that cannot be read: {error}")

    async def _large(self, body: bytes) -> None:
        try:
            message = await self._threads.run(unpack, body)
        except ValueError as error:
            self.kill(f"it sent a message that cannot be read: {error}")
            return
        if self.alive:
            self.loop.add_reader(self.process.line, self._readable)
            self._hear(message)

    def _hear(self, message: JSON) -> None:
        if self.alive:
            self.on_message(message)

    async def _rest(self, data: bytes) -> None:
        try:
            await self.loop.sock_sendall(self.process.line, data)
        except OSError:
            self.unread = True
            self.kill("")

    async def _end(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])  # or the loop would watch a closed socket
        self.drain()
        self.loop.remove_reader(self.process.output)
        await self._threads.run(end, self.process)
        self.gone.set_result(how_it_ended(self.process.popen.returncode))
        self.on_gone()


def how_it_ended(code: int | None) -> str:
    """An exit status in words."""
    if code is None:
        return "did not end"
    number = -code if code < 0 else code - 128 if code > 128 else 0  # noqa: PLR2004 - as shells do
    try:
        return f"died with signal {signal.Signals(number).name}"
    except ValueError:
        return f"died with exit code {code}"


def _command(order: Order, line: int) -> list[str]:
    worker = [*_python(), str(line), _path()]
    if order.terms is None or order.level != "bwrap":
        return worker
    return [*confine.bubblewrap(order.terms, _needed()), *worker]


def _boot(order: Order) -> bytes:
    code = order.code
    return pack(
        {
            "skill": code.skill,
            "number": code.number,
            "folder": code.folder,
            "files": {name: b64encode(data).decode("ascii") for name, data in code.files.items()},
            "limits": asdict(order.limits),
            "terms": order.terms.to_dict() if order.terms else None,
            "landlock": order.level != "bwrap",
        }
    )


def probe() -> tuple[confine.Level, str]:
    """How far a worker can be confined here, and why not further; blocking."""
    faults: list[str] = []
    levels: tuple[Confining, ...] = ("landlock+seccomp", "bwrap")
    for level in levels:
        fault = fault_of(level)
        if not fault:
            return level, "; ".join(faults)
        faults.append(f"{level}: {fault}")
    return "process", "; ".join(faults)


def fault_of(level: Confining) -> str:
    """Why this way to confine does not work here, tried in a process of its own; empty: it does."""
    how = "landlock" if level == "landlock+seccomp" else "outside"
    command = [*_python(), "probe", how, _path()]
    if level == "bwrap":
        command = [*confine.bubblewrap(confine.terms_of((), "/nowhere", "/"), _needed()), *command]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]


def _python() -> list[str]:
    return [sys.executable, "-I", "-X", "utf8", PROGRAM]


def _path() -> str:
    """What can be imported here can be imported there, this package in any case."""
    own = str(Path(PROGRAM).parents[2])
    return json.dumps([os.path.abspath(entry) for entry in [*sys.path, own]])  # noqa: PTH100 - "" too


def _needed() -> tuple[str, ...]:
    """What must be seen for Python to start at all."""
    real = os.path.realpath(sys.executable)
    return (sys.executable, real, str(Path(sys.prefix) / "pyvenv.cfg"))


def _hang_up(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it hung up first


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass  # it ended just now

"""The worker: calls one skill's functions as the runner asks for them, over a socket."""

from __future__ import annotations

import base64
import inspect
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..catalog import drift
from ..catalog.loader import Generation
from ..errors import SkillError
from ..skill import SkillContext
from . import confine, crossing, frames
from .compact import drawn

_MANY_THREADS, _MANY_FILES = 8, 32
_CHUNK = 65536
_DRAWN = 10_000  # items of an async generator; as many as are drawn from a plain one


def serve(end: socket.socket) -> None:
    """Serves until the runner hangs up, which raises `EOFError`."""
    line = _Line(end)
    boot = line.read()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a text stream
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a text stream
    confine.limit(confine.Limits(**boot["limits"]))
    skill = _Skill(boot)
    if boot["terms"] is not None:
        try:
            confine.apply(confine.Terms.from_dict(boot["terms"]), landlock=boot["landlock"])
        except OSError as error:
            line.tell({"kind": "refused", "text": str(error)})
            return
    owner, files, cpu_seconds = os.getpid(), _lowest_free(), boot["limits"]["cpu_seconds"] / 2
    while True:
        call = line.read()
        answer = _answer(line, skill, call)
        if os.getpid() != owner:
            os._exit(1)  # a forked copy of the worker must not go on as the worker
        answer[0].update(_recycle(_lowest_free() - files, cpu_seconds), id=call["id"])
        line.send(_finished(*answer))
        _tidy(skill)


class _Line:
    """The worker's end of the socket. Safe to use from several threads of a skill."""

    def __init__(self, line: socket.socket) -> None:

        self._line = line
        self._splitter = frames.Splitter()
        self._bodies: deque[bytes] = deque()
        self._sending = threading.Lock()
        self._asking = threading.Lock()

    def read(self) -> dict[str, Any]:
        """The next message; `EOFError` when the runner hung up."""
        while not self._bodies:
            data = self._line.recv(_CHUNK)
            if not data:
                raise EOFError
            self._bodies.extend(self._splitter.feed(data))
        return frames.unpack(self._bodies.popleft())

    def send(self, data: bytes) -> None:
        """Sends a whole frame."""
        with self._sending:
            self._line.sendall(data)

    def tell(self, message: dict[str, Any]) -> None:
        """Sends a message."""
        self.send(frames.pack(message))

    def ask(self, message: dict[str, Any]) -> Any:
        """Sends a question about files and gives the answer's value, or raises its error."""

        with self._asking:
            self.tell(message)
            answer = self.read()
        if "error" in answer:
            raise crossing.rebuild(answer["error"])
        return answer["value"]


class _Files:
    """Answers `ctx.path` and its kin by asking the runner, which holds the locks and the rules."""

    def __init__(self, line: _Line, call: str) -> None:
        self._line = line
        self._call = call

    def path(self, name: str, *, write: bool) -> Path:
        return Path(self._ask("path", name, write=write))

    def read(self, name: str) -> bytes:

        return base64.b64decode(self._ask("read", name))

    def write(self, name: str, data: bytes) -> None:

        self._ask("write", name, data=base64.b64encode(data).decode("ascii"))

    def stale(self, name: str) -> str:
        return str(self._ask("stale", name))

    def _ask(self, what: str, name: str, **more: Any) -> Any:
        message = {"id": self._call, "kind": "files", "what": what, "name": os.fspath(name), **more}
        return self._line.ask(message)


class _Log:
    """`ctx.log`: what is told to it goes to the runner's log."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell

    def debug(self, event: str, **pairs: Any) -> None:
        self._write("debug", event, pairs)

    def info(self, event: str, **pairs: Any) -> None:
        self._write("info", event, pairs)

    def warning(self, event: str, **pairs: Any) -> None:
        self._write("warning", event, pairs)

    def _write(self, level: str, event: str, pairs: dict[str, Any]) -> None:
        plain = {key: str(value)[:1000] for key, value in pairs.items()}
        self._tell({"kind": "log", "level": level, "event": str(event)[:200], "pairs": plain})


class _Skill:
    """One version of a skill, and what of it was loaded."""

    def __init__(self, boot: dict[str, Any]) -> None:

        files = {name: base64.b64decode(data) for name, data in boot["files"].items()}
        self._generation = Generation(boot["skill"], boot["number"], boot["folder"], files)
        self._entries: dict[tuple[str, str], Any] = {}
        self.environ = dict(os.environ)
        self.cwd = "/"
        self.session: dict[str, Any] = {}
        self.runner: Any = None

    def entry(self, call: dict[str, Any]) -> Any:
        """The function the call names; raises `SkillError`."""

        key = call["tool"], call["entry"]
        found = self._entries.get(key)
        if found is None:
            found = self._generation.entry(call["entry"])
            faults = drift.faults_of_loaded(call["tool"], call["schema"], found.function)
            if faults and call["schema"]:
                raise SkillError(
                    f"skill {self._generation.skill} failed to load: {'; '.join(faults)}"
                )
            self._entries[key] = found
        return found


def _answer(line: _Line, skill: _Skill, call: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Runs one call. The frame's head, and its value when there is one."""

    live = [True]
    context = None
    skill.session = call.get("session", skill.session)
    try:
        entry = skill.entry(call)
        if "schema" in call:
            line.tell({"id": call["id"], "kind": "began"})
        _settle_in(skill)
        extra = {}
        if entry.context_parameter:
            context = extra[entry.context_parameter] = _context(line, skill.session, call, live)
        value = _awaited(skill, entry.function(**call["arguments"], **extra))
        head: dict[str, Any] = {"kind": "returned"}
    except BaseException as error:  # noqa: BLE001 - a skill's SystemExit is a value, never ours
        head, value = {"kind": "raised", "error": crossing.describe(error)}, None
    finally:
        live[0] = False
    if context is not None and context.moved_to is not None:
        head["moved_to"] = os.fspath(context.moved_to)
    return head, value


def _finished(head: dict[str, Any], value: Any) -> bytes:
    try:
        return crossing.pack_result(head, value)
    except frames.FrameTooLarge as error:
        return frames.pack({"id": head["id"], "kind": "oversize", "size": error.size})
    except BaseException as error:  # noqa: BLE001 - the value's own code: repr, iteration
        fault = {"kind": "raised", "error": crossing.describe(error)}
        return frames.pack({"id": head["id"], **fault})


def _recycle(files: int, cpu_seconds: float) -> dict[str, str]:
    """Why this worker should not be used again, if there is a reason."""
    threads = threading.active_count() - 1
    if threads > _MANY_THREADS or files > _MANY_FILES:
        return {"recycle": f"it left {threads} threads and about {files} open files behind"}
    if not _streams_work():
        return {"recycle": "it closed or replaced a standard stream"}
    if time.process_time() > cpu_seconds:
        return {"recycle": "it used half of the processor time it may use"}
    return {}


def _settle_in(skill: _Skill) -> None:
    """The folder and the granted variables a call begins with."""
    os.environ.update(skill.session["env"])
    if skill.session["cwd"] != skill.cwd:
        skill.cwd = skill.session["cwd"]
        _go_to(skill.cwd)


def _tidy(skill: _Skill) -> None:
    """Undoes what a call did to the environment and the folder; after its answer, so that it is free."""
    if dict(os.environ) != skill.environ:
        os.environ.clear()
        os.environ.update(skill.environ)
    _go_to(skill.cwd)


def _go_to(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError:
        pass  # it is gone: the skill will say so if it matters


def _context(line: _Line, given: dict[str, Any], call: dict[str, Any], live: list[bool]) -> Any:
    def tell(message: dict[str, Any]) -> None:
        if live[0]:
            line.tell({"id": call["id"], **message})

    return SkillContext(
        session_id=given["session_id"],
        workspace=Path(given["workspace"]),
        files=_Files(line, call["id"]),
        idempotency_key=call["key"],
        deadline=None if call["left"] is None else time.monotonic() + call["left"],
        env=dict(given["env"]),
        log=_Log(tell),
        cwd=Path(given["cwd"]),
        scopes={name: tuple(scopes) for name, scopes in given["scopes"].items()},
        on_progress=lambda text: tell({"kind": "progress", "text": text[:500]}),
    )


def _awaited(skill: _Skill, value: Any) -> Any:
    """A coroutine's result and an async generator's items; any other value as it is."""

    if inspect.isasyncgen(value):
        value = drawn(value)
    if not inspect.iscoroutine(value):
        return value

    import asyncio  # 30 ms, for coroutines only

    if skill.runner is None:
        skill.runner = asyncio.Runner()
    return skill.runner.run(value)


def _streams_work() -> bool:
    """Hands what was printed to the runner; False when a skill closed a standard stream."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        return bool(os.fstat(1) and os.fstat(2))
    except Exception:  # noqa: BLE001 - a skill may have put anything in their place
        return False


def _lowest_free() -> int:
    """The lowest free file descriptor: grows with what is left open, and is quick to learn."""
    try:
        free = os.dup(0)
    except OSError:
        return _MANY_FILES * 4  # standard input was closed
    os.close(free)
    return free

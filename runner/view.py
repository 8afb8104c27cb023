"""Sessions as pages on loopback: a list, and one session that is followed while it runs."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from .errors import RecordError, SessionError
from .record.page import page
from .record.trajectory import file_of
from .record.turns import load
from .runner import Runner
from .view_pages import Answer, failure, frame_page, json_answer, list_page, session_page

HOST = "127.0.0.1"
MOST_BODY = 64_000
MOST_STEER = 20_000
REQUEST_S = 10.0
ACT_S = 5.0


class Control(Protocol):
    """What a page may do to the sessions of its own process; called on the server's threads."""

    def state(self, session: str) -> dict[str, Any]:
        """Is a turn running, and which calls."""
        ...

    def act(self, session: str, action: str, body: Mapping[str, Any]) -> str:
        """Does it; what is wrong in a sentence, else nothing."""
        ...


class View:
    """Serves the sessions of a state folder. Whoever has `url` may look; nobody else gets anything.

    It listens on loopback alone. Every address begins with a random token; a request whose `Host` is
    not this server is refused, so that no other site's name can be pointed here.
    """

    def __init__(self, state: Path, *, port: int = 0, control: Control | None = None) -> None:
        self._state = state
        self._control = control
        self._token = secrets.token_urlsafe(32)
        view = self

        class Handler(_Handler):
            answer = staticmethod(view.answer)

        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._hosts = {f"{HOST}:{self.port}", f"localhost:{self.port}"}
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address to open, token and all."""
        return f"http://{HOST}:{self.port}/{self._token}/"

    def url_of(self, session: str) -> str:
        """The address of one session."""
        return f"{self.url}s/{session}"

    def start(self) -> None:
        """Serves on a thread of its own."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="runner-view", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops serving."""
        if self._thread is not None:
            self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Request) -> Answer:
        """The answer to one request. Never raises for what a request or a file holds."""
        if request.host not in self._hosts:
            return failure(421, "this server has another name")
        token, _, path = request.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return failure(404, "there is nothing here")
        try:
            return self._post(path, request) if request.post else self._get(path)
        except SessionError as error:
            return failure(404, str(error))
        except RecordError as error:
            return failure(500, str(error))

    def _get(self, path: str) -> Answer:
        if path == "":
            return list_page(self._state)
        session, what = _split(path)
        file = file_of(self._state, session)
        if not file.is_file():
            raise SessionError(f"no session {session!r}")
        match what:
            case "":
                return frame_page(session, controls=self._control is not None)
            case "page":
                loaded = load(self._state, session)
                return session_page(page(loaded.records, session, loaded.damage))
            case "state":
                live = self._control.state(session) if self._control is not None else {}
                return json_answer({"size": file.stat().st_size, **live})
        return failure(404, "there is nothing here")

    def _post(self, path: str, request: Request) -> Answer:
        session, action = _split(path)
        if request.origin not in {f"http://{host}" for host in self._hosts}:
            return failure(403, "only this page may do that")
        if self._control is None:
            return failure(409, "the session runs in another process; it can only be looked at")
        wrong = self._control.act(session, action, request.body)
        return json_answer({"ok": not wrong, "error": wrong}, 409 if wrong else 200)


class LiveView:
    """A view of a runner's own sessions, with its buttons: cancel, cancel one call, steer.

    `await start()` on the runner's loop gives the address; `await close()` ends it.
    """

    def __init__(self, runner: Runner, *, port: int = 0) -> None:
        self._runner = runner
        self._port = port
        self._view: View | None = None

    async def start(self) -> str:
        """Begins to serve; the address, which holds the token."""
        control = _OwnSessions(self._runner, asyncio.get_running_loop())
        self._view = View(self._runner.config.paths.state, port=self._port, control=control)
        self._view.start()
        return self._view.url

    async def close(self) -> None:
        """Stops serving."""
        view, self._view = self._view, None
        if view is not None:
            await asyncio.to_thread(view.close)


class _OwnSessions:
    """`Control` of the sessions of a runner in this process. Everything happens on its loop."""

    def __init__(self, runner: Runner, loop: asyncio.AbstractEventLoop) -> None:
        self._runner = runner
        self._loop = loop

    def state(self, session: str) -> dict[str, Any]:
        return self._on_loop(lambda: self._state(session)) or {}

    def act(self, session: str, action: str, body: Mapping[str, Any]) -> str:
        return self._on_loop(lambda: self._act(session, action, body)) or ""

    def _state(self, session: str) -> dict[str, Any]:
        shared = self._runner.shared
        found = shared.sessions.get(session)
        now = shared.clock()
        calls = [
            {"id": call_id, "tool": tool, "seconds": round(now - began, 1)}
            for (owner, call_id), (tool, began) in shared.in_flight.items()
            if owner == session
        ]
        running = found is not None and found.turn is not None
        return {"own": found is not None, "running": running, "calls": calls}

    def _act(self, session: str, action: str, body: Mapping[str, Any]) -> str:
        found = self._runner.shared.sessions.get(session)
        if found is None:
            return "the session runs in another process; it can only be looked at"
        if found.turn is None:
            return "no turn is running"
        match action:
            case "cancel":
                found.turn.cancel()
            case "cancel-call":
                if not found.turn.cancel_call(str(body.get("call_id"))):
                    return "that call is not running"
            case "steer":
                text = body.get("text")
                if not isinstance(text, str) or not text.strip() or len(text) > MOST_STEER:
                    return f"say something, in at most {MOST_STEER} characters"
                found.turn.steer(text)
            case _:
                return "there is no such button"
        return ""

    def _on_loop(self, act: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(ACT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is looked at of an HTTP request."""

    path: str
    host: str
    origin: str
    post: bool
    body: Mapping[str, Any]


class _Handler(BaseHTTPRequestHandler):
    """HTTP alone; what is answered is the view's business."""

    answer: Callable[[Request], Answer]
    protocol_version = "HTTP/1.1"
    server_version = "slotrunner"
    sys_version = ""
    timeout = REQUEST_S

    def do_GET(self) -> None:
        self._reply({})

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            self._send(failure(400, "the body must be a JSON object"))
        else:
            self._reply(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing: an address holds the token."""

    def _reply(self, body: Mapping[str, Any]) -> None:
        path = self.path.partition("?")[0]
        request = Request(
            path=path,
            host=self.headers.get("Host", ""),
            origin=self.headers.get("Origin", ""),
            post=self.command == "POST",
            body=body,
        )
        self._send(type(self).answer(request))

    def _body(self) -> dict[str, Any] | None:
        length = self.headers.get("Content-Length", "")
        json_type = self.headers.get("Content-Type", "").partition(";")[0] == "application/json"
        if not length.isascii() or not length.isdigit() or int(length) > MOST_BODY or not json_type:
            self.close_connection = True
            return None
        try:
            value = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)


def _split(path: str) -> tuple[str, str]:
    """`s/SESSION/WHAT` as its two parts; `SessionError` for anything else."""
    kind, _, rest = path.partition("/")
    session, _, what = rest.partition("/")
    if kind != "s":
        raise SessionError("there is nothing here")
    return session, what

"""A scripted model server on a real socket: OpenAI's protocol and Ollama's, with their faults.

A script is `{"replies": [REPLY…], "rules": [{"contains": TEXT, "replies": […]}…],
"repeat_last": bool, "capabilities": […], "context_length": N, "parameters": TEXT}`.

REPLY, all optional: `text`, `calls` ([{"name", "arguments", "id"}]), `thinking`, `finish`,
`usage` ({"prompt_tokens", "completion_tokens"}), `status`, `body`, `headers`, `delay`, `hang`,
`reject_tools`, and for streams:
  cut        end the connection after so many chunks
  framing    "chunked" (default) or "close": a cut can then not be seen in HTTP itself
  error      a line `{"error": TEXT}` after the chunks, status still 200
  index      "right" (default), "zero" (every call 0) or "none"
  ids        false: calls carry no ids
  shape      Ollama: "one" line with all calls (default), a line for "each" call, in the "last" line
"""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

JSON = dict[str, Any]
TEXTS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many", 500: "Error"}


class FakeServer:
    """`with FakeServer(script) as server`: `server.url` is Ollama's address, `server.v1` OpenAI's."""

    def __init__(self, script: JSON | list[JSON]) -> None:
        script = {"replies": script} if isinstance(script, list) else script
        self.script = script
        self.requests: list[JSON] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()
        self.abandoned = threading.Event()
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._main = list(script.get("replies", []))
        self._rules = [
            (rule["contains"], list(rule["replies"])) for rule in script.get("rules", [])
        ]
        outer = self

        class Handler(_Handler):
            server_state = outer

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.v1 = f"{self.url}/v1"

    def __enter__(self) -> Self:
        serve = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        serve.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def chats(self) -> list[JSON]:
        """The bodies of the requests for a reply."""
        pairs = zip(self.paths, self.requests, strict=True)
        return [body for path, body in pairs if path.endswith(("/chat", "/chat/completions"))]

    def note(self, path: str, headers: dict[str, str], body: JSON) -> None:
        with self._lock:
            self.paths.append(path)
            self.headers.append(headers)
            self.requests.append(body)

    def reply(self, body: JSON) -> JSON:
        text = json.dumps(body.get("messages", []), ensure_ascii=False)
        with self._lock:
            for contains, replies in self._rules:
                if replies and contains in text:
                    return self._take(replies)
            if not self._main:
                return {"status": 500, "body": {"error": {"message": "script exhausted"}}}
            return self._take(self._main)

    def count(self, change: int) -> None:
        with self._lock:
            self._at_once += change
            self.most_at_once = max(self.most_at_once, self._at_once)

    def _take(self, replies: list[JSON]) -> JSON:
        last = len(replies) == 1 and self.script.get("repeat_last")
        return replies[0] if last else replies.pop(0)


class _Handler(socketserver.StreamRequestHandler):
    server_state: FakeServer

    def handle(self) -> None:
        first = self.rfile.readline().decode().split()
        if not first:
            return
        headers: dict[str, str] = {}
        while line := self.rfile.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        raw = self.rfile.read(int(headers.get("content-length", 0)))
        body = json.loads(raw) if raw else {}
        self.server_state.note(first[1], headers, body)
        try:
            self._route(first[1], body)
        except (BrokenPipeError, ConnectionResetError):
            self.server_state.abandoned.set()

    def _route(self, path: str, body: JSON) -> None:
        script = self.server_state.script
        match path:
            case "/api/tags":
                names = script.get("models", ["fake-model"])
                self._json(200, {"models": [{"name": name, "model": name} for name in names]})
            case "/api/show":
                able = script.get("capabilities", ["completion", "tools"])
                able = able.get(body["model"], []) if isinstance(able, dict) else able
                info = {"fake.context_length": script.get("context_length", 8192)}
                shown = {"capabilities": able, "model_info": info}
                self._json(200, {**shown, "parameters": script.get("parameters", "")})
            case "/api/chat":
                self._answer(body, OllamaWire(body))
            case "/v1/chat/completions":
                self._answer(body, OpenAIWire(body))
            case _:
                self._json(404, {"error": f"no route {path}"})

    def _answer(self, body: JSON, wire: OllamaWire | OpenAIWire) -> None:
        reply = self.server_state.reply(body)
        self.server_state.count(1)
        try:
            time.sleep(reply.get("delay", 0))
            if reply.get("hang"):
                self.server_state.closing.wait(60)
            elif reply.get("reject_tools") and body.get("tools"):
                self._json(400, {"error": wire.error(f"{body['model']} does not support tools")})
            elif "status" in reply:
                answer = reply.get("body", {"error": wire.error("scripted failure")})
                self._json(reply["status"], answer, reply.get("headers"))
            elif body.get("stream", wire.streams_by_default):
                self._stream(wire.kind, list(wire.stream(reply)), reply)
            else:
                self._json(200, wire.whole(reply))
        finally:
            self.server_state.count(-1)

    def _json(self, status: int, payload: Any, headers: JSON | None = None) -> None:
        data = (payload if isinstance(payload, str) else json.dumps(payload)).encode()
        kind = "text/html" if data.startswith(b"<") else "application/json"
        self._head(status, {"content-type": kind, "content-length": len(data), **(headers or {})})
        self.wfile.write(data)

    def _stream(self, kind: str, chunks: list[str], reply: JSON) -> None:
        chunked = reply.get("framing", "chunked") == "chunked"
        self._head(
            200, {"content-type": kind, **({"transfer-encoding": "chunked"} if chunked else {})}
        )
        cut = reply.get("cut", len(chunks))
        for chunk in chunks[:cut]:
            data = chunk.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            self.wfile.flush()
        if chunked and cut >= len(chunks):
            self.wfile.write(b"0\r\n\r\n")

    def _head(self, status: int, headers: JSON) -> None:
        lines = [f"HTTP/1.1 {status} {TEXTS.get(status, 'Scripted')}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode())


class OllamaWire:
    """`/api/chat`: one JSON object, or one a line."""

    kind = "application/x-ndjson"
    streams_by_default = True

    def __init__(self, body: JSON) -> None:
        self._head = {"model": body.get("model"), "created_at": "2026-01-01T00:00:00Z"}

    def error(self, text: str) -> str:
        return text

    def whole(self, reply: JSON) -> JSON:
        message = {"content": reply.get("text", ""), "thinking": reply.get("thinking", "")}
        return {**self._line(message | self._calls(_calls(reply))), **_ollama_end(reply)}

    def stream(self, reply: JSON) -> Iterator[str]:
        for piece in _pieces(reply.get("thinking", "")):
            yield self._text({"content": "", "thinking": piece})
        for piece in _pieces(reply.get("text", "")):
            yield self._text({"content": piece})
        calls, shape = _calls(reply), reply.get("shape", "one")
        groups = [[call] for call in calls] if shape == "each" else [calls] if calls else []
        for group in groups if shape != "last" else []:
            yield self._text({"content": "", **self._calls(group)})
        if "error" in reply:
            yield json.dumps({"error": reply["error"]}) + "\n"
            return
        last = self._calls(calls) if shape == "last" else {}
        yield json.dumps({**self._line({"content": "", **last}), **_ollama_end(reply)}) + "\n"

    def _text(self, message: JSON) -> str:
        return json.dumps({**self._line(message), "done": False}) + "\n"

    def _line(self, message: JSON) -> JSON:
        return {**self._head, "message": {"role": "assistant", **message}}

    def _calls(self, calls: list[JSON]) -> JSON:
        functions = [{"function": {k: call[k] for k in ("name", "arguments")}} for call in calls]
        return {"tool_calls": functions} if functions else {}


class OpenAIWire:
    """`/v1/chat/completions`: one JSON object, or server-sent events."""

    kind = "text/event-stream"
    streams_by_default = False

    def __init__(self, body: JSON) -> None:
        self._head = {"id": "chatcmpl-1", "created": 1, "model": body.get("model")}

    def error(self, text: str) -> JSON:
        return {"message": text, "type": "invalid_request_error"}

    def whole(self, reply: JSON) -> JSON:
        calls = [self._call(reply, number, call) for number, call in enumerate(_calls(reply))]
        message = {"role": "assistant", "content": reply.get("text"), "tool_calls": calls or None}
        if "thinking" in reply:
            message["reasoning_content"] = reply["thinking"]
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        usage = _openai_usage(reply)
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage}

    def stream(self, reply: JSON) -> Iterator[str]:
        yield self._event({"role": "assistant", "content": ""})
        for piece in _pieces(reply.get("thinking", "")):
            yield self._event({"reasoning_content": piece})
        for piece in _pieces(reply.get("text", "")):
            yield self._event({"content": piece})
        for number, call in enumerate(_calls(reply)):
            whole = self._call(reply, number, call)
            arguments = whole["function"]["arguments"]
            index = {"right": {"index": number}, "zero": {"index": 0}, "none": {}}
            place = index[reply.get("index", "right")]
            whole["function"]["arguments"] = ""
            yield self._event({"tool_calls": [{**place, **whole}]})
            for piece in _pieces(arguments):
                yield self._event({"tool_calls": [{**place, "function": {"arguments": piece}}]})
        if "error" in reply:
            yield f"data: {json.dumps({'error': self.error(reply['error'])})}\n\n"
            return
        yield self._event({}, _finish(reply))
        end = {**self._head, "object": "chat.completion.chunk", "choices": []}
        yield f"data: {json.dumps({**end, 'usage': _openai_usage(reply)})}\n\n"
        yield "data: [DONE]\n\n"

    def _event(self, delta: JSON, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        return f"data: {json.dumps(chunk)}\n\n"

    def _call(self, reply: JSON, number: int, call: JSON) -> JSON:
        arguments = call["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": call["name"], "arguments": text}
        named = {"id": call.get("id", f"call_{number}")} if reply.get("ids", True) else {}
        return {**named, "type": "function", "function": function}


def _calls(reply: JSON) -> list[JSON]:
    return [{"arguments": {}, **call} for call in reply.get("calls", [])]


def _finish(reply: JSON) -> str:
    return reply.get("finish") or ("tool_calls" if reply.get("calls") else "stop")


def _openai_usage(reply: JSON) -> JSON:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, **reply.get("usage", {})}
    return {**usage, "total_tokens": usage["prompt_tokens"] + usage["completion_tokens"]}


def _ollama_end(reply: JSON) -> JSON:
    usage = _openai_usage(reply)
    counts = {"prompt_eval_count": usage["prompt_tokens"], "eval_count": usage["completion_tokens"]}
    return {"done": True, "done_reason": reply.get("finish", "stop"), **counts}


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]

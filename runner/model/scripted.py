"""A model that says what a script tells it: for tests, the demo and replay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError, ModelRefused, ToolsUnsupported
from ..types import JSON, Message, Usage
from .base import CallPart, Chunk, ModelInfo, ModelRequest
from .errors import classify, cut_off, read_retry_after

KEYS = frozenset(
    {"text", "calls", "thinking", "finish", "usage", "status", "body", "headers"}
    | {"delay", "hang", "cut", "no_index", "reject_tools"}
)
PIECE = 12  # characters of a streamed piece when the script asks for a cut


class ScriptedModel:
    """Answers from a script and keeps every request it was sent in `requests`.

    A script is `{"replies": [REPLY…], "rules": [{"contains": TEXT, "replies": [REPLY…]}…],
    "repeat_last": bool, "capabilities": […], "context_length": N}`. A request takes its reply
    from the first rule whose text occurs in any of its messages, else from `replies`, in order.
    """

    def __init__(self, script: JSON, name: str = "scripted/script") -> None:
        self.name = name
        self.warnings: list[str] = []
        self.requests: list[ModelRequest] = []
        problems = list(_problems(script))
        if problems:
            raise ConfigError([f"{name}: {problem}" for problem in problems])
        self._replies = list(script.get("replies", []))
        self._rules = [
            (rule["contains"], list(rule["replies"])) for rule in script.get("rules", [])
        ]
        self._repeat_last = bool(script.get("repeat_last"))
        self._capabilities = script.get("capabilities", ["completion", "tools"])
        self._context_length = script.get("context_length", 8192)

    async def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The next reply of the script, in as few chunks as it has parts."""
        self.requests.append(request)
        reply = self._next(request)
        if "delay" in reply:
            await asyncio.sleep(reply["delay"])
        if reply.get("hang"):
            await asyncio.Event().wait()
        if reply.get("reject_tools") and request.tools:
            raise ToolsUnsupported(f"{self.name} does not support tools")
        if "status" in reply:
            raise self._failure(reply)
        if "cut" in reply and request.stream:
            for text in _pieces(reply)[: reply["cut"]]:
                yield Chunk(text=text)
            raise cut_off(self.name)
        if "thinking" in reply:
            yield Chunk(reasoning=reply["thinking"])
        if reply.get("text"):
            yield Chunk(text=reply["text"])
        for index, call in enumerate(reply.get("calls", ())):
            arguments = call.get("arguments", {})
            part = CallPart(index=index, id=call.get("id"), name=call["name"], arguments=arguments)
            yield Chunk(call=part)
        yield Chunk(finish=_finish(reply), usage=_usage(reply))

    async def describe(self) -> ModelInfo:
        """What the script says about the model it plays."""
        return ModelInfo(
            name=self.name,
            context_window=self._context_length or None,
            tools="tools" in self._capabilities,
            thinking="thinking" in self._capabilities,
        )

    def cost(self, usage: Usage) -> float:
        """Nothing: no model is asked."""
        return 0.0

    async def close(self) -> None:
        """Nothing to free."""

    def _next(self, request: ModelRequest) -> JSON:
        if self._rules:
            text = "\n".join(map(_text_of, request.messages))
            for contains, replies in self._rules:
                if replies and contains in text:
                    return self._take(replies)
        if not self._replies:
            raise ModelRefused(
                f"{self.name}: the script is exhausted; it has no reply for request {len(self.requests)}"
            )
        return self._take(self._replies)

    def _take(self, replies: list[JSON]) -> JSON:
        last = len(replies) == 1 and self._repeat_last
        return replies[0] if last else replies.pop(0)

    def _failure(self, reply: JSON) -> Exception:
        body = reply.get("body", {"error": {"message": "scripted failure"}})
        headers = {name.lower(): str(value) for name, value in reply.get("headers", {}).items()}
        return classify(
            reply["status"],
            body if isinstance(body, str) else json.dumps(body),
            model=self.name,
            retry_after=read_retry_after(headers),
        )


def read_script(path: Path) -> JSON:
    """The script in a JSON file; `ConfigError` names the file and what is wrong with it."""
    try:
        script = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the script: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: the script is not JSON: {error}") from error
    if not isinstance(script, dict) or not script.keys() & {"replies", "rules"}:
        raise ConfigError(
            f'{path}: a script is an object with "replies" or "rules", such as '
            '{"replies": [{"text": "done"}]}; see docs/config.md'
        )
    return script


def _problems(script: JSON) -> Iterator[str]:
    yield from _list_problems(script, "replies")
    rules = script.get("rules", [])
    for number, rule in enumerate(rules if isinstance(rules, list) else [None]):
        if not isinstance(rule, dict) or not isinstance(rule.get("contains"), str):
            yield f'rules[{number}] is not {{"contains": TEXT, "replies": […]}}'
        else:
            yield from _list_problems(rule, "replies", f"rules[{number}].")


def _list_problems(owner: JSON, key: str, prefix: str = "") -> Iterator[str]:
    replies = owner.get(key, [])
    if not isinstance(replies, list):
        yield f"{prefix}{key} is not a list"
        return
    for number, reply in enumerate(replies):
        if not isinstance(reply, dict):
            yield f"{prefix}{key}[{number}] is not an object"
        elif unknown := sorted(set(reply) - KEYS):
            yield f"{prefix}{key}[{number}]: unknown key {unknown[0]!r}; known: {', '.join(sorted(KEYS))}"
        elif not _are_calls(reply.get("calls", [])):
            yield (
                f"{prefix}{key}[{number}].calls: every call needs a name, and its arguments as an "
                'object: [{"name": "list_files", "arguments": {"path": "."}}]'
            )


def _are_calls(calls: Any) -> bool:
    """A list of calls; arguments that are a text stand for JSON a model wrote badly."""
    return isinstance(calls, list) and all(
        isinstance(call, dict)
        and isinstance(call.get("name"), str)
        and isinstance(call.get("arguments", {}), (dict, str))
        for call in calls
    )


def _pieces(reply: JSON) -> list[str]:
    text = reply.get("text") or ""
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def _finish(reply: JSON) -> str:
    return str(reply.get("finish") or ("tool_calls" if reply.get("calls") else "stop"))


def _usage(reply: JSON) -> Usage:
    usage: dict[str, Any] = reply.get("usage", {})
    return Usage(usage.get("prompt_tokens", 100), usage.get("completion_tokens", 20))


def _text_of(message: Message) -> str:
    calls = "".join(
        f"\n{call.name} {json.dumps(call.arguments, ensure_ascii=False)}"
        for call in message.tool_calls
    )
    return f"{message.content}{calls}"

"""One checker before every request: a history every provider accepts.

Rules, with their source: each tool call is answered by exactly one tool message, directly after the
assistant message and in its order (OpenAI chat completions; Anthropic messages: `tool_result` blocks
follow `tool_use` at once). Arguments are JSON objects (Ollama's ChatRequest refuses strings). One
system message, first (chat templates of Qwen and others raise otherwise). The first message after it
is the user's, and user and assistant alternate (Anthropic; templates of Mistral and Gemma). Names
match `^[a-zA-Z0-9_-]{1,64}$` (OpenAI). No message is empty (Anthropic).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..types import Message, ToolCall

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
UNANSWERED = "no result: this call was interrupted and may or may not have run"


def valid(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with whatever a provider would refuse mended."""
    mended: list[Message] = []
    waiting: list[ToolCall] = []
    for message in messages:
        if message.role == "tool":
            if waiting and message.tool_call_id in {c.id for c in waiting}:
                _answer(mended, waiting, message)
            continue
        mended.extend(_placeholders(waiting))
        waiting = []
        if message.role == "system" and mended:
            message = replace(message, role="user", mark="note")  # noqa: PLW2901 - the mended one
        if message.role == "assistant":
            message = _named(message)  # noqa: PLW2901
            if not message.content and not message.tool_calls:
                continue
            waiting = list(message.tool_calls)
        _append(mended, message)
    mended.extend(_placeholders(waiting))
    return mended


def problem(messages: Sequence[Message]) -> str:
    """What a provider would refuse, or nothing. For tests and for the fast path."""
    waiting: list[str] = []
    before = ""
    for index, message in enumerate(messages):
        role = message.role
        if role == "tool":
            if not waiting or waiting.pop(0) != message.tool_call_id:
                return f"message {index} answers no call that waits"
            before = role
            continue
        if waiting:
            return f"{len(waiting)} call(s) unanswered before message {index}"
        wrong = _wrong(index, message, before)
        if wrong:
            return wrong
        waiting = [c.id for c in message.tool_calls]
        before = role
    return f"{len(waiting)} call(s) never answered" if waiting else ""


def _wrong(index: int, message: Message, before: str) -> str:
    role = message.role
    if (role == "system") != (index == 0):
        return f"message {index}: the system message is the first one and no other"
    if index == 1 and role != "user":
        return "message 1 is not the user's"
    if role == before:
        return f"message {index}: two {role} messages in a row"
    if role == "assistant" and not message.content and not message.tool_calls:
        return f"message {index} is empty"
    for call in message.tool_calls:
        if not _NAME.fullmatch(call.name):
            return f"message {index}: tool name {call.name!r}"
    if len({c.id for c in message.tool_calls}) != len(message.tool_calls):
        return f"message {index}: a call id twice"
    return ""


class Checker:
    """Checks only what is new since the last request; the whole only after it was cut."""

    def __init__(self) -> None:
        self._source: Sequence[Message] | None = None
        self._checked: list[Message] = []
        self._mended: list[Message] = []

    def check(self, messages: Sequence[Message]) -> list[Message]:
        """Like `valid`, at the cost of the new messages. The answer is not to be changed.

        A list that only grew is the same object; one that was cut is another.
        """
        known = len(self._checked)
        grown = messages is self._source and len(messages) >= known > 0
        if grown and messages[known - 1] is self._checked[-1]:
            tail = messages[known:]
            if tail and tail[0].role == "assistant" and not problem([_HEAD, _ASKED, *tail]):
                self._checked.extend(tail)
                self._mended.extend(tail)
                return self._mended
            if not tail:
                return self._mended
        self._source = messages
        self._checked = list(messages)
        self._mended = valid(messages)
        return self._mended


_HEAD = Message(role="system", content="-")
_ASKED = Message(role="user", content="-")


def _answer(mended: list[Message], waiting: list[ToolCall], message: Message) -> None:
    while waiting:
        call = waiting.pop(0)
        if call.id == message.tool_call_id:
            mended.append(message)
            return
        mended.extend(_placeholders([call]))


def _placeholders(calls: Iterable[ToolCall]) -> list[Message]:
    return [Message(role="tool", content=UNANSWERED, tool_call_id=c.id, tool=c.name) for c in calls]


def _append(mended: list[Message], message: Message) -> None:
    last = mended[-1] if mended else None
    if message.role in {"user", "assistant"} and not message.content and not message.tool_calls:
        return
    if last is not None and last.role == message.role and message.role != "tool":
        if message.role == "assistant" and last.tool_calls:
            return  # cannot be: its results stand between
        joined = "\n\n".join(filter(None, (last.content, message.content)))
        mended[-1] = replace(
            message if message.mark == "goal" else last,
            content=joined,
            tool_calls=(*last.tool_calls, *message.tool_calls),
        )
        return
    if len(mended) == 1 and mended[0].role == "system" and message.role != "user":
        mended.append(Message(role="user", content="(the conversation so far)", mark="note"))
    mended.append(message)


def _named(message: Message) -> Message:
    if not message.tool_calls:
        return message
    seen: set[str] = set()
    calls = []
    for call in message.tool_calls:
        if call.id in seen:
            continue
        seen.add(call.id)
        name = call.name if _NAME.fullmatch(call.name) else _legal(call.name)
        calls.append(call if name == call.name else replace(call, name=name))
    return (
        message if list(message.tool_calls) == calls else replace(message, tool_calls=tuple(calls))
    )


def _legal(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"

"""One checker before every request: a history every provider accepts.

Rules, with their source: each tool call is answered by exactly one tool message, directly after the
assistant message and in its order (OpenAI chat completions; Anthropic messages: `tool_result` blocks
follow `tool_use` at once). Arguments are JSON objects (Ollama's ChatRequest refuses strings). One
system message, first (chat templates of Qwen and others raise otherwise). The first message after it
is the user's, and user and assistant alternate (Anthropic; templates of Mistral and Gemma). Names
match `^[a-zA-Z0-9_-]{1,64}$` (OpenAI). Ids are not empty and occur once in a message. No message is
empty (Anthropic).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..types import Message, ToolCall

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
UNANSWERED = "no result: this call was interrupted and may or may not have run"
SILENT = "(no output)"
OPENING = "(the conversation so far)"


def valid(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with whatever a provider would refuse mended. Real results stay."""
    mended: list[Message] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            continue  # taken along with the call it answers; without one it cannot be sent
        if message.role == "system" and index > 0:
            message = replace(message, role="user", mark="note")  # noqa: PLW2901 - the mended one
        if message.tool_calls:
            _append_round(mended, message, _results(messages, index))
        else:
            _append(mended, message)
    return mended


def problem(messages: Sequence[Message], before: str = "") -> str:
    """What a provider would refuse, or nothing. `before`: the role of the message before these."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            if not waiting or waiting.pop(0) != message.tool_call_id:
                return f"message {index} answers no call that waits"
            wrong = "" if message.content else f"message {index} is empty"
        elif waiting:
            wrong = f"{len(waiting)} call(s) unanswered before message {index}"
        else:
            wrong = _wrong(index, message, before)
            waiting = [c.id for c in message.tool_calls]
        if wrong:
            return wrong
        before = message.role
    return f"{len(waiting)} call(s) never answered" if waiting else ""


def _wrong(index: int, message: Message, before: str) -> str:
    role = message.role
    if role == "system":
        return "" if index == 0 else f"message {index}: a system message that is not the first"
    if before in {"", "system"} and role != "user":
        return f"message {index} is the first of the conversation and not the user's"
    if role == before:
        return f"message {index}: two {role} messages in a row"
    if not message.content and not message.tool_calls:
        return f"message {index} is empty"
    for call in message.tool_calls:
        if not _NAME.fullmatch(call.name):
            return f"message {index}: tool name {call.name!r}"
    ids = {c.id for c in message.tool_calls}
    if len(ids) != len(message.tool_calls) or "" in ids:
        return f"message {index}: a call id is empty or there twice"
    return ""


class Checker:
    """Checks only what is new since the last request; the whole only after it was cut.

    Takes a list that grows at its end. A context that was compacted is another list.
    """

    def __init__(self) -> None:
        self._source: Sequence[Message] | None = None
        self._known = 0
        self._last: Message | None = None
        self._mended: list[Message] = []

    def check(self, messages: Sequence[Message]) -> list[Message]:
        """Like `valid`, at the cost of the new messages. The answer is not to be changed."""
        known = self._known
        grown = messages is self._source and len(messages) >= known > 0
        if not grown or messages[known - 1] is not self._last or not self._extend(messages[known:]):
            self._mended = valid(messages)
        self._source, self._known = messages, len(messages)
        self._last = messages[-1] if messages else None
        return self._mended

    def _extend(self, new: Sequence[Message]) -> bool:
        """Takes the new messages over as they are, when nothing about them is to be mended."""
        if not new:
            return True
        before = self._mended[-1].role if self._mended else ""
        if before not in {"user", "tool"} or new[0].role != "assistant" or problem(new, "user"):
            return False
        self._mended.extend(new)
        return True


def _results(messages: Sequence[Message], index: int) -> list[Message]:
    """The tool messages after the calls at `index`, up to the next reply of the model."""
    found = []
    for message in messages[index + 1 :]:
        if message.role == "assistant":
            break
        if message.role == "tool":
            found.append(message)
    return found


def _append_round(mended: list[Message], message: Message, results: list[Message]) -> None:
    """The calls, and one result for each in their order. The n-th of equal ids gets the n-th result."""
    calls: list[ToolCall] = []
    answers: list[Message] = []
    for call in message.tool_calls:
        answer = next((r for r in results if r.tool_call_id == call.id), None)
        if answer is not None:
            results.remove(answer)
        call = _mended_call(call, {c.id for c in calls})  # noqa: PLW2901 - the mended one
        calls.append(call)
        answers.append(_mended_answer(call, answer))
    if list(message.tool_calls) != calls:
        message = replace(message, tool_calls=tuple(calls))
    _append(mended, message)
    mended.extend(answers)


def _mended_call(call: ToolCall, taken: set[str]) -> ToolCall:
    name = call.name if _NAME.fullmatch(call.name) else _legal(call.name)
    call_id, number = call.id or "call", 2
    while call_id in taken:
        call_id, number = f"{call.id or 'call'}_{number}", number + 1
    if (name, call_id) == (call.name, call.id):
        return call
    return replace(call, name=name, id=call_id)


def _mended_answer(call: ToolCall, answer: Message | None) -> Message:
    if answer is None:
        return Message(role="tool", content=UNANSWERED, tool_call_id=call.id, tool=call.name)
    if answer.tool_call_id == call.id and answer.content:
        return answer
    return replace(answer, tool_call_id=call.id, content=answer.content or SILENT)


def _append(mended: list[Message], message: Message) -> None:
    """Adds a message: never an empty one, never two of a kind in a row, the user's first."""
    if message.role != "system" and not message.content and not message.tool_calls:
        return
    last = mended[-1] if mended else None
    if last is not None and last.role == message.role:
        mended[-1] = _joined(last, message)
        return
    if message.role == "assistant" and (last is None or last.role == "system"):
        mended.append(Message(role="user", content=OPENING, mark="note"))
    mended.append(message)


def _joined(last: Message, message: Message) -> Message:
    content = "\n\n".join(filter(None, (last.content, message.content)))
    kept = message if message.mark == "goal" else last
    return replace(kept, content=content, tool_calls=(*last.tool_calls, *message.tool_calls))


def _legal(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"

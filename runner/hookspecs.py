"""Every extension point, in the order a turn reaches them.

`first`: the first answer wins. `fold`: each sees what the last one returned. `collect`: all
answers. `notify`: answers are ignored. Implementations may be plain functions or `async def`;
each has `[plugins] hook_timeout` seconds. `session` is a frozen description, never the live object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from .events import Event
from .types import Decision, Message, SessionInfo, Tool, ToolCall, ToolResult, TurnResult

PROJECT = "runner"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_skills() -> Iterable[Any] | None:
    """collect: more skills, as `Skill` objects or functions. Raising skips that plugin."""


@hookspec
def make_model(settings: Any) -> Any | None:
    """first: a `Model` for these settings, or None. Raising ends the start with that error."""


@hookspec
def secret_patterns() -> Iterable[str] | None:
    """collect: regular expressions whose matches are redacted. Raising refuses the start."""


@hookspec
def session_started(session: SessionInfo) -> None:
    """notify: a session began or was resumed. Raising is logged."""


@hookspec
def transform_context(messages: list[Message], session: SessionInfo) -> list[Message] | None:
    """fold: the messages of one request, before they are checked and sent. Raising skips it."""


@hookspec
def pre_tool_use(call: ToolCall, tool: Tool, session: SessionInfo) -> Decision | None:
    """first: allow, deny or answer a call. Raising, a time-out or another type denies."""


@hookspec
def permission_request(call: ToolCall, tool: Tool, session: SessionInfo) -> bool | None:
    """first: answers a question the policy asks, before a person is asked. Raising denies."""


@hookspec
def post_tool_use(call: ToolCall, result: ToolResult, session: SessionInfo) -> ToolResult | None:
    """fold: a result on its way to the model. Redacted again afterwards. Raising skips it."""


@hookspec
def event_emitted(event: Event) -> None:
    """notify: each event, in order. Raising is logged."""


@hookspec
def skills_changed(
    added: list[str], updated: list[str], removed: list[str], failed: dict[str, str]
) -> None:
    """notify: skills changed on disk and are in use. Raising is logged."""


@hookspec
def context_compacted(
    before_tokens: int, after_tokens: int, step: str, session: SessionInfo
) -> None:
    """notify: the context was truncated, summarised or slid. Raising is logged."""


@hookspec
def turn_finished(result: TurnResult, session: SessionInfo) -> None:
    """notify: a turn ended, however it ended. Raising is logged."""


@hookspec
def session_finished(session: SessionInfo) -> None:
    """notify: a session was closed. Raising is logged."""


NAMES: tuple[str, ...] = (
    "register_skills",
    "make_model",
    "secret_patterns",
    "session_started",
    "transform_context",
    "pre_tool_use",
    "permission_request",
    "post_tool_use",
    "event_emitted",
    "skills_changed",
    "context_compacted",
    "turn_finished",
    "session_finished",
)

"""An embedded, session-slotted runner for drop-in skills. The public names are `__all__`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    ConfigError,
    ContextOverflow,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PluginError,
    RecordError,
    RunnerError,
    SessionError,
    SkillError,
)
from .events import Event
from .skill import SkillContext, ToolError
from .types import Decision, SessionInfo, Tool, ToolCall, ToolResult, TurnResult

if TYPE_CHECKING:
    from .hookspecs import hookimpl
    from .memory import Memory
    from .model.scripted import ScriptedModel
    from .runner import Runner
    from .session import Session

__all__ = [
    "ConfigError",
    "ContextOverflow",
    "Decision",
    "Event",
    "Memory",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "PluginError",
    "RecordError",
    "Runner",
    "RunnerError",
    "ScriptedModel",
    "Session",
    "SessionError",
    "SessionInfo",
    "SkillContext",
    "SkillError",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "TurnResult",
    "hookimpl",
]

_LATE = {  # what costs time to import is imported when it is asked for: skills need none of it
    "Memory": "memory",
    "Runner": "runner",
    "ScriptedModel": "model.scripted",
    "Session": "session",
    "hookimpl": "hookspecs",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'runner' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_LATE[name]}", __name__), name)
    globals()[name] = value
    return value

"""Exceptions for the host. What a skill or a model does is a `ToolResult`, never one of these.

RunnerError
├── ConfigError          wrong config or command-line value; `problems` lists all of them
├── SkillError           a skill cannot be loaded
├── PluginError          a plugin is wrong: misspelt hook, failing import
├── ModelError           the model gave no answer
│   ├── ModelUnavailable     it may answer later: connection, 5xx, rate limit, stalled stream
│   ├── ModelRefused         it never will: key, request, model name
│   │   └── ToolsUnsupported     it cannot be offered tools
│   ├── ReplyUnreadable      the server choked on the model's own reply
│   └── ContextOverflow      the request was larger than its window
├── SessionError         no such session, or somebody else has it
└── RecordError          the state folder cannot be written or read
"""

from __future__ import annotations

from collections.abc import Sequence


class RunnerError(Exception):
    """The root of all exceptions raised to the host. Its text is one line for a user."""


class ConfigError(RunnerError):
    """The config or a command-line value is wrong."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class SkillError(RunnerError):
    """A skill cannot be loaded. The text names file, key and fix."""


class PluginError(RunnerError):
    """A plugin is wrong: a misspelt hook, a wrong argument, a failing import."""


class ModelError(RunnerError):
    """The model gave no answer. The text is for the user and says what to do."""


class ModelUnavailable(ModelError):
    """It may answer later. `retry_after` in seconds when the server named a time."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """It will not answer this, however often it is asked."""


class ToolsUnsupported(ModelRefused):
    """The model cannot be offered tools; they go into the prompt instead."""


class ReplyUnreadable(ModelError):
    """The server could not parse what its own model said; a fault of the reply, not of the server."""


class ContextOverflow(ModelError):
    """The request was larger than the model's window."""


class SessionError(RunnerError):
    """There is no such session, its name is wrong, or another process has it."""


class RecordError(RunnerError):
    """The state folder cannot be written or read."""

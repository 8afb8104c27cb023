"""Who answers when the policy says `ask`: a person at the terminal, `--yes`, or nobody."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..types import SessionInfo, Tool, ToolCall
from .console import Console
from .diffs import diff
from .text import dump, one_line

_CHARS = 600
_ANSWERS = {"y": "allow", "yes": "allow", "a": "allow_session", "n": "deny", "no": "deny"}


class SayYes:
    """Answers every question with yes: `--yes`. Nobody has looked, which `automatic` says."""

    automatic = True

    async def __call__(self, call: ToolCall, tool: Tool, session: SessionInfo) -> str:
        """Yes."""
        return "allow"


class AskPerson:
    """Asks at the terminal. No is the default; the end of the input is no."""

    automatic = False

    def __init__(self, console: Console) -> None:
        self._console = console

    async def __call__(self, call: ToolCall, tool: Tool, session: SessionInfo) -> str:
        """The answer: allow, allow_session or deny."""
        self._console.say(question(call, tool, Path(session.workspace)))
        _forget_typed()
        while True:
            line = await _line()
            if line is None:
                self._console.say("\n")
                return "deny"
            answer = _ANSWERS.get(line.strip().lower() or "n")
            if answer is not None:
                return answer
            self._console.say("y, a or n? [n] ")


def approver(console: Console, *, yes: bool) -> SayYes | AskPerson | None:
    """Who is asked in this run."""
    if yes:
        return SayYes()
    return AskPerson(console) if console.interactive else None


def question(call: ToolCall, tool: Tool, workspace: Path) -> str:
    """What is shown: nothing in it can move the cursor, hide or reorder text."""
    needs = ", ".join(tool.flags.permissions) or "nothing declared"
    traits = " destructive," if tool.flags.destructive else ""
    lines = [f"{one_line(tool.name)} wants to run ({one_line(traits + ' needs ' + needs).strip()})"]
    changes, told = diff(call.arguments, workspace)
    for name, value in call.arguments.items():
        if name not in told:
            text = value if isinstance(value, str) else dump(value)
            lines.append(f"  {one_line(name, 80)} = {_cut(text)}")
    lines += [f"  {line}" for line in changes]
    return "\n".join([*lines, "Allow? y = yes, a = for this session, n = no [n] "])


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _CHARS else f"{line[:_CHARS]}… ({len(line) - _CHARS} more)"


async def _line() -> str | None:
    """A line of the terminal; None at its end. Cancelling leaves no reader behind."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    number = sys.stdin.fileno()
    loop.add_reader(number, _settle(ready))
    try:
        await ready
        data = os.read(number, 4096)
    except OSError:
        return None
    finally:
        loop.remove_reader(number)
    return data.decode("utf-8", "replace") if data else None


def _settle(ready: asyncio.Future[None]) -> Callable[[], None]:
    return lambda: None if ready.done() else ready.set_result(None)


def _forget_typed() -> None:
    """What was typed before the question was shown is no answer to it."""
    with suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

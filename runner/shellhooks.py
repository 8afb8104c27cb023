"""Hooks for people who do not write Python: shell commands from the config around tool calls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence

from .hookspecs import hookimpl
from .types import Decision, SessionInfo, Tool, ToolCall, ToolResult

DENIES = 2  # the exit code that denies, with stderr as the reason


class ShellHooks:
    """The call as JSON on stdin. Before a call, exit 2 denies and any other failure denies, too."""

    def __init__(self, before: Sequence[str], after: Sequence[str], timeout: float) -> None:
        self._before = tuple(before)
        self._after = tuple(after)
        self._timeout = timeout

    @hookimpl
    async def pre_tool_use(
        self, call: ToolCall, tool: Tool, session: SessionInfo
    ) -> Decision | None:
        """Runs the commands in order; the first that denies wins."""
        for command in self._before:
            code, _, err = await self._run(command, _about(call, tool, session))
            if code == DENIES:
                return Decision("deny", err.strip() or f"{command!r} denied it")
            if code != 0:
                return Decision(
                    "deny",
                    f"the hook {command!r} failed with exit code {code}: {err.strip()[:300]}",
                )
        return None

    @hookimpl
    async def post_tool_use(self, call: ToolCall, result: ToolResult, session: SessionInfo) -> None:
        """Runs the commands with the result added; what they say does not change it."""
        about = {
            "session": session.id,
            "call": {"id": call.id, "name": call.name, "arguments": call.arguments},
            "result": {"kind": result.kind.value, "ok": result.ok, "content": result.content},
        }
        for command in self._after:
            await self._run(command, about)

    async def _run(self, command: str, about: object) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        data = json.dumps(about, ensure_ascii=False, default=str).encode("utf-8", "replace")
        try:
            async with asyncio.timeout(self._timeout):
                out, err = await process.communicate(data)
        except TimeoutError:
            return 1, "", f"it took longer than {self._timeout:g} s"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return (
            process.returncode or 0,
            out.decode("utf-8", "replace"),
            err.decode("utf-8", "replace"),
        )


def _about(call: ToolCall, tool: Tool, session: SessionInfo) -> dict[str, object]:
    return {
        "session": session.id,
        "call": {"id": call.id, "name": call.name, "arguments": call.arguments},
        "tool": {"skill": tool.skill, "permissions": list(tool.flags.permissions)},
    }

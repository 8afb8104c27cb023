"""Hooks for people who do not write Python: shell commands from the config around tool calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence

from .hookspecs import hookimpl
from .types import Decision, SessionInfo, Tool, ToolCall, ToolResult

DENIES = 2  # the exit code that denies, with stderr as the reason
KEPT_BYTES = 8000  # of what a command says
REAP_SECONDS = 1.0  # for a killed command to be gone


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
            code, err = await self._run(command, _about(call, tool, session))
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

    async def _run(self, command: str, about: object) -> tuple[int, str]:
        """Exit code and stderr. At the deadline, and when the turn is cancelled, its whole group is killed."""
        process = await _begun(command)
        data = json.dumps(about, ensure_ascii=False, default=str).encode("utf-8", "replace")
        ended = False
        try:
            async with asyncio.timeout(self._timeout):
                err = await _spoken(process, data)
                code = await process.wait()
                ended = True
                return code, err.decode("utf-8", "replace")
        except TimeoutError:
            return 1, f"it took longer than {self._timeout:g} s"
        finally:
            if not ended:
                await _kill(process)


async def _begun(command: str) -> asyncio.subprocess.Process:
    """The running command. Half begun it cannot be cancelled: asyncio would wait for it for ever."""
    beginning = asyncio.ensure_future(
        asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        await _kill(await beginning)
        raise


async def _spoken(process: asyncio.subprocess.Process, data: bytes) -> bytes:
    """Gives the command its input and takes the first of what it says on stderr; drops the rest."""
    giving = asyncio.ensure_future(_given(process, data))
    kept = bytearray()
    try:
        while process.stderr is not None and (part := await process.stderr.read(65_536)):
            kept += part[: KEPT_BYTES - len(kept)]
    finally:
        giving.cancel()  # what it has not read by now it does not want
    return bytes(kept)


async def _given(process: asyncio.subprocess.Process, data: bytes) -> None:
    stdin = process.stdin
    if stdin is None:
        return
    with contextlib.suppress(ConnectionError):  # it does not care for its input
        stdin.write(data)
        await stdin.drain()
    stdin.close()


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - nothing public closes the pipes
    await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=REAP_SECONDS)


def _about(call: ToolCall, tool: Tool, session: SessionInfo) -> dict[str, object]:
    return {
        "session": session.id,
        "call": {"id": call.id, "name": call.name, "arguments": call.arguments},
        "tool": {"skill": tool.skill, "permissions": list(tool.flags.permissions)},
    }

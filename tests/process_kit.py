"""Skills written into a folder and called in worker processes, for the tests of isolation."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from runner.calls.process import Processes
from runner.calls.processjob import ProcessContext, ProcessJob
from runner.catalog.loader import Generation
from runner.skill import ToolError
from runner.types import Flags, Outcome, Tool

FAST = 20.0  # seconds; nothing here takes as long


class Folder:
    """Files of one call below a folder, which remember what was asked of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        self.released = 0
        self.answering = threading.Event()
        self.answering.set()

    def path(self, name: str, *, write: bool) -> Path:
        self.asked.append(f"path {name} {write}")
        self.answering.wait(10)
        if ".." in name:
            raise ToolError(f"{name} is outside the workspace")
        return self.root / name

    def read(self, name: str) -> bytes:
        self.asked.append(f"read {name}")
        return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        self.asked.append(f"write {name}")
        (self.root / name).write_bytes(data)

    def stale(self, name: str) -> str:
        return "" if (self.root / name).exists() else "it was never read"

    def release(self) -> None:
        self.released += 1


def open_files() -> int:
    """How many files this process has open; 0 where that cannot be seen."""
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0


class Kit:
    """One skill folder, a workspace and worker processes."""

    def __init__(self, folder: Path, source: str, **options: Any) -> None:
        self.folder = folder / "skill"
        self.workspace = folder / "work"
        self.folder.mkdir()
        self.workspace.mkdir()
        self.files = Folder(self.workspace)
        self.number = 0
        self.output: list[str] = []
        self.progress: list[str] = []
        self.processes = Processes(environ=dict(os.environ), **options)
        self.write(source)

    def write(self, source: str) -> None:
        """A new version of the skill."""
        (self.folder / "skill.py").write_text(source)
        self.number += 1
        self.generation = Generation(
            "kit", self.number, str(self.folder), {"skill.py": source.encode()}
        )

    def tool(self, function: str, *permissions: str) -> Tool:
        """A function of the skill as a tool."""
        generation = self.generation
        return Tool(
            name=function,
            description="",
            parameters={},
            flags=Flags(permissions=permissions),
            skill="kit",
            generation=generation.number,
            entry=f"skill:{function}",
            folder=str(self.folder),
            load=lambda: generation.entry(f"skill:{function}"),
            code=generation,
        )

    def context(self, env: dict[str, str] | None = None) -> ProcessContext:
        """What a call is told of its session."""
        return ProcessContext(
            session_id="s1",
            workspace=self.workspace,
            cwd=self.workspace,
            files=self.files,
            release=self.files.release,
            idempotency_key="key-1",
            env=env or {},
            scopes={"net": ("api.example.com",)},
        )

    def submit(
        self,
        function: str,
        *permissions: str,
        timeout: float | None = FAST,
        strict: bool = False,
        env: dict[str, str] | None = None,
        **arguments: Any,
    ) -> ProcessJob:
        """Starts a call."""
        return self.processes.submit(
            self.tool(function, *permissions),
            arguments,
            self.context(env or {}),
            timeout=timeout,
            strict=strict,
            on_progress=self.progress.append,
            on_output=self.output.append,
        )

    async def call(self, function: str, *permissions: str, **more: Any) -> Outcome | None:
        """One call, waited for."""
        return await self.submit(function, *permissions, **more).future

    async def until(self, holds: Callable[[], Any]) -> None:
        """Waits, at most five seconds, for something no event tells of."""
        end = time.monotonic() + 5
        while not holds():
            assert time.monotonic() < end, "it never came to that"
            await asyncio.sleep(0.005)

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a test's coroutine and closes the processes, all in bounded time."""

        async def bounded() -> None:
            try:
                await asyncio.wait_for(test(), 60)
            finally:
                await self.processes.close()
            assert self.processes.count == 0

        asyncio.run(bounded())

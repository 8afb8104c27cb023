"""A host program that is killed where a test says: run as `python victim.py SPEC`, SPEC a JSON object.

`kill` names the point: `event TYPE` (just after that record was written), `transform N` (before the
N-th request), `model N` (after its last chunk, before anything was written), `pre` and `post` (inside
the hooks), `skill before` and `skill after` (inside the tool, around its effect), or nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import turn_kit as k

from runner import ScriptedModel, SkillContext, hookimpl

POINT = os.environ.get("VICTIM_POINT", "")


def reached(point: str) -> None:
    """Ends this process without a word when this is the point."""
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


def effects(folder: Path) -> list[Any]:
    """What was really done, one entry per time."""
    return k.lines(folder / "effects.jsonl")


def _do(ctx: SkillContext, tool: str, to: str) -> str:
    reached("skill before")
    with (ctx.workspace / "effects.jsonl").open("a") as file:
        file.write(json.dumps({"tool": tool, "to": to, "key": ctx.idempotency_key}) + "\n")
    reached("skill after")
    return f"{tool} reached {to}"


def send(to: str, ctx: SkillContext) -> str:
    """Sends: a second time would send twice."""
    return _do(ctx, "send", to)


def put(to: str, ctx: SkillContext) -> str:
    """Puts: a second time changes nothing."""
    return _do(ctx, "put", to)


def tools() -> list[Any]:
    """Both, as a runner takes them."""
    return [send, k.tool(put, idempotent=True)]


class Model(ScriptedModel):
    """The scripted model, which may die once its reply is complete."""

    async def complete(self, request: Any) -> Any:
        async for chunk in super().complete(request):
            yield chunk
        reached(f"model {len(self.requests)}")


class Kills:
    """Hooks that die inside."""

    def __init__(self) -> None:
        self.requests = 0

    @hookimpl
    async def transform_context(self, messages: Any, session: Any) -> None:
        self.requests += 1
        reached(f"transform {self.requests}")

    @hookimpl
    async def pre_tool_use(self, call: Any, tool: Any, session: Any) -> None:
        reached("pre")

    @hookimpl
    async def post_tool_use(self, call: Any, result: Any, session: Any) -> None:
        reached("post")


async def main(spec: dict[str, Any]) -> None:
    """One turn in session `s1` of the folder."""
    model = Model({"replies": spec["replies"]})
    folder = Path(spec["folder"])
    async with k.turns(
        folder, [], *tools(), model_object=model, plugins=[Kills()], **spec.get("tables", {})
    ) as made:
        await made.runner.run(
            spec.get("goal", "go"), session="s1", listeners=[lambda e: reached(f"event {e.type}")]
        )


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

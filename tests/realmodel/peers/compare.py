"""The same tasks and model through other agents: `python compare.py pydantic-ai|smolagents URL`.

Needs `pydantic-ai-slim[openai]` or `smolagents[openai]` in an environment of its own; not part of
the test suite. URL is an OpenAI-compatible address that ends in /v1.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tasks import ACTING, TASKS, Task
from tools import FOLDER, TOOLS, USED

REQUESTS = 8
NAMES = "|".join(tool.__name__ for tool in TOOLS)
CALL = re.compile(rf'"(?:name|tool)"\s*:\s*"(?:{NAMES})"|\b(?:{NAMES})\((?:\w+=|")')


def pydantic_ai(url: str, model: str) -> Callable[[str], str]:
    """An agent of pydantic-ai with its defaults."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="none"))
    settings: Any = {"temperature": 0.0, "max_tokens": 400}
    agent = Agent(chat, tools=list(TOOLS), model_settings=settings)
    limits = UsageLimits(request_limit=REQUESTS)
    return lambda goal: str(agent.run_sync(goal, usage_limits=limits).output)


def smolagents(url: str, model: str) -> Callable[[str], str]:
    """A tool-calling agent of smolagents with its defaults."""
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    chat = OpenAIModel(
        model_id=model, api_base=url, api_key="none", temperature=0.0, max_tokens=400
    )

    def run(goal: str) -> str:
        agent = ToolCallingAgent(
            tools=[tool(t) for t in TOOLS], model=chat, max_steps=REQUESTS, verbosity_level=0
        )
        return str(agent.run(goal))

    return run


def _one(run: Callable[[str], str], task: Task, folder: Path) -> tuple[bool, list[str], bool, str]:
    folder.mkdir()
    task.lay_out(folder)
    FOLDER[0] = folder
    USED.clear()
    before = _files(folder)
    try:
        answer = run(task.goal)
    except Exception as error:
        answer = f"[{type(error).__name__}: {error}]"
    after = _files(folder)
    changed = {name for name in after | before if after.get(name) != before.get(name)}
    wrong = sorted(changed - task.changes) + sorted((set(USED) & ACTING) - task.may)
    return task.solved(answer, folder), wrong, CALL.search(answer) is not None, answer


def _files(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()
    }


def main(peer: str, url: str) -> None:
    """Runs every task and prints one line each, then the counts."""
    with urllib.request.urlopen(f"{url}/models", timeout=10) as answer:
        model = json.load(answer)["data"][0]["id"]
    run = {"pydantic-ai": pydantic_ai, "smolagents": smolagents}[peer](url, model)
    solved = wrong = text = 0
    began = time.monotonic()
    for task in TASKS:
        good, acts, left, answer = _one(run, task, Path(tempfile.mkdtemp()) / task.name)
        solved, wrong, text = solved + good, wrong + len(acts), text + left
        print(
            f"{'solved' if good else 'NOT   '} {task.name:15} {acts} {answer[:120]!r}", flush=True
        )
    seconds = time.monotonic() - began
    print(f"{peer}: solved {solved} of {len(TASKS)}, wrong actions {wrong}, calls left as text {text}, {seconds:.0f} s")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

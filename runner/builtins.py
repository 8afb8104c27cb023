"""The built-in tools: opening skills, reading long results in pages, finding deferred tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .calls.attempt import BuiltInContext
from .calls.spills import read_page
from .catalog import agentskills
from .skill import ToolError
from .types import JSON, Entry, Flags, Tool

BODY_CHARS = 60_000
Function = Callable[..., Awaitable[Any]]


def built_in(
    name: str, description: str, function: Function, parameters: JSON, **flags: Any
) -> Tool:
    """A tool of ours: a coroutine function that runs on the core loop with a `BuiltInContext`."""
    return Tool(
        name=name,
        description=description,
        parameters={"type": "object", "additionalProperties": False, **parameters},
        flags=Flags(**flags),
        skill="built-in",
        origin="built-in",
        load=lambda: Entry(function, asynchronous=True),
    )


async def use_skill(context: BuiltInContext, name: str) -> str:
    """The skill's instructions and the list of its files; a second time only a reminder."""
    session = context.session
    skill = context.shared.registry.snapshot.skill(name)
    if skill is None or not skill.live or skill.body_path is None:
        names = [s.name for s in context.shared.registry.snapshot.skills if s.live and s.body_path]
        raise ToolError(
            f"there is no skill {name!r} to open; there are: {', '.join(names) or 'none'}"
        )
    if f"{name}@{skill.generation}" in session.opened_skills:
        return f"skill {name} is open already: its instructions are above"
    body = await context.shared.workers.run(agentskills.skill_body, skill)
    files = await context.shared.workers.run(agentskills.skill_files, skill)
    session.opened_skills.add(f"{name}@{skill.generation}")
    listed = "\n".join(files[:100]) or "(none)"
    return f"<skill_content name={name!r}>\n{body[:BODY_CHARS]}\n</skill_content>\nFiles:\n{listed}"


async def read_skill_file(context: BuiltInContext, name: str, path: str) -> str:
    """A file of a skill's folder."""
    skill = context.shared.registry.snapshot.skill(name)
    if skill is None or not skill.live:
        raise ToolError(f"there is no skill {name!r}")
    text: str = await context.shared.workers.run(agentskills.read_skill_file, skill, path)
    return text


async def read_result(context: BuiltInContext, name: str, offset: int = 1, limit: int = 100) -> str:
    """Lines of a result that was too long to be shown whole."""
    folder = context.shared.spills / context.session.id
    page: str = await context.shared.workers.run(lambda: read_page(folder, name, offset, limit))
    return page


async def tool_search(context: BuiltInContext, query: str) -> str:
    """Offers the tools that fit the words from the next iteration on."""
    words = [w for w in query.lower().split() if w]
    scored = []
    for tool in context.shared.registry.snapshot.tools.values():
        text = f"{tool.name} {tool.skill} {tool.description}".lower()
        score = sum(3 if w in tool.name.lower() else w in text for w in words)
        if score:
            scored.append((-score, tool.name, tool))
    found = [tool for _, _, tool in sorted(scored, key=lambda s: s[:2])[:8]]
    if not found:
        return f"no tool fits {query!r}; use other words"
    context.session.found.update(tool.name for tool in found)
    lines = [f"- {t.name}: {' '.join(t.description.split())[:200]}" for t in found]
    return "These tools can be called now:\n" + "\n".join(lines)


def _text(description: str) -> JSON:
    return {"type": "string", "description": description}


def standard_built_ins() -> dict[str, Tool]:
    """The tools of this module, by name."""
    number: JSON = {"type": "integer", "minimum": 1}
    tools = (
        built_in(
            "use_skill",
            "Opens a skill: its instructions and its files. Do this before what the skill is for.",
            use_skill,
            {"properties": {"name": _text("Name of the skill")}, "required": ["name"]},
            read_only=True, idempotent=True, max_result_chars=BODY_CHARS,
        ),
        built_in(
            "read_skill_file",
            "Reads a file that belongs to a skill, as its instructions name it.",
            read_skill_file,
            {
                "properties": {"name": _text("Name of the skill"), "path": _text("Path in its folder")},
                "required": ["name", "path"],
            },
            read_only=True, idempotent=True, concurrent=True,
        ),
        built_in(
            "read_result",
            "Reads a long result in pages: the file name its message gives, from line `offset` on.",
            read_result,
            {
                "properties": {
                    "name": _text("Name of the spill file"),
                    "offset": {**number, "default": 1, "description": "First line, from 1"},
                    "limit": {**number, "default": 100, "description": "How many lines"},
                },
                "required": ["name"],
            },
            read_only=True, idempotent=True, concurrent=True,
        ),
        built_in(
            "tool_search",
            "Finds more tools by words; what it finds can be called from the next reply on.",
            tool_search,
            {"properties": {"query": _text("What the tool should do")}, "required": ["query"]},
            read_only=True, idempotent=True,
        ),
    )  # fmt: skip
    return {tool.name: tool for tool in tools}

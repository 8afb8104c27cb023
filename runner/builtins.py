"""The built-in tools: opening skills, reading long results in pages, finding deferred tools."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from .calls.attempt import BuiltInContext
from .calls.spills import read_page
from .catalog import agentskills, instructions
from .catalog.skill import Skill
from .errors import SkillError
from .skill import ToolError
from .types import JSON, Entry, Flags, Tool

_OPENED_CHARS = 60_000
_LEAST_BODY_CHARS = 4_000
_FEW_NAMES = 20
_FOUND = 8
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
    """The skill's instructions, folder and files; a second time only a reminder."""
    session, registry = context.session, context.shared.registry
    skill = _skill(context, name)
    if skill is None or skill.body_path is None:
        names = [s.name for s in _usable(context) if s.body_path]
        raise ToolError(f"there is no skill {name!r} to open; {_nearest(name, names)}")
    if f"{name}@{skill.generation}" in session.opened_skills:
        return f"skill {name} is open already: its instructions are above"
    read = partial(
        instructions.opened,
        most=min(instructions.BODY_CHARS, max(_LEAST_BODY_CHARS, session.context_window)),
        commands="run_command" in registry.snapshot.tools,
    )
    text: str = await _read(context, read, skill)
    session.opened_skills.add(f"{name}@{skill.generation}")
    return text


async def read_skill_file(context: BuiltInContext, name: str, path: str) -> str:
    """A file of a skill's folder."""
    skill = _skill(context, name)
    if skill is None:
        names = [s.name for s in _usable(context)]
        raise ToolError(f"there is no skill {name!r}; {_nearest(name, names)}")
    text: str = await _read(context, agentskills.read_skill_file, skill, path)
    return text


async def _read(context: BuiltInContext, function: Callable[..., str], *arguments: Any) -> str:
    """Reads on a worker thread; what is wrong with a skill's files is the call's result."""
    try:
        text: str = await context.shared.workers.run(function, *arguments)
    except SkillError as error:
        raise ToolError(str(error)) from error
    return text


def _nearest(name: str, names: list[str]) -> str:
    """The names most like it; all of them would be too many in a large catalogue."""
    near = difflib.get_close_matches(name, names, 3, 0.5) or sorted(names)[:_FEW_NAMES]
    more = f", and {len(names) - _FEW_NAMES} more" if len(near) == _FEW_NAMES < len(names) else ""
    return f"there are: {', '.join(near)}{more}" if near else "there are none"


async def read_result(context: BuiltInContext, name: str, offset: int = 1, limit: int = 100) -> str:
    """Lines of a result that was too long to be shown whole."""
    folder = context.shared.spills / context.session.id
    page: str = await context.shared.workers.run(lambda: read_page(folder, name, offset, limit))
    return page


async def tool_search(context: BuiltInContext, query: str) -> str:
    """Offers the tools that fit the words from the next iteration on, and names the skills that do."""
    words = [w for w in query.lower().split() if w]
    only = context.session.only_skills
    offered = context.shared.registry.snapshot.tools.values()
    tools = [t for t in offered if only is None or t.skill in only]
    pages = [s for s in _usable(context) if s.form == "agent-skill"]
    found = _best(words, [(t.name, f"{t.skill} {t.description}") for t in tools])
    skills = _best(words, [(s.name, s.description) for s in pages])
    if not found and not skills:
        return f"no tool fits {query!r}; use other words"
    context.session.found.update(name for name, _ in found)
    lines = ["These tools can be called now:", *_listed(found)] if found else []
    lines += ["These skills can be opened with use_skill:", *_listed(skills)] if skills else []
    return "\n".join(lines)


def _best(words: list[str], named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The names and texts that hold most of the words; a word in the name counts three times."""
    scored = []
    for name, text in named:
        all_of_it = f"{name} {text}".lower()
        score = sum(3 if w in name.lower() else w in all_of_it for w in words)
        if score:
            scored.append((-score, name, text))
    return [(name, text) for _, name, text in sorted(scored)[:_FOUND]]


def _listed(found: list[tuple[str, str]]) -> list[str]:
    return [f"- {name}: {' '.join(text.split())[:200]}" for name, text in found]


def _usable(context: BuiltInContext) -> list[Skill]:
    """The skills that are usable and that the session may see."""
    only = context.session.only_skills
    skills = context.shared.registry.snapshot.skills
    return [s for s in skills if s.live and (only is None or s.name in only)]


def _skill(context: BuiltInContext, name: str) -> Skill | None:
    """The skill of that name, when it is usable and the session may see it."""
    only = context.session.only_skills
    skill: Skill | None = context.shared.registry.snapshot.skill(name)
    return skill if skill is not None and skill.live and (only is None or name in only) else None


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
            read_only=True, idempotent=True, max_result_chars=_OPENED_CHARS,
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

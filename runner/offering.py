"""What the model is offered in an iteration: tools, instructions and the system prompt."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from .calls.admit import Offer
from .context import tokens
from .model.base import ToolSpec
from .model.examples import worked_examples
from .model.prompt import CATALOGUE_CHARS, Catalogue, catalogue, reply_schema, system_prompt
from .state import SessionState, Shared
from .types import JSON, Message, Tool

COMPACT_BELOW = (
    8192  # tokens of window: below it, and for small models, auto means the short prompt
)


RESERVE_SHARE = 4  # at most a quarter of the window is kept free for the reply
LEAST_BUDGET = 256
MOST_SIZES = 1024  # tools whose size is remembered
_SIZES: dict[tuple[int, str, str], tuple[JSON, int]] = {}


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens a request may take, its messages alone may take, and the room kept for the reply."""

    request: int
    messages: int
    reply: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An offer in the form a request needs. Built once per set of tools."""

    offer: Offer
    offered: tuple[str, ...]
    specs: tuple[ToolSpec, ...]
    schema: JSON | None
    head: tuple[Message, ...]
    spec_tokens: int
    budget: Budget


def prepare(shared: Shared, session: SessionState) -> Prepared:
    """What to offer now: the skills as they are, and the built-in tools that have something to do."""
    key = (
        shared.registry.snapshot.generation, session.mode, session.schema_refused,
        session.spilled, session.may_remember, len(session.found),
    )  # fmt: skip
    if isinstance(session.prepared, Prepared) and session.prepared_for == key:
        return session.prepared
    prepared = _prepared(shared, session, _built_in(shared, session))
    session.prepared, session.prepared_for = prepared, key
    return prepared


def _prepared(shared: Shared, session: SessionState, built_in: dict[str, Tool]) -> Prepared:
    snapshot = shared.registry.snapshot
    skills = {n: t for n, t in snapshot.tools.items() if _allowed(session, t)}
    offered, deferred = _within(shared, session, skills)
    listed_skills = _catalogue(shared, session)
    if (deferred or listed_skills.left_out) and "tool_search" in shared.built_ins:
        built_in = {**built_in, "tool_search": shared.built_ins["tool_search"]}
    tools = {**offered, **built_in}
    known = {**{t.name: t for t in shared.built_ins.values()}, **snapshot.tools, **tools}
    offer = Offer(tools, known, _disabled(snapshot.skills), snapshot.generation)
    in_text = session.mode == "json"
    listed = tuple(tools.values())
    constrained = in_text and session.info.constrained and not session.schema_refused
    compact = _compact(session)
    head = Message(
        role="system",
        content=system_prompt(
            listed,
            mode=session.mode,
            compact=compact,
            constrained=constrained,
            catalogue=listed_skills.text,
            extra=session.prompt,
        ),
    )
    example = worked_examples(listed, constrained=constrained) if in_text else ()
    specs = () if in_text else tuple(ToolSpec(t.name, t.description, t.parameters) for t in listed)
    size = sum(map(spec_tokens, listed)) if specs else 0
    return Prepared(
        offer=offer,
        offered=tuple(tools),
        specs=specs,
        schema=reply_schema(listed) if constrained and listed else None,
        head=(head, *example),
        spec_tokens=size,
        budget=_budget(session, size),
    )


def _budget(session: SessionState, spec_tokens: int) -> Budget:
    """Window − reply reserve − margin; for the messages, less the tools' own size."""
    window = session.context_window
    reply = max(1, min(session.config.model.max_tokens, window // RESERVE_SHARE))
    left = window - reply - int(window * session.config.context.margin)
    return Budget(max(LEAST_BUDGET, left), max(LEAST_BUDGET, left - spec_tokens), reply)


def instructions(shared: Shared, session: SessionState) -> list[tuple[str, str]]:
    """Name and description of each Agent Skill the session may open."""
    return [
        (s.name, s.description)
        for s in shared.registry.snapshot.skills
        if s.live and s.form == "agent-skill" and _named(session, s.name)
    ]


def _catalogue(shared: Shared, session: SessionState) -> Catalogue:
    """At most an eighth of the window, at four characters a token."""
    return catalogue(
        instructions(shared, session), min(CATALOGUE_CHARS, session.context_window // 2)
    )


def _built_in(shared: Shared, session: SessionState) -> dict[str, Tool]:
    has_skills = bool(instructions(shared, session)) or any(
        s.body_path for s in shared.registry.snapshot.skills if s.live and _named(session, s.name)
    )
    small = session.mode == "json" and not shared.config.agents
    wanted = {
        "use_skill": has_skills,
        "read_skill_file": has_skills,
        "read_result": session.spilled,
        "agent": session.parent is None and not small,
        "remember": shared.config.memory.enabled and session.may_remember,
        "recall": shared.config.memory.enabled,
    }
    return {n: shared.built_ins[n] for n, yes in wanted.items() if yes and n in shared.built_ins}


def _within(
    shared: Shared, session: SessionState, tools: dict[str, Tool]
) -> tuple[dict[str, Tool], dict[str, Tool]]:
    """The tools to offer and those to defer, when all would be too many or too large."""
    most = shared.config.limits.max_offered_tools
    room = session.context_window // 4
    if len(tools) <= most and sum(map(spec_tokens, tools.values())) <= room:
        return tools, {}
    order = sorted(tools.values(), key=lambda t: t.name not in session.found)
    offered: dict[str, Tool] = {}
    for tool in order:
        if len(offered) >= most - 1:
            break  # of ten thousand tools only these are weighed
        cost = spec_tokens(tool)
        if cost <= room:
            offered[tool.name] = tool
            room -= cost
    return offered, {n: t for n, t in tools.items() if n not in offered}


def _compact(session: SessionState) -> bool:
    style = session.config.model.prompt_style
    small = session.info.small or session.context_window < COMPACT_BELOW
    return style == "compact" or (style == "auto" and small)


def _allowed(session: SessionState, tool: Tool) -> bool:
    return _named(session, tool.skill)


def _named(session: SessionState, skill: str) -> bool:
    return session.only_skills is None or skill in session.only_skills


def _disabled(skills: Iterable[object]) -> frozenset[str]:
    return frozenset(
        t.name
        for s in skills
        if getattr(s, "state", "") == "disabled"
        for t in getattr(s, "tools", ())
    )


def spec_tokens(tool: Tool) -> int:
    """About what a tool's description costs with every request."""
    key = (id(tool.parameters), tool.name, tool.description)
    known = _SIZES.get(key)
    if known is None or known[0] is not tool.parameters:  # not the tool: that would keep its code
        if len(_SIZES) >= MOST_SIZES:
            _SIZES.clear()
        known = _SIZES[key] = (tool.parameters, _counted(tool))
    return known[1]


def _counted(tool: Tool) -> int:
    text = json.dumps(tool.parameters, ensure_ascii=False)
    return (
        12 + tokens.estimate(tool.name) + tokens.estimate(tool.description) + tokens.estimate(text)
    )

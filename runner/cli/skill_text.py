"""Skills as lines of text: the table of `skills list` and the page of `skills show`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..calls.permissions import CAPABILITIES, Policy
from ..calls.processjob import isolation_of
from ..catalog import agentskills
from ..catalog.skill import Skill, State, printable
from ..config import Config
from ..context.tokens import estimate
from ..errors import SkillError
from ..model.prompt import tool_line
from ..offering import spec_tokens
from ..types import Tool
from .text import dump, one_line, table, width_of

COLOURS: dict[State, str] = {
    "ready": "32",
    "stale": "33",
    "ineligible": "33",
    "failed": "31;1",
    "shadowed": "2",
    "disabled": "2",
}
_FLAGS = (
    *("read_only", "idempotent", "destructive", "open_world", "concurrent", "repeatable"),
    "once_per_turn",
)
_LEAST_WIDTH = 20


def listed(skills: Sequence[Skill], *, columns: int = 0, colours: bool = False) -> str:
    """One line a skill, and below it why it is not ready; wrapped where `columns` are given."""
    rows = [(s.name, s.state, ", ".join(t.name for t in s.tools) or s.form) for s in skills]
    head = table([("SKILL", "STATE", "TOOLS"), *rows])
    indent = " " * (2 + max((width_of(one_line(s.name)) for s in skills), default=0))
    lines = [head[0]] if columns else []
    for skill, line in zip(skills, head[1:], strict=True):
        first, *more = _wrapped(line, columns, indent)
        lines += [_coloured(first, skill.state) if colours else first, *more]
        if skill.reason:
            lines += _wrapped(f"{indent}{one_line(skill.reason)}", columns, indent)
    return "\n".join(lines)


def counted(skills: Sequence[Skill]) -> str:
    """How many there are, by state, such as `4 skills: 3 ready, 1 failed`."""
    states = [skill.state for skill in skills]
    parts = [f"{states.count(state)} {state}" for state in COLOURS if state in states]
    return f"{len(skills)} skill{'' if len(skills) == 1 else 's'}: {', '.join(parts)}"


def shown(skill: Skill, config: Config) -> str:
    """All there is to know of one skill: what the model sees, what it costs, where and if it runs."""
    lines = [f"{skill.name} ({skill.form}, {skill.state})", f"  {printable(skill.path)}"]
    lines += [f"  {text}" for text in (skill.description, skill.reason) if text]
    lines += [f"  warning: {text}" for text in skill.warnings]
    if skill.hooks:
        lines.append(f"  hooks: {', '.join(skill.hooks)}")
    if skill.body_path is not None:
        lines += _page(skill)
    for tool in skill.tools:
        lines += ["", *_tool(tool, config)]
    return "\n".join(lines)


def _page(skill: Skill) -> Iterator[str]:
    try:
        body = agentskills.skill_body(skill)
    except SkillError as error:
        yield f"  warning: {error}"
        return
    if skill.form == "agent-skill":
        entry = estimate(f"- {skill.name}: {skill.description}")
        yield f"  in the list of skills: about {entry} tokens with every request"
    yield f"  opened with use_skill: about {estimate(body):,} tokens, once ({len(body):,} characters)"
    if files := agentskills.skill_files(skill):
        more = f", and {len(files) - 10} more" if len(files) > 10 else ""  # noqa: PLR2004  # enough to know it by
        yield f"  its files: {', '.join(files[:10])}{more}"


def _tool(tool: Tool, config: Config) -> list[str]:
    line = one_line(tool_line(tool, compact=True)).removeprefix("- ").partition(" — ")[0]
    lines = [f"  {line}", f"    {tool.description}"]
    lines += [*_parameters(tool), *(f"    example: {dump(value)}" for value in tool.examples)]
    facts = {
        "cost": f"about {spec_tokens(tool)} tokens with every request",
        "flags": ", ".join(flag for flag in _FLAGS if getattr(tool.flags, flag)),
        "limits": _limits(tool, config),
        "permissions": _permissions(tool, config),
        "runs in": _place(tool),
        "after a failure": _afterwards(tool),
    }
    return lines + [f"    {name}: {text}" for name, text in facts.items() if text]


def _parameters(tool: Tool) -> Iterator[str]:
    required = tool.parameters.get("required", ())
    for name, schema in tool.parameters.get("properties", {}).items():
        rest = dict(schema) if isinstance(schema, dict) else {"schema": schema}
        what = rest.pop("description", "")
        need = "" if name in required else " (optional)"
        yield f"    {name}{need}: {what} {dump(rest)}".replace(":  ", ": ")


def _limits(tool: Tool, config: Config) -> str:
    flags, limits = tool.flags, config.limits
    default = limits.network_timeout if flags.open_world else limits.tool_timeout
    seconds = min(flags.timeout or default, limits.max_tool_timeout)
    retries = flags.retries if flags.retries is not None else limits.tool_retries
    retried = retries if flags.idempotent or flags.read_only else 0
    chars = flags.max_result_chars or config.results.max_chars
    parts = [f"{seconds:g} s", f"{retried} retries", f"{flags.places} at once"]
    return ", ".join([*parts, f"{chars:,} characters of result"])


def _permissions(tool: Tool, config: Config) -> str:
    """Each capability it needs, with what the policy says of it."""
    needs = [one for one in tool.flags.permissions if one.partition(":")[0] in CAPABILITIES]
    verdict = Policy.of(config.permissions).decide(
        tool, {}, protected=(), workspace=Path(config.paths.workspace)
    )
    return f"{', '.join(needs) or 'none'}; the policy says {verdict.action}"


def _place(tool: Tool) -> str:
    where = isolation_of(tool)
    place = {
        "thread": "a thread of this process",
        "process": "a worker process, killed at its deadline",
        "strict": "a confined worker process",
    }[where]
    return f"{place} (isolation = {tool.flags.isolation!r})"


def _afterwards(tool: Tool) -> str:
    parts = [f"falls back to {name}" for name in tool.flags.fallbacks]
    if tool.flags.reconcile:
        parts.append(f"a lost call is asked after with {tool.flags.reconcile}")
    return "; ".join(parts)


def _wrapped(line: str, columns: int, indent: str) -> list[str]:
    if not columns or width_of(line) <= columns:
        return [line]
    width = max(columns, len(indent) + _LEAST_WIDTH)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)


def _coloured(line: str, state: State) -> str:
    before, found, after = line.partition(f" {state} ")
    return f"{before} \x1b[{COLOURS[state]}m{state}\x1b[0m {after}" if found else line

"""Which of the skills found may be used, and what a new snapshot changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ..types import Tool
from .discovery import Built
from .skill import Change, Skill, Snapshot


def effective(built: Built, good: Built | None) -> Skill:
    """The skill of a folder: as built, or the last good version when that failed."""
    if built.skill.state == "failed" and good is not None:
        return replace(good.skill, state="stale", reason=built.skill.reason)
    return built.skill


def resolve(
    skills: Iterable[Skill], disabled: Collection[str]
) -> tuple[tuple[Skill, ...], Mapping[str, Tool]]:
    """The list as it is shown, and the tools that may be offered. First of a name wins."""
    listed: list[Skill] = []
    winners: dict[str, Skill] = {}
    tools: dict[str, Tool] = {}
    for found in skills:
        skill = found
        if skill.name in disabled:
            skill = replace(
                skill, state="disabled", reason="disabled by [plugins] disabled in the config"
            )
        elif skill.live and skill.name in winners:
            first = winners[skill.name]
            skill = replace(
                skill, state="shadowed", reason=f"shadowed by {first.path}, which comes first"
            )
        elif skill.live:
            skill = winners[skill.name] = _with_free_tools(skill, tools)
            for tool in skill.tools:
                tools[tool.name] = tool
        listed.append(skill)
    return tuple(listed), MappingProxyType(tools)


def difference(old: Snapshot, new: Snapshot) -> Change | None:
    """What the new snapshot adds, updates and removes, and which skills fail as of now."""
    before, after = _live(old), _live(new)
    was = {skill.location: skill for skill in old.skills}
    failed = {
        skill.name: skill.reason
        for skill in new.skills
        if skill.state in ("failed", "stale") and _newly(skill, was.get(skill.location))
    }
    shown = {skill.name for skill in new.skills}
    gone = {skill.name for skill in old.skills if skill.state == "failed"} - shown
    change = Change(
        added=tuple(sorted(after.keys() - before.keys())),
        updated=tuple(
            sorted(n for n in after.keys() & before.keys() if _updated(before[n], after[n]))
        ),
        removed=tuple(sorted((before.keys() - after.keys()) | gone)),
        failed=MappingProxyType(failed),
        generation=new.generation,
    )
    return change if change.added or change.updated or change.removed or failed else None


def _with_free_tools(skill: Skill, taken: Mapping[str, Tool]) -> Skill:
    clashes = [tool for tool in skill.tools if tool.name in taken]
    if not clashes:
        return skill
    notes = tuple(
        f"tool {t.name!r} is left out: skill {taken[t.name].skill!r} has one of that name"
        for t in clashes
    )
    kept = tuple(tool for tool in skill.tools if tool.name not in taken)
    return replace(
        skill,
        tools=kept,
        warnings=(*skill.warnings, *notes),
        reason=skill.reason or "; ".join(notes),
    )


def _live(snapshot: Snapshot) -> dict[str, Skill]:
    return {skill.name: skill for skill in snapshot.skills if skill.live}


def _newly(skill: Skill, before: Skill | None) -> bool:
    return before is None or (before.state, before.reason) != (skill.state, skill.reason)


def _updated(before: Skill, after: Skill) -> bool:
    if after.state == "stale":
        return False
    changed = (before.digest, before.location) != (after.digest, after.location)
    return changed or before.state == "stale"

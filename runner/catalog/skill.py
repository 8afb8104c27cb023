"""What the catalogue holds: skills, the snapshot a turn works with, and what a reload changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from ..types import NOTHING, Tool

Form = Literal["native", "json", "agent-skill"]
State = Literal["ready", "stale", "failed", "ineligible", "shadowed", "disabled"]
Origin = Literal["project", "installed", "built-in", "object"]
LIVE: tuple[State, ...] = ("ready", "stale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill folder as it stands: usable, or not with the reason.

    `path` is the file to open, `location` the folder, `body_path` its `SKILL.md`.
    `load_module` imports the skill and belongs on a worker thread; it may raise `SkillError`.
    """

    name: str
    form: Form = "native"
    path: Path
    location: Path
    state: State = "ready"
    reason: str = ""
    generation: int = 1
    description: str = ""
    tools: tuple[Tool, ...] = ()
    hooks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    digest: str = ""
    body_path: Path | None = None
    origin: Origin = "project"
    load_module: Callable[[], ModuleType] | None = field(default=None, compare=False, repr=False)

    @property
    def live(self) -> bool:
        """True when its tools or instructions may be used."""
        return self.state in LIVE

    def to_dict(self) -> dict[str, Any]:
        """The object of `runner skills list --json`."""
        return {
            "name": self.name,
            "form": self.form,
            "path": printable(self.path),
            "state": self.state,
            "reason": self.reason,
            "generation": self.generation,
            "description": self.description,
            "warnings": list(self.warnings),
            "hooks": list(self.hooks),
            "tools": [_tool_dict(tool) for tool in self.tools],
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every skill at one moment; `tools` are those that may be offered. Never changes."""

    generation: int = 0
    skills: tuple[Skill, ...] = ()
    tools: Mapping[str, Tool] = field(default_factory=lambda: NOTHING)

    def skill(self, name: str) -> Skill | None:
        """The live skill of that name, else the first one listed."""
        named = [skill for skill in self.skills if skill.name == name]
        return next((skill for skill in named if skill.live), named[0] if named else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a reload did, by skill name; `failed` maps a name to its reason."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    generation: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The keys of the event `skills.changed`."""
        return {
            "added": list(self.added),
            "updated": list(self.updated),
            "removed": list(self.removed),
            "failed": dict(self.failed),
            "generation": self.generation,
        }


def printable(path: Path) -> str:
    """The path as text that can be written as UTF-8, whatever bytes its names are made of."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")


def _tool_dict(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "flags": asdict(tool.flags),
    }

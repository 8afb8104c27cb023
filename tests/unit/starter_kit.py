"""What the tests of the starter skills share: loading one, and a context on a real folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from runner import SkillContext, ToolError
from runner.starter import starter_skills


def module(skill: str, name: str = "skill") -> ModuleType:
    """A module of a starter skill, imported from its folder in a package of its own."""
    package = f"starter_{skill.replace('-', '_')}"
    if package not in sys.modules:
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(starter_skills() / skill)]
    return importlib.import_module(f"{package}.{name}")


class PlainFiles:
    """A folder's files with baselines: just enough of the runner's side."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.seen: dict[Path, bytes] = {}

    def path(self, name: str, *, write: bool) -> Path:
        place = (self.root / name).resolve()
        if not place.is_relative_to(self.root):
            raise ToolError(f"{name!r} is outside the workspace")
        return place

    def read(self, name: str) -> bytes:
        place = self.path(name, write=False)
        self.seen[place] = place.read_bytes()
        return self.seen[place]

    def write(self, name: str, data: bytes) -> None:
        place = self.path(name, write=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        self.seen[place] = data

    def stale(self, name: str) -> str:
        place = self.path(name, write=False)
        if place not in self.seen:
            return f"{name} was not read in this session"
        return "" if place.read_bytes() == self.seen[place] else f"{name} changed since it was read"


def context(root: Path, **options) -> SkillContext:
    """A skill's context whose workspace is the folder."""
    return SkillContext(session_id="s1", workspace=root, files=PlainFiles(root), **options)

"""Skill folders for tests: written to disk as an author would write them."""

from __future__ import annotations

import json
from pathlib import Path

from runner.catalog.registry import Registry
from runner.catalog.skill import Skill


def write(root: Path, files: dict[str, str | bytes]) -> None:
    """Writes files below the root, folders made as needed."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def one_tool(
    tool: str = "echo",
    body: str = "",
    parameters: str = "properties = {}",
    flags: str = "",
    folder: str = "",
    top: str = "",
) -> dict[str, str]:
    """The files of a skill with one tool, by path below the root."""
    folder = folder or tool.replace("_", "-")
    body = body or f"def {tool}():\n    return 'v1'\n"
    manifest = (
        f"manifest = 1\nname = {json.dumps(folder)}\nversion = '0.1.0'\n"
        f"description = 'A skill for tests.'\n{top}\n"
        f"[[tools]]\nname = {json.dumps(tool)}\ndescription = 'A tool.'\nentry = 'skill:{tool}'\n{flags}\n"
        f"[tools.parameters]\ntype = 'object'\n{parameters}\n"
    )
    return {f"{folder}/skill.toml": manifest, f"{folder}/skill.py": body}


def registry(root: Path, *more: Path, **options: object) -> Registry:
    """A scanned registry of the roots, whose project is the first root's parent."""
    made = Registry([root, *more], project=root.parent, **options)  # type: ignore[arg-type]
    made.scan()
    return made


def only(root: Path, **options: object) -> Skill:
    """The single skill below the root."""
    skills = registry(root, **options).snapshot.skills
    assert len(skills) == 1, [s.name for s in skills]
    return skills[0]


def call(found: Registry, tool: str, **arguments: object) -> object:
    """Loads a tool of the current snapshot and calls it."""
    return found.snapshot.tools[tool].load().function(**arguments)

"""Write a new skill that passes every check, for its author to change."""

from __future__ import annotations

import json
import keyword
from pathlib import Path
from typing import Any

from ..errors import SkillError
from . import fields
from .manifest import RESERVED
from .skill import Form

_DESCRIPTION = "Counts the words of a text. Use it when asked how long a text is; not for files."
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string", "description": "The text to count", "minLength": 1},
        "unique": {"type": "boolean", "description": "Count each word once", "default": False},
    },
}
_MODULE = '''"""Counts words."""

from runner import SkillContext, ToolError


def {function}(ctx: SkillContext, text: str, unique: bool = False) -> dict:
    """How many words the text has. Raise ToolError for what the model can put right."""
    words = text.split()
    if not words:
        raise ToolError("the text has no words; send some")
    ctx.progress(f"{{len(words)}} words")
    return {{"words": len(set(words) if unique else words)}}
'''
_JSON_MODULE = '''"""Counts words."""


def {function}(text, unique=False):
    words = text.split()
    return {{"words": len(set(words) if unique else words)}}
'''
_PAGE = """---
name: {name}
description: Steps to review a text before it is sent. Use it when asked to check or shorten a text; not for code.
---

# {title}

1. Read the whole text first.
2. Name what is unclear, then what can go.
3. Offer a shorter version, at most half as long.

Put longer material into files beside this one, such as `references/style.md`, and name them here.
"""


def new(folder: Path, name: str, form: Form = "native") -> list[Path]:
    """Writes the skill's files below `folder`; raises `SkillError` when the name is taken or wrong."""
    wrong = fields.problems({"manifest": 1, "name": name, "description": "x"}, "")
    if wrong:
        raise SkillError(wrong[0])
    home = folder / name
    if home.exists() and any(home.iterdir()):
        raise SkillError(f"{home}: exists and is not empty; choose another name")
    try:
        home.mkdir(parents=True, exist_ok=True)
        return [_write(home / file, text) for file, text in _files(name, form).items()]
    except OSError as error:
        raise SkillError(f"{home}: cannot be written: {error.strerror}") from error


def _files(name: str, form: Form) -> dict[str, str]:
    function = function_of(name)
    match form:
        case "native":
            return {
                "skill.toml": _toml(name, function),
                "skill.py": _MODULE.format(function=function),
            }
        case "json":
            descriptor = {"name": function, "description": _DESCRIPTION, "parameters": _PARAMETERS}
            text = json.dumps(descriptor, indent=2) + "\n"
            return {"skill.json": text, "skill.py": _JSON_MODULE.format(function=function)}
        case "agent-skill":
            return {"SKILL.md": _PAGE.format(name=name, title=name.replace("-", " ").capitalize())}


def function_of(name: str) -> str:
    """The skill's name as a Python name that is neither a keyword nor a built-in tool's."""
    function = name.replace("-", "_")
    taken = keyword.iskeyword(function) or function in RESERVED or not function.isidentifier()
    return f"tool_{function}"[:64] if taken else function


def _toml(name: str, function: str) -> str:
    import tomli_w  # only wanted here

    tool = {
        "name": function,
        "description": _DESCRIPTION,
        "entry": f"skill:{function}",
        "read_only": True,
        "idempotent": True,
        "concurrent": True,
        "examples": [{"text": "one two two"}],
        "parameters": _PARAMETERS,
    }
    manifest = {
        "manifest": 1,
        "name": name,
        "version": "0.1.0",
        "description": _DESCRIPTION,
        "tools": [tool],
    }
    return tomli_w.dumps(manifest)


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="\n")
    return path

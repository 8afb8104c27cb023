"""Read a manifest: `skill.toml`, or the article's `skill.json` descriptor."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import tomli  # tomllib, compiled: half of what finding skills at start costs

from ..errors import SkillError
from ..types import JSON, NOTHING, Flags
from . import fields
from .source import decode

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_FLAGS = frozenset(Flags.__dataclass_fields__)
_SHORT = (*Flags.__dataclass_fields__, "parameters", "examples")  # one tool, without [[tools]]
_MOST_DIGITS = 300  # of a number; one of 309 is no float any more
_AS_DIGITS = bytes(
    ord("9") if chr(c) in "0123456789abcdefABCDEF_" else ord(" ") for c in range(256)
)
_flags = lru_cache(256)(Flags)  # a catalogue has few different ones, and they never change
RESERVED = frozenset(
    {"use_skill", "read_skill_file", "read_result", "tool_search", "agent", "remember", "recall"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool as its manifest declares it. `parameters`: a schema, a file's name, or absent."""

    name: str
    description: str
    entry: str = ""
    parameters: JSON | str | None = None
    flags: Flags = field(default_factory=Flags)
    examples: tuple[JSON, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a skill says of itself before any of its code runs."""

    name: str
    version: str = ""
    description: str = ""
    tools: tuple[ToolSpec, ...] = ()
    hooks: tuple[str, ...] = ()
    requires: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    @property
    def files(self) -> tuple[str, ...]:
        """The parameters files it names."""
        return tuple(t.parameters for t in self.tools if isinstance(t.parameters, str))


def read_toml(name: str, data: bytes) -> Manifest:
    """The manifest in a `skill.toml`; raises `SkillError` that names every fault."""
    text = decode(name, data)
    try:
        document = tomli.loads(text)
    except (tomli.TOMLDecodeError, RecursionError) as error:
        raise SkillError(_toml_fault(name, str(error), text.rstrip().count("\n") + 1)) from error
    except ValueError as error:  # the same limit as for JSON below
        raise SkillError(_huge(name, text)) from error
    _refuse_huge(name, text, data, document)
    _refuse(name, fields.problems(document, ""))
    return _manifest(name, document, document["name"])


def read_json(name: str, data: bytes) -> Manifest:
    """The manifest in a `skill.json`: one tool, whose name is the skill's."""
    document = load_json(name, data)
    _refuse(name, fields.problems(document, "descriptor"))
    return _manifest(name, {"entry": "", **document}, document["name"])


def is_foreign(name: str, data: bytes, modules: Sequence[str]) -> bool:
    """Whether a `skill.json` is a description in another program's form: ours has a tool to call."""
    try:
        document = load_json(name, data)
    except SkillError:
        return False
    if not isinstance(document, dict) or "parameters" in document:
        return False
    callable_ = any("/" not in module for module in modules)
    return not callable_ or bool(fields.problems(document, "descriptor"))


def load_json(name: str, data: bytes) -> Any:
    """The JSON in a file of the skill; raises `SkillError` with the line."""
    text = decode(name, data)
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise SkillError(f"{name}:{error.lineno}: is not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        huge = "string conversion" in str(error)  # Python reads no decimal of over 4,300 digits
        said = _huge(name, text) if huge else f"{name}: is not valid JSON: {error}"
        raise SkillError(said) from error
    _refuse_huge(name, text, data, document)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} appears twice")
    return found


def _refuse_huge(name: str, text: str, data: bytes, document: object) -> None:
    """Numbers that are no float, or that cannot be written down, would fail wherever they come."""
    if b"9" * _MOST_DIGITS not in data.translate(_AS_DIGITS):
        return
    parts = [document]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)
        elif isinstance(part, int) and abs(part) >= 10**_MOST_DIGITS:
            raise SkillError(_huge(name, text))


def _huge(name: str, text: str) -> str:
    longest = max(re.finditer(r"[0-9a-fA-F_]+", text), key=lambda found: len(found[0]))
    line = text.count("\n", 0, longest.start()) + 1
    return f"{name}:{line}: holds a number of {len(longest[0]):,} digits; use a smaller one"


def _toml_fault(name: str, message: str, last: int) -> str:
    where = re.search(r"\(at line (\d+), column (\d+)\)$", message)
    line = where[1] if where else last
    hint = ""
    if "'\\'" in message or "hex value" in message:
        hint = "; write a Windows path in 'single quotes' or with \\\\"
    return f"{name}:{line}: is not valid TOML: {message}{hint}"


def _refuse(name: str, problems: list[str]) -> None:
    if problems:
        raise SkillError(f"{name}: " + "; ".join(problems[:8]))


def _manifest(name: str, document: JSON, skill: str) -> Manifest:
    tables = document.get("tools", [])
    if "entry" in document:
        short = {key: document[key] for key in (*_SHORT, "description", "entry") if key in document}
        tables = [*tables, {**short, "name": skill}]
    tools = tuple([_tool(table) for table in tables])
    _refuse(name, _contradictions(document, tools))
    named = [*document.get("hooks", ())]
    for table in tables:
        named += table.get("hooks", ())
    return Manifest(
        name=skill,
        version=document.get("version", ""),
        description=document["description"].strip(),
        tools=tools,
        hooks=tuple(dict.fromkeys(named)),
        requires=document.get("requires", NOTHING),
    )


def _tool(table: JSON) -> ToolSpec:
    given: dict[str, Any] = {key: value for key, value in table.items() if key in _FLAGS}
    for key in ("fallbacks", "permissions"):
        if key in given:
            given[key] = tuple(given[key])
    if "timeout" in given:
        given["timeout"] = _seconds(given["timeout"])
    if given.get("read_only"):
        given.setdefault("idempotent", True)
    return ToolSpec(
        name=table["name"],
        description=table["description"].strip(),
        entry=table.get("entry", ""),
        parameters=table.get("parameters"),
        flags=_flags(**given),
        examples=tuple(table.get("examples", ())),
    )


def _seconds(value: float | str) -> float:
    if not isinstance(value, str):
        return float(value)
    number, unit = re.fullmatch(r"([0-9.]+)([a-z]+)", value).groups()  # type: ignore[union-attr]  # the schema checked it
    return float(number) * _UNITS[unit]


def _contradictions(document: JSON, tools: tuple[ToolSpec, ...]) -> list[str]:
    wrong = []
    names = [tool.name for tool in tools]
    for tool in tools:
        if len(names) > 1 and names.count(tool.name) > 1:
            wrong.append(f"two tools are named {tool.name!r}; rename one")
        if tool.name in RESERVED:
            wrong.append(f"tool name {tool.name!r} belongs to a built-in tool; choose another")
        if tool.flags.read_only and tool.flags.destructive:
            wrong.append(f"tool {tool.name!r} is both read_only and destructive; keep one")
        if tool.flags.timeout is not None and tool.flags.timeout <= 0:
            wrong.append(f"tool {tool.name!r}: 'timeout' must be above 0 seconds")
    if "entry" not in document and not document.keys().isdisjoint(_SHORT):
        key = next(key for key in _SHORT if key in document)
        wrong.append(f"'{key}' stands outside [[tools]]; move it there or add 'entry'")
    return list(dict.fromkeys(wrong))

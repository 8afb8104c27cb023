"""Read the front matter of a SKILL.md as other tools do: leniently, and never in silence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import SkillError

MAX_CHARS = 64_000
_FENCE = re.compile(r"---[ \t]*(?:\n|\Z)")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_MERGE = re.compile(r"^(?:<{7}|>{7}) .*$", re.MULTILINE)
_READ = ("name", "description", "metadata", "allowed-tools")  # what we read is not guessed at
_END = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """A SKILL.md in two parts, with what its author should know."""

    fields: dict[str, Any]
    body: str
    warnings: tuple[str, ...] = ()


def parse(name: str, text: str) -> Page:
    """The front matter and the body; raises `SkillError` with the line when it cannot be read."""
    warnings: list[str] = []
    stripped = text.lstrip("\n \t")
    if stripped != text and stripped.startswith("---"):
        warnings.append("the front matter does not begin on the first line")
    front, body = split(name, stripped)
    if merge := _MERGE.search(front):
        line = stripped.count("\n", 0, stripped.index(merge[0])) + 1
        raise SkillError(f"{name}:{line}: holds the marks of an unfinished merge; resolve it")
    if (printable := _UNPRINTABLE.sub("", front)) != front:
        warnings.append("the front matter holds control characters; they are left out")
    fields, rescued = _load(name, printable)
    if rescued:
        warnings.append("a value stands without the quotes YAML asks for; it was read as text")
    warnings += _surprises(front, fields)
    return Page(fields, body, tuple(warnings))


def split(name: str, text: str) -> tuple[str, str]:
    """Front matter and body, without the fences."""
    start = _FENCE.match(text)
    if start is None:
        raise SkillError(
            f"{name}:1: has no front matter; begin with '---', name, description, '---'"
        )
    end = _END.search(text, start.end())
    if end is None:
        raise SkillError(f"{name}:1: the front matter is not closed; add a line '---'")
    front = text[start.end() : end.start()]
    if len(front) > MAX_CHARS:
        raise SkillError(f"{name}: the front matter has more than {MAX_CHARS:,} characters")
    return front, text[end.end() :].lstrip("\n")


def _load(name: str, front: str) -> tuple[dict[str, Any], bool]:
    import yaml  # 17 ms, and only wanted where there is a SKILL.md

    try:
        return _mapping(name, _safe(name, front)), False
    except yaml.YAMLError as error:
        try:
            return _mapping(name, _safe(name, _rescue(front))), True
        except yaml.YAMLError:
            raise SkillError(_fault(name, error)) from error
    except (ValueError, RecursionError) as error:
        raise SkillError(f"{name}: the front matter cannot be read: {error}") from error


def _safe(name: str, front: str) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if re.search(r"[&*!]", front):
        for event in yaml.parse(front, loader):
            if isinstance(event, yaml.AliasEvent):
                raise SkillError(f"{name}: YAML aliases are not read; write the value out")
    return yaml.load(front, loader)  # noqa: S506  # both are safe loaders: no tag runs anything


def _mapping(name: str, loaded: Any) -> dict[str, Any]:
    if not isinstance(loaded, dict):
        raise SkillError(f"{name}:2: the front matter must hold 'name: …' and 'description: …'")
    return {str(key): value for key, value in loaded.items()}


def _rescue(front: str) -> str:
    """Quotes the values of plain top-level lines: `description: Use when: asked`, `@x`, `%x`."""
    lines = []
    for line in front.split("\n"):
        item = re.match(r"([A-Za-z][\w-]*):[ \t]+(.*\S)\s*$", line)
        if item and (item[2][0] not in "\"'|>[{" or _is_flow_of_others(item[1], item[2])):
            value = item[2].replace("\\", "\\\\").replace('"', '\\"')
            line = f'{item[1]}: "{value}"'  # noqa: PLW2901  # the line, mended
        lines.append(line)
    return "\n".join(lines)


def _is_flow_of_others(key: str, value: str) -> bool:
    """`argument-hint: [date] [reason]` is text, and nothing of ours depends on it."""
    return value[0] in "[{" and key not in _READ


def _fault(name: str, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 2}" if mark else ""
    problem = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    fix = "close the bracket" if "or '" in problem else "put the value in quotes"
    if "start any token" in problem:
        fix = "indent with spaces, not tabs, and put values in quotes"
    return f"{name}{line}: the front matter is not YAML: {problem}; {fix}"


def _surprises(front: str, fields: dict[str, Any]) -> list[str]:
    found = []
    keys = re.findall(r"^([A-Za-z][\w-]*):", front, re.MULTILINE)
    found += [
        f"'{key}' appears twice; the last one counts"
        for key in sorted({k for k in keys if keys.count(k) > 1})
    ]
    comment = re.search(r"^description:[ \t]+[^\"'|>\n][^\n]*[ \t]#", front, re.MULTILINE)
    if comment and "#" not in str(fields.get("description")):
        found.append("the description is cut at ' #', which begins a comment; put it in quotes")
    return found

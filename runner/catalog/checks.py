"""Everything that can be said about a skill before a model meets it: `runner skills check`."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import SkillError
from ..types import NOTHING, Tool
from . import agentskills, hooknames, lint, parameters, source
from .assemble import HookSpecs
from .loader import compile_module, syntax_fault
from .registry import Registry
from .skill import Skill, printable

Level = Literal["error", "warning"]
MAX_BODY_LINES = 500
_NEXT_FILE = re.compile(r"; (?=[\w/.-]+\.py:\d+: )")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or could be better, and where."""

    path: str
    level: Level
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.level}: {self.message}"

    def to_dict(self) -> dict[str, str]:
        """The object of `runner skills check --json`."""
        return {"path": self.path, "level": self.level, "message": self.message}


def check(
    where: Registry | Sequence[Path],
    *,
    hookspecs: HookSpecs = NOTHING,
    environ: Mapping[str, str] = os.environ,
) -> list[Finding]:
    """Findings about every skill of a registry, or below some folders. Imports skill code.

    A path may be a skill's folder, a file in it or a root of skills.
    """
    if isinstance(where, Registry):
        while where.unexamined:
            where.refresh(())
        found = where.snapshot.skills or where.scan(thorough=True).skills
        return [finding for skill in found for finding in check_skill(skill, found, hookspecs)]
    findings: list[Finding] = []
    for path in where:
        findings += _check_path(path, hookspecs, environ)
    return findings


def root_of(path: Path) -> Path:
    """The root of skills that a path belongs to: a skill's folder, a file in it, or the root itself."""
    return _root(path)[0]


def check_skill(
    skill: Skill, among: Sequence[Skill] = (), hookspecs: HookSpecs = NOTHING
) -> list[Finding]:
    """Findings about one skill; `among` are the skills its fallbacks may name."""
    errors, warnings = _by_state(skill)
    if skill.state in ("ready", "stale"):
        errors += _wrong(skill, among, hookspecs)
        warnings += _could_be_better(skill)
    warnings += skill.warnings
    found = [
        *(_finding(skill, "error", one) for text in errors for one in _NEXT_FILE.split(text)),
        *(_finding(skill, "warning", text) for text in warnings),
    ]
    return list(dict.fromkeys(found))


def _finding(skill: Skill, level: Level, text: str) -> Finding:
    """The finding at the file its text begins with, which is then not said again."""
    named, colon, rest = text.partition(": ")
    file, _, line = named.partition(":")
    below = file.rpartition(f"{skill.location.name}/")[2]
    if not colon or not (skill.location / below).is_file():
        return Finding(printable(skill.path), level, text)
    where = f"line {line}: " if line else ""
    return Finding(printable(skill.location / below), level, f"{where}{rest}")


def _check_path(path: Path, hookspecs: HookSpecs, environ: Mapping[str, str]) -> Iterator[Finding]:
    if not path.exists():
        yield Finding(printable(path), "error", "there is no such file or folder")
        return
    root, one = _root(path)
    folder = path if path.is_dir() else path.parent
    registry = Registry([root], project=root.parent, environ=environ)
    found = registry.scan(thorough=True).skills
    if one:
        found = tuple(skill for skill in found if skill.location.name == folder.absolute().name)
    if not found:
        yield Finding(printable(path), "error", "there is no skill here; see: runner skills new")
    for skill in found:
        yield from check_skill(skill, registry.snapshot.skills, hookspecs)


def _root(path: Path) -> tuple[Path, bool]:
    """The root, and whether the path is one skill of it."""
    folder = (path if path.is_dir() else path.parent).absolute()
    listing = source.look(str(folder))
    one = bool(listing.manifests) or any("/" not in name for name in listing.modules)
    return (folder.parent if one else folder), one


def _by_state(skill: Skill) -> tuple[list[str], list[str]]:
    match skill.state:
        case "failed" | "stale":
            return [skill.reason, *_not_python(skill)], []
        case "ineligible" | "shadowed":
            told = skill.reason.startswith(skill.state)
            return [], [skill.reason if told else f"{skill.state}: {skill.reason}"]
        case _:
            return [], []


def _not_python(skill: Skill) -> list[str]:
    """The modules that do not compile; a skill's reason names its first fault alone."""
    try:
        files = source.read(str(skill.location), source.look(str(skill.location))).files
    except SkillError:
        return []
    found = []
    for name in files:
        if name.endswith(".py") and "/" not in name:
            try:
                compile_module(files, name, str(skill.location))
            except (SyntaxError, ValueError, RecursionError) as error:
                found.append(syntax_fault(name, error))
    return found


def _wrong(skill: Skill, among: Sequence[Skill], hookspecs: HookSpecs) -> list[str]:
    found = [*_hooks(skill, hookspecs)] if hookspecs else []
    found += _imports(skill)
    for tool in skill.tools:
        found += _schema(tool)
        found += _references(tool, among)
    if skill.body_path is not None:
        try:
            agentskills.skill_body(skill)
        except SkillError as error:
            found.append(str(error))
    return found


def _could_be_better(skill: Skill) -> list[str]:
    found = lint.page(skill.description) if skill.form == "agent-skill" else []
    for tool in skill.tools:
        found += lint.tool(tool)
        found += [
            f"tool {tool.name!r}: parameters: {text}"
            for text in parameters.strange(tool.parameters)
        ]
        flags = tool.flags
        if flags.retries and not flags.idempotent:
            found.append(f"tool {tool.name!r}: 'retries' has no effect without idempotent = true")
    if skill.form == "agent-skill":
        lines = agentskills.skill_body(skill).count("\n")
        if lines > MAX_BODY_LINES:
            found.append(
                f"the body has {lines} lines; keep it below {MAX_BODY_LINES} and move parts to files"
            )
    return found


def _imports(skill: Skill) -> list[str]:
    before = set(threading.enumerate())
    found = []
    try:
        for tool in skill.tools:
            tool.load()
        if skill.load_module:
            skill.load_module()
    except SkillError as error:
        found.append(str(error))
    mine = f"load {skill.name}"
    threads = [
        t for t in threading.enumerate() if t not in before and t.name != mine and t.is_alive()
    ]
    if threads:
        found.append(f"starts {len(threads)} thread(s) when it is imported; start them in the call")
    return found


def _schema(tool: Tool) -> list[str]:
    """The full metaschema and the examples; 0.75 ms a schema, so not at every start."""
    import jsonschema

    validator = jsonschema.Draft202012Validator
    try:
        validator.check_schema(tool.parameters)
    except jsonschema.SchemaError as error:
        return [f"tool {tool.name!r}: parameters{_at(error.absolute_path)}: {error.message:.200}"]
    return [
        f"tool {tool.name!r}: examples[{index}]{_at(fault.absolute_path)}: {fault.message:.200}"
        for index, example in enumerate(tool.examples)
        for fault in validator(tool.parameters).iter_errors(example)
    ]


def _at(path: Iterable[Any]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _references(tool: Tool, among: Sequence[Skill]) -> list[str]:
    known = {other.name for skill in among if skill.live for other in skill.tools}
    found = []
    for field, name in [
        *(("fallbacks", n) for n in tool.flags.fallbacks),
        ("reconcile", tool.flags.reconcile),
    ]:
        if not name or name in known:
            continue
        if ":" not in name:
            found.append(f"tool {tool.name!r}: {field} names {name!r}, and there is no such tool")
        elif tool.load_named:
            try:
                tool.load_named(name)
            except SkillError as error:
                found.append(f"tool {tool.name!r}: {field}: {error}")
    return found


def _hooks(skill: Skill, hookspecs: HookSpecs) -> list[str]:
    folder = str(skill.location)
    try:
        files = source.read(folder, source.look(folder)).files
    except SkillError as error:
        return [str(error)]
    return hooknames.faults(files, skill.hooks, hookspecs)

"""`runner skills list|show|check|new`: the skills on disk, before any model meets them."""

from __future__ import annotations

from pathlib import Path

import click

from ..catalog.registry import Registry
from ..catalog.skill import Skill, Snapshot
from ..config import Config
from ..errors import ConfigError, SkillError
from ..types import Tool
from .common import Common
from .options import command
from .text import dump, table

_PATH = click.Path(path_type=Path)
_FLAGS = ("read_only", "idempotent", "destructive", "open_world", "concurrent", "repeatable")


@command(
    "runner skills list", "runner skills list --json", "runner skills list --skills more/skills"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def list_(common: Common, as_json: bool) -> None:
    """All skills: their state, and why one is not ready. No skill code is imported."""
    found = scanned(common.load()).skills
    if as_json:
        common.console.json({"skills": [skill.to_dict() for skill in found]}, indent=2)
        return
    rows = [(s.name, s.state, ", ".join(t.name for t in s.tools) or s.form) for s in found]
    for skill, line in zip(found, table(rows), strict=True):
        common.console.answer(line)
        if skill.reason:
            common.console.answer(f"    {skill.reason}")
    if not found:
        common.console.note("no skills here; runner init writes some, runner skills new NAME one")


@command("runner skills show files", "runner skills show extract_config_items --json")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def show(common: Common, name: str, as_json: bool) -> None:
    """One skill with its tools and parameters; NAME is a skill or one of its tools."""
    skill = named(scanned(common.load()), name)
    if as_json:
        common.console.json(skill.to_dict(), indent=2)
        return
    lines = [f"{skill.name} ({skill.form}, {skill.state})", f"  {skill.path}"]
    lines += [f"  {text}" for text in (skill.description, skill.reason) if text]
    lines += [f"  warning: {text}" for text in skill.warnings]
    for tool in skill.tools:
        lines += ["", *_described(tool)]
    common.console.answer("\n".join(lines))


@command(
    "runner skills check",
    "runner skills check skills/my-skill --strict",
    "runner skills check --json",
)
@click.argument("paths", nargs=-1, type=_PATH, metavar="[PATH…]")
@click.option("--json", "as_json", is_flag=True, help="A list of {path, level, message}.")
@click.option("--strict", is_flag=True, help="Exit 1 for a warning, too.")
def check(common: Common, paths: tuple[Path, ...], as_json: bool, strict: bool) -> int:
    """What is wrong with skills, or could be better: one line each. Imports their code."""
    from ..catalog.checks import check as find
    from ..plugins import arguments_of_hooks

    where = paths or _registry(common.load())
    findings = find(where, hookspecs=arguments_of_hooks())
    if as_json:
        common.console.json([finding.to_dict() for finding in findings], indent=2)
    elif findings:
        common.console.answer("\n".join(map(str, findings)))
    levels = [finding.level for finding in findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    common.console.note(f"{errors} error(s), {warnings} warning(s)")
    return int(errors > 0 or (strict and warnings > 0))


@command("runner skills new word-count", "runner skills new review --form agent-skill")
@click.argument("name")
@click.argument("folder", metavar="[DIR]", required=False, type=_PATH)
@click.option("--form", type=click.Choice(["native", "json", "agent-skill"]), default="native")
def new(common: Common, name: str, folder: Path | None, form: str) -> None:
    """Write a skill that works, to change into your own. DIR: the first skills folder."""
    from ..catalog.scaffold import new as write

    roots = common.load().paths.skills
    home = folder or (roots[0] if roots else Path("skills"))
    try:
        written = write(home, name, form)  # type: ignore[arg-type] # click checked the choice
    except SkillError as error:
        raise ConfigError(str(error)) from error
    for path in written:
        common.console.answer(f"wrote {_near(path)}")
    common.console.note(f"next: runner skills check {_near(home / name)}")


def scanned(config: Config) -> Snapshot:
    """The skills of the config's folders, without importing them."""
    return _registry(config).snapshot


def _registry(config: Config) -> Registry:
    from ..plugins import arguments_of_hooks

    registry = Registry(
        config.paths.skills,
        project=config.project,
        hookspecs=arguments_of_hooks(),
    )
    registry.scan(thorough=True)
    return registry


def named(snapshot: Snapshot, name: str) -> Skill:
    """The skill of that name, or the one with a tool of that name; `ConfigError` with the nearest."""
    found = snapshot.skill(name)
    for skill in snapshot.skills:
        if found is None and any(tool.name == name for tool in skill.tools):
            found = skill
    if found is None:
        import difflib

        names = [n for s in snapshot.skills for n in (s.name, *(t.name for t in s.tools))]
        near = difflib.get_close_matches(name, names, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else "see: runner skills list"
        raise ConfigError(f"no skill or tool {name!r}; {hint}")
    return found


def _described(tool: Tool) -> list[str]:
    flags = [flag for flag in _FLAGS if getattr(tool.flags, flag)]
    flags += [f"needs {permission}" for permission in tool.flags.permissions]
    required = tool.parameters.get("required", ())
    lines = [f"  {tool.name}({', '.join(tool.parameters.get('properties', {}))})"]
    lines += [f"    {text}" for text in (tool.description, "; ".join(flags)) if text]
    for name, schema in tool.parameters.get("properties", {}).items():
        rest = dict(schema) if isinstance(schema, dict) else {"schema": schema}
        what = rest.pop("description", "")
        need = "" if name in required else " (optional)"
        lines.append(f"    {name}{need}: {what} {dump(rest)}".replace(":  ", ": "))
    lines += [f"    example: {dump(example)}" for example in tool.examples]
    return lines


def _near(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path

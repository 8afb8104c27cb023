"""`runner skills list|show|check|new`: the skills on disk, before any model meets them."""

from __future__ import annotations

from pathlib import Path

import click

from ..catalog.registry import Registry
from ..catalog.skill import Skill, Snapshot
from ..config import Config
from ..errors import ConfigError, SkillError
from .common import Common
from .options import command

_PATH = click.Path(path_type=Path)


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
    if not found:
        common.console.note("no skills here; runner init writes some, runner skills new NAME one")
        return
    from .skill_text import counted, listed

    console = common.console
    text = listed(found, columns=console.columns, colours=console.colours)
    console.draw(f"{text}\n")
    console.note(counted(found))


@command("runner skills show files", "runner skills show extract_config_items --json")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def show(common: Common, name: str, as_json: bool) -> None:
    """All about one skill: what the model sees and its cost, limits, permissions, place.

    NAME is a skill or one of its tools.
    """
    config = common.load()
    skill = named(scanned(config), name)
    if as_json:
        common.console.json(skill.to_dict(), indent=2)
        return
    from .skill_text import shown

    common.console.answer(shown(skill, config))


@command(
    "runner skills check",
    "runner skills check skills/my-skill skills/other --strict",
    "runner skills check skills/my-skill --watch",
    "runner skills check --json",
)
@click.argument("paths", nargs=-1, type=_PATH, metavar="[PATH…]")
@click.option("--json", "as_json", is_flag=True, help="A list of {path, level, message}.")
@click.option("--strict", is_flag=True, help="Exit 1 for a warning, too.")
@click.option("--watch", is_flag=True, help="Check again with each save, until Ctrl-C.")
def check(common: Common, paths: tuple[Path, ...], as_json: bool, strict: bool, watch: bool) -> int:
    """What is wrong with skills, or could be better: one line each. Imports their code.

    PATH is a skill's folder, a file in it, or a folder of skills; none: all of the config.
    """
    from .skill_checks import Checked, repeat

    for path in paths:
        _check_sort(path)
    config = common.load()
    where = paths or registry(config)
    checked = Checked(config, where, common.console, as_json=as_json, strict=strict)
    return repeat(checked) if watch else checked.once()


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
    for step in _next(name, form, _near(home / name)):
        common.console.note(step)


def _check_sort(path: Path) -> None:
    """`ConfigError` for a device, a pipe and their kin: the folder they lie in is no root of skills."""
    try:
        odd = path.exists() and not (path.is_dir() or path.is_file())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if odd:
        raise ConfigError(f"{path}: is no folder and no file; name a skill's folder")


def scanned(config: Config) -> Snapshot:
    """The skills of the config's folders, without importing them."""
    return registry(config).snapshot


def registry(config: Config) -> Registry:
    """A scanned registry of the config's folders."""
    from ..plugins import arguments_of_hooks

    found = Registry(
        config.paths.skills,
        project=config.project,
        disabled=config.plugins.disabled,
        hookspecs=arguments_of_hooks(),
    )
    found.scan(thorough=True)
    return found


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


def _next(name: str, form: str, folder: Path) -> list[str]:
    """What its author does next, as commands that work at once."""
    from ..catalog.scaffold import function_of

    steps = [
        f"next: change {folder}/{'SKILL.md' if form == 'agent-skill' else 'skill.py'}",
        f"      runner skills check {folder} --watch",
    ]
    if form == "agent-skill":
        return [*steps, f"      runner skills show {name}"]
    call = f'runner skills call {function_of(name)} --args \'{{"text": "one two two"}}\''
    return [*steps, f"      {call}"]


def _near(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path

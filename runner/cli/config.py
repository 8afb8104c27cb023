"""`runner config`: the settings in effect, each with its origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..config import Config, shown
from ..errors import ConfigError
from .common import Common
from .options import command
from .text import dump, table

Tables = dict[str, dict[str, dict[str, Any]]]


@command("runner config show", "runner config show limits.slots", "runner config show --json")
@click.argument("only", metavar="[TABLE[.KEY]]", required=False)
@click.option("--json", "as_json", is_flag=True, help="As {TABLE: {KEY: {value, origin}}}.")
def show(common: Common, only: str | None, as_json: bool) -> None:
    """Every setting with its value and where it comes from.

    The origin is one of default, file:PATH, env:NAME, option, set.
    """
    config = common.load()
    tables = shown(config)
    if only is not None:
        tables = _only(tables, only)
    common.console.note(_found(config))
    if as_json:
        common.console.json(tables, indent=2)
    else:
        common.console.answer("\n\n".join(_table(name, keys) for name, keys in tables.items()))


@command("runner config path")
def path(common: Common) -> int:
    """The config file in use; exit 1 when there is none and the defaults hold."""
    config = common.load()
    if config.file is None:
        common.console.note(_found(config))
        return 1
    common.console.answer(str(config.file))
    return 0


def _found(config: Config) -> str:
    """Which config is in use, and that it was found above where that is so."""
    if config.file is None:
        return "no config file: built-in defaults; runner init writes config/runner.toml"
    here = Path.cwd()
    above = here != config.project and here.is_relative_to(config.project)
    return f"config file: {config.file}" + (", of the project above this folder" if above else "")


def _only(tables: Tables, only: str) -> Tables:
    """One table, one key of it, or all roles; `ConfigError` when there is no such thing."""
    if only in tables:
        return {only: tables[only]}
    if only == "agents":
        return {name: keys for name, keys in tables.items() if name.startswith("agents.")} or {
            only: {}
        }
    for name, keys in tables.items():
        key = only.removeprefix(f"{name}.")
        if key != only and key in keys:
            return {name: {key: keys[key]}}
        if key != only:
            raise ConfigError(f"no key {key!r} in [{name}]; there are {', '.join(keys)}")
    raise ConfigError(f"no table {only!r}; there are {', '.join(tables)}, agents")


def _table(name: str, keys: dict[str, dict[str, Any]]) -> str:
    rows = [(f"{key} = {dump(one['value'])}", f"# {one['origin']}") for key, one in keys.items()]
    return "\n".join([f"[{name}]", *table(rows)])

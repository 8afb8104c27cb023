"""`runner config`: the settings in effect, each with its origin."""

from __future__ import annotations

from typing import Any

import click

from ..config import shown
from ..errors import ConfigError
from .common import Common
from .options import command
from .text import dump, table


@command("runner config show", "runner config show limits", "runner config show --json")
@click.argument("only", metavar="[TABLE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="As {TABLE: {KEY: {value, origin}}}.")
def show(common: Common, only: str | None, as_json: bool) -> None:
    """Every setting with its value and where it comes from.

    The origin is one of default, file:PATH, env:NAME, option, set.
    """
    tables = shown(common.load())
    if only is not None:
        if only not in tables:
            raise ConfigError(f"no table {only!r}; there are {', '.join(tables)}")
        tables = {only: tables[only]}
    if as_json:
        common.console.json(tables, indent=2)
    else:
        common.console.answer("\n\n".join(_table(name, keys) for name, keys in tables.items()))


@command("runner config path")
def path(common: Common) -> int:
    """The config file in use; exit 1 when there is none and the defaults hold."""
    file = common.load().file
    if file is None:
        common.console.note(
            "no config file: built-in defaults; runner init writes config/runner.toml"
        )
        return 1
    common.console.answer(str(file))
    return 0


def _table(name: str, keys: dict[str, dict[str, Any]]) -> str:
    rows = [(f"{key} = {dump(one['value'])}", f"# {one['origin']}") for key, one in keys.items()]
    return "\n".join([f"[{name}]", *table(rows)])

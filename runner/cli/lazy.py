"""Commands that are imported when they are used, so that `--help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command lies, and the line that `--help` of its group shows."""

    module: str
    name: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands come from a table and are imported one by one."""

    def __init__(self, *, table: Mapping[str, Lazy], **more: Any) -> None:
        super().__init__(**more)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the table's order, which is the order a user meets them."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        found: click.Command = getattr(import_module(entry.module), entry.name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name when there is no such command."""
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, self.table, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(self.table)}"
            ctx.fail(f"no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line each, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.table.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, line by line as they are."""
        write_examples(self.epilog, formatter)


class Command(click.Command):
    """A command whose help ends with examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, line by line as they are."""
        write_examples(self.epilog, formatter)


def write_examples(epilog: str | None, formatter: click.HelpFormatter) -> None:
    """The section with examples, never re-wrapped."""
    if epilog:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in epilog.splitlines()))

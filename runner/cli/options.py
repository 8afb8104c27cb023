"""The options every command takes, and the decorator that adds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .lazy import Command

_PATH = click.Path(path_type=Path)
_LISTED = ("sets", "skills")
_COUNTED = ("verbose", "quiet")


def shared_options() -> list[click.Parameter]:
    """The options of every command; they may stand before its name or after it."""
    return [
        click.Option(
            ["--set", "sets"],
            multiple=True,
            metavar="KEY=VALUE",
            help="Any config key, a TOML value; repeatable.",
        ),
        click.Option(
            ["--config"], type=_PATH, metavar="FILE", help="Instead of config/runner.toml."
        ),
        click.Option(
            ["--skills"],
            type=_PATH,
            multiple=True,
            metavar="DIR",
            help="Folders of skills; repeatable, replaces [paths] skills.",
        ),
        click.Option(["--workspace"], type=_PATH, metavar="DIR", help="The files tools may touch."),
        click.Option(["--state"], type=_PATH, metavar="DIR", help="Where sessions are kept."),
        click.Option(
            ["--model"], metavar="NAME", help='PROVIDER/MODEL, such as "ollama/qwen2.5:7b".'
        ),
        click.Option(["--debug"], is_flag=True, help="Log everything and show tracebacks."),
        click.Option(["-v", "--verbose"], count=True, help="Say more; -vv everything."),
        click.Option(["-q", "--quiet"], count=True, help="Only errors."),
    ]


def command(*examples: str, **more: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Makes a command of `function(common, …)`; it takes the shared options and gives an exit code."""

    def made(function: Callable[..., int | None]) -> click.Command:
        @click.pass_context
        def run(ctx: click.Context, /, **values: Any) -> int:
            from .common import open_common  # the config is not needed for --help

            common = open_common(merged(ctx.obj or {}, {n: values.pop(n) for n in _NAMES}))
            return function(common, **values) or 0

        run.__doc__ = function.__doc__
        run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        name = more.pop("name", function.__name__.removesuffix("_"))
        done = click.command(name=name, cls=Command, epilog="\n".join(examples), **more)(run)
        done.params += shared_options()
        return done

    return made


def keep(ctx: click.Context, values: dict[str, Any]) -> None:
    """Remembers what was said before the command's name."""
    ctx.obj = merged(ctx.obj or {}, {name: values[name] for name in _NAMES})


_NAMES = tuple(str(option.name) for option in shared_options())


def merged(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What was said before the name and after it: lists joined, counts added, else the later."""
    merged = dict(before)
    for name, value in after.items():
        if name in _LISTED:
            merged[name] = (*before.get(name, ()), *value)
        elif name in _COUNTED:
            merged[name] = before.get(name, 0) + value
        else:
            merged[name] = value or before.get(name)
    return merged

"""`runner trace show`: a session's events as they happened."""

from __future__ import annotations

from typing import Any

import click

from .common import Common
from .options import command
from .sessions import records_of
from .text import dump, one_line

_FIRST = ("seq", "time", "session", "turn", "iteration", "type")
_CHARS = 200


@command("runner trace show SESSION", "runner trace show SESSION --json")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="The events as JSON lines, whole.")
def show(common: Common, session: str, as_json: bool) -> None:
    """The events of a session, one line each: when, turn.iteration, type, the rest cut short."""
    records = records_of(common, session)
    if as_json:
        for record in records:
            common.console.json(record)
    else:
        common.console.answer("\n".join(map(line_of, records)))


def line_of(record: dict[str, Any]) -> str:
    """An event on one line."""
    where = f"{record.get('turn', 0)}.{record.get('iteration', 0)}"
    rest = {key: value for key, value in record.items() if key not in _FIRST}
    said = " ".join(f"{key}={_short(value)}" for key, value in rest.items())
    return f"{str(record.get('time', ''))[11:23]}  {where:<6}{record['type']:<20}{said}".rstrip()


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and " " not in value and value else dump(value)
    return one_line(text, _CHARS)

"""`runner sessions list|show|rm`: what is kept of earlier sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError, SessionError
from ..record.overview import overview
from ..record.trajectory import file_of, listed, read
from .common import Common
from .options import command
from .text import one_line, table

Record = dict[str, Any]
_GOAL_CHARS = 60
_RESULT_CHARS = 1000


@command("runner sessions list", "runner sessions list --json")
@click.option("--json", "as_json", is_flag=True, help="A list of objects on stdout.")
def list_(common: Common, as_json: bool) -> None:
    """The sessions in the state folder, newest first."""
    found = [asdict(overview(path)) for path in listed(common.load().paths.state)]
    if as_json:
        common.console.json(found, indent=2)
        return
    rows = [
        (s["id"], f"{s['turns']} turn(s)", s["status"], s["when"], one_line(s["goal"], _GOAL_CHARS))
        for s in found
    ]
    common.console.answer("\n".join(table(rows))) if rows else common.console.note("no sessions")


@command("runner sessions show SESSION", "runner sessions show SESSION --json")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="The records as one list.")
def show(common: Common, session: str, as_json: bool) -> None:
    """A session's conversation: goals, calls with their results, answers."""
    records = records_of(common, session)
    if as_json:
        common.console.json(records, indent=2)
    else:
        common.console.answer("\n".join(_conversation(records)))


@command("runner sessions rm SESSION", "runner sessions rm old-1 old-2")
@click.argument("ids", nargs=-1, required=True, metavar="SESSION…")
def rm(common: Common, ids: tuple[str, ...]) -> None:
    """Remove sessions: their record, and what stands beside it."""
    state = common.load().paths.state
    paths = [_existing(state, one) for one in ids]
    for path in paths:
        remove(path)
        common.console.note(f"removed {path.stem}")


def records_of(common: Common, session: str) -> list[Record]:
    """The records of a session; what could not be read is said on stderr."""
    loaded = read(_existing(common.load().paths.state, session))
    for sentence in loaded.damage:
        common.console.warn(sentence)
    return loaded.records


def remove(path: Path) -> None:
    """Removes one trajectory; `SessionError` when somebody is writing it."""
    from ..record.trajectory import Trajectory

    Trajectory(path).close()  # takes the lock, or says who has it
    for suffix in (".jsonl", ".torn", ".lock"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def _existing(state: Path, session: str) -> Path:
    try:
        path = file_of(state, session)
    except SessionError as error:
        raise ConfigError(str(error)) from error
    if not path.is_file():
        raise SessionError(f"no session {session!r} in {state}; see: runner sessions list")
    return path


def _conversation(records: list[Record]) -> Iterator[str]:
    for r in records:
        match r["type"]:
            case "turn.started":
                yield f"\n> {r.get('goal', '')}"
            case "model.replied" if r.get("calls") and r.get("text"):
                yield str(r["text"])
            case "tool.started":
                yield f"  {r.get('tool')} {one_line(str(r.get('arguments')), _RESULT_CHARS)}"
            case "tool.finished":
                text = str(r.get("content", ""))
                mark = "=" if r.get("ok") else f"! {r.get('kind')}:"
                yield f"  {r.get('tool')} {mark} {one_line(text, _RESULT_CHARS)}"
            case "turn.undone":
                yield f"[taken back: {one_line(str(r.get('goal', '')), _GOAL_CHARS)}]"
            case "turn.finished":
                status = r.get("status")
                yield str(r.get("answer", "")) + ("" if status == "completed" else f"\n[{status}]")

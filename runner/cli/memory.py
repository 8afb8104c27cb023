"""`runner memory list|search|edit|forget`: what is kept between sessions."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from ..errors import ConfigError
from ..memory import LONGEST, Memory, MemoryStore
from ..redact import Redactor
from .common import Common
from .options import command
from .text import one_line, table

_CHARS = 200


@command("runner memory list", "runner memory list --json")
@click.option("--json", "as_json", is_flag=True, help="A list of objects on stdout.")
def list_(common: Common, as_json: bool) -> None:
    """Everything that is remembered, oldest first."""
    _show(common, _store(common).all(), as_json=as_json)


@command('runner memory search "time zone"', "runner memory search zone --limit 20 --json")
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=10, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects on stdout.")
def search(common: Common, query: tuple[str, ...], limit: int, as_json: bool) -> None:
    """What fits best to any of the words."""
    _show(common, _store(common).search(" ".join(query), limit), as_json=as_json)


@command('runner memory edit 1f2e3d4c "The office is in Bern"')
@click.argument("key")
@click.argument("text")
def edit(common: Common, key: str, text: str) -> None:
    """Put another text in the place of what is remembered as KEY."""
    if not text.strip() or len(text) > LONGEST:
        raise ConfigError(f"a memory has 1 to {LONGEST} characters, not {len(text)}")
    if not _store(common).edit(key, Redactor(os.environ).text(text)):
        raise _missing(key)
    common.console.note(f"changed {one_line(key)}")


@command("runner memory forget 1f2e3d4c", "runner memory forget --all")
@click.argument("keys", nargs=-1, metavar="[KEY…]")
@click.option("--all", "everything", is_flag=True, help="Forget everything.")
def forget(common: Common, keys: tuple[str, ...], everything: bool) -> None:
    """Forget what is remembered under these keys."""
    if bool(keys) == everything:
        raise ConfigError("name the keys to forget, or --all")
    store = _store(common)
    known = [memory.key for memory in store.all()]
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise _missing(unknown[0])
    for key in known if everything else keys:
        store.forget(key)
        common.console.note(f"forgot {key}")


def _store(common: Common) -> MemoryStore:
    return MemoryStore(common.load().paths.state)


def _missing(key: str) -> ConfigError:
    return ConfigError(f"nothing is remembered as {key!r}; see: runner memory list")


def _show(common: Common, found: list[Memory], *, as_json: bool) -> None:
    if as_json:
        common.console.json([asdict(memory) for memory in found], indent=2)
        return
    rows = [(m.key, m.created[:10], ", ".join(m.tags), one_line(m.text, _CHARS)) for m in found]
    common.console.answer("\n".join(table(rows))) if rows else common.console.note(
        "nothing is remembered"
    )

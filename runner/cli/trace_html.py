"""`runner trace html`: a session as one self-contained page."""

from __future__ import annotations

from pathlib import Path

import click

from ..record.page import page
from ..record.turns import load
from .common import Common
from .options import command
from .written import FILE, write


@command("runner trace html SESSION", "runner trace html SESSION -o - > page.html", name="html")
@click.argument("session")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Default: SESSION.html.")
def html(common: Common, session: str, output: Path | None) -> None:
    """A page to look at a session: a timeline to search, to filter and to open row by row.

    It is one file that loads nothing and sends nothing. It shows all that the record holds:
    secrets were masked when it was written, but look before you give it away.
    """
    loaded = load(common.load().paths.state, session)
    write(
        common.console,
        page(loaded.records, session, loaded.damage),
        output or Path(f"{session}.html"),
    )

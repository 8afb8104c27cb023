"""`runner trace export`: a session as JSON, or as a test that runs it again."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..record.export import as_dict, as_test
from ..record.turns import load, story
from .common import Common
from .options import command
from .written import FILE, STDOUT, write


@command(
    "runner trace export SESSION > session.json",
    "runner trace export SESSION --test -o tests/test_session.py",
    name="export",
)
@click.argument("session")
@click.option("--test", "for_test", is_flag=True, help="A pytest file: these replies, your skills.")
@click.option("-o", "--output", type=FILE, metavar="FILE", default=STDOUT, help="Default: stdout.")
def export(common: Common, session: str, *, for_test: bool, output: Path) -> None:
    """A session for other programs: its turns as JSON, or a test that keeps them as they are.

    A turn that was taken back with /undo is marked in the JSON and taken back again in the test.
    """
    loaded = load(common.load().paths.state, session)
    for sentence in loaded.damage:
        common.console.warn(sentence)
    told = story(loaded.records, session)
    text = as_test(told) if for_test else json.dumps(as_dict(told), indent=2) + "\n"
    write(common.console, text, output)

"""`runner init`: a project to start from."""

from __future__ import annotations

from pathlib import Path

import click

from ..starter import write_project
from .common import Common
from .options import command


@command("runner init", "runner init my-project")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
def init(common: Common, folder: Path) -> None:
    """Write config/runner.toml and skills/ with the starter skills.

    A file that is there already is kept as it is.
    """
    kept: list[Path] = []
    written = write_project(folder, on_kept=kept.append)
    for path in written:
        common.console.answer(f"wrote {path}")
    for path in kept:
        common.console.note(f"kept  {path}, which is there already")
    there = "" if folder == Path() else f"cd {folder} && "
    common.console.note(f'next: {there}runner skills list; runner run "…"; runner doctor')

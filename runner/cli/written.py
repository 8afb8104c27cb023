"""Where a command's document goes: a file, or stdout when that is `-`."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import RecordError
from .console import Console

FILE = click.Path(path_type=Path, dir_okay=False)
STDOUT = Path("-")


def write(console: Console, text: str, output: Path) -> None:
    """Writes it, and says where to unless it went to stdout."""
    if output == STDOUT:
        console.answer(text)
        return
    try:
        output.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise RecordError(
            f"{output}: cannot be written ({error.strerror}); choose another file with -o"
        ) from error
    console.note(f"written to {output}")

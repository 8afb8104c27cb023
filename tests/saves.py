"""The ways editors and tools save a file. Nothing but the standard library: peers are measured with them, too."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path


def in_place(file: Path, text: str) -> None:
    """Truncates the file and writes it."""
    file.write_text(text)


def atomic(file: Path, text: str) -> None:
    """Writes a hidden file beside it and renames that."""
    beside = file.with_name(f".{file.name}.tmp")
    beside.write_text(text)
    beside.replace(file)


def atomic_from_elsewhere(file: Path, text: str) -> None:
    """Renames a file from another folder over it."""
    elsewhere = file.parents[2] / "made-elsewhere.py"
    elsewhere.write_text(text)
    elsewhere.replace(file)


def jetbrains(file: Path, text: str) -> None:
    """As IDEs of that family do: new file, old one aside, two renames."""
    new, old = (
        file.with_name(f"{file.name}___jb_tmp___"),
        file.with_name(f"{file.name}___jb_old___"),
    )
    new.write_text(text)
    file.rename(old)
    new.rename(file)
    old.unlink()


def vim(file: Path, text: str) -> None:
    """Probes the folder, keeps a backup, writes anew."""
    probe = file.with_name("4913")
    probe.touch()
    probe.unlink()
    backup = file.with_name(f"{file.name}~")
    file.rename(backup)
    file.write_text(text)
    backup.unlink()


def sed(file: Path, text: str) -> None:
    """`sed -i`."""
    subprocess.run(
        ["sed", "-i", f"s/return .*/return {text.rsplit(maxsplit=1)[-1]}/", str(file)], check=True
    )


def deleted_and_made(file: Path, text: str) -> None:
    """Deletes the file and makes it again."""
    file.unlink()
    file.write_text(text)


def in_pieces(file: Path, text: str) -> None:
    """Writes a character at a time."""
    with file.open("w") as handle:
        for character in text:
            handle.write(character)
            handle.flush()


def same_time_as_before(file: Path, text: str) -> None:
    """Writes it and sets back its time, as `cp -p` does."""
    before = file.stat()
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def an_hour_ago(file: Path, text: str) -> None:
    """Replaces it by a file that is older."""
    beside = file.with_name("new.tmp")
    beside.write_text(text)
    os.utime(beside, (time.time() - 3600, time.time() - 3600))
    beside.replace(file)


SAVES = [
    in_place,
    atomic,
    atomic_from_elsewhere,
    jetbrains,
    vim,
    sed,
    deleted_and_made,
    in_pieces,
    same_time_as_before,
    an_hour_ago,
]

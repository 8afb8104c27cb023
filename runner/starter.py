"""What comes with the program: starter skills, a config, and the demo's documents."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from .errors import ConfigError

DEMO_GOAL = (
    "Find every line with API_KEY in the documents, drop duplicates, and make a table by file."
)
_HERE = Path(__file__).resolve().parent


def write_project(target: Path, on_kept: Callable[[Path], None] = lambda _path: None) -> list[Path]:
    """Writes config and starter skills below a folder; gives the files it wrote.

    A file that is there already is never touched: `on_kept` is told of it.
    """
    written = []
    for source, below in _project_files():
        place = target / below
        if place.exists() or place.is_symlink():
            on_kept(place)
            continue
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
        except OSError as error:
            raise ConfigError(f"{place}: cannot be written: {error.strerror}") from error
        written.append(place)
    return written


def starter_skills() -> Path:
    """The folder with the starter skills, in an installed package as in a checkout."""
    return _shipped("skills")


def starter_config() -> Path:
    """The config file that a new project begins with."""
    return _shipped("config") / "runner.toml"


def demo_documents() -> Path:
    """The workspace of `runner demo`."""
    return _HERE / "demo" / "documents"


def demo_script() -> Path:
    """What the scripted model says in `runner demo`."""
    return _HERE / "demo" / "script.json"


def _project_files() -> Iterator[tuple[Path, Path]]:
    """Each shipped file, and its place in a project."""
    yield starter_config(), Path("config", "runner.toml")
    root = starter_skills()
    for skill in sorted(root.glob("*/skill.toml")):
        for file in sorted(skill.parent.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file, Path("skills", file.relative_to(root))


def _shipped(name: str) -> Path:
    """A wheel holds the two folders inside the package; a checkout has them beside it."""
    packed = _HERE / "_starter" / name
    return packed if packed.is_dir() else _HERE.parent / name

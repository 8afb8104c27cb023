"""The starter skills' file tools and the two sums, as plain functions other agents can take."""

from __future__ import annotations

from pathlib import Path

FOLDER = [Path()]
USED: list[str] = []


def _at(path: str) -> Path:
    place = (FOLDER[0] / path).resolve()
    if not place.is_relative_to(FOLDER[0].resolve()):
        raise ValueError(f"{path!r} is outside the workspace")
    return place


def list_files(path: str = ".") -> str:
    """Names of the files and folders in a folder of the workspace. Use it first, to find out which files exist.

    Args:
        path: Folder below the workspace; '.' is the workspace itself
    """
    USED.append("list_files")
    if not _at(path).is_dir():
        return f"no folder {path!r}. The folder '.' holds: {list_files('.')}"
    root = FOLDER[0].resolve()
    found = sorted(_at(path).iterdir())
    return "\n".join(p.relative_to(root).as_posix() + "/" * p.is_dir() for p in found) or "(empty)"


def read_file(path: str, offset: int = 1, limit: int = 500) -> str:
    """The text of a file with line numbers, from a line on.

    Args:
        path: File below the workspace, as list_files gives it
        offset: First line to show, counted from 1
        limit: How many lines to show
    """
    USED.append("read_file")
    if not _at(path).is_file():
        return f"no file {path!r}. The folder '.' holds: {list_files('.')}"
    lines = _at(path).read_text().splitlines()
    page = lines[offset - 1 : offset - 1 + limit]
    return "\n".join(f"{n}\t{line}" for n, line in enumerate(page, start=offset))


def search_files(text: str, path: str = ".") -> str:
    """Lines that contain a text, in all text files below a folder, as 'path:line: text'.

    Args:
        text: Text to look for within a line
        path: Folder or file below the workspace
    """
    USED.append("search_files")
    root, start = FOLDER[0].resolve(), _at(path)
    files = [start] if start.is_file() else sorted(p for p in start.rglob("*") if p.is_file())
    hits = [
        f"{file.relative_to(root).as_posix()}:{number}: {line}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if text in line
    ]
    return "\n".join(hits) or f"no line contains {text!r}"


def write_file(path: str, content: str) -> str:
    """Writes a whole text file; makes its folders. Use it for new files.

    Args:
        path: File below the workspace
        content: The complete new text
    """
    USED.append("write_file")
    _at(path).parent.mkdir(parents=True, exist_ok=True)
    _at(path).write_text(content)
    return f"created {path}"


def edit_file(path: str, old: str, new: str) -> str:
    """Replaces one piece of text in a file with another. The old text must occur exactly once.

    Args:
        path: File below the workspace
        old: The text to replace, exactly as in the file
        new: The text to put there
    """
    USED.append("edit_file")
    if not _at(path).is_file():
        return f"no file {path!r}"
    text = _at(path).read_text()
    if text.count(old) != 1:
        return f"not edited: the old text occurs {text.count(old)} times"
    _at(path).write_text(text.replace(old, new))
    return f"edited {path}"


def run_command(command: str) -> str:
    """Runs a shell command in the workspace. Use it for tests and builds; not to read or edit files.

    Args:
        command: The command line
    """
    USED.append("run_command")
    return f"exit code 127: {command.split(maxsplit=1)[0] if command.split() else ''} is not available here"


def add(a: float, b: float) -> str:
    """The sum of two numbers. Use it to add numbers exactly.

    Args:
        a: First number
        b: Second number
    """
    USED.append("add")
    return f"{a + b:.10g}"


def convert_temperature(degrees: float, to: str) -> str:
    """Converts a temperature to the other scale.

    Args:
        degrees: The temperature to convert
        to: Scale of the result, 'celsius' or 'fahrenheit'
    """
    USED.append("convert_temperature")
    if to.lower() == "fahrenheit":
        return f"{degrees * 9 / 5 + 32:.10g} degrees Fahrenheit"
    return f"{(degrees - 32) * 5 / 9:.10g} degrees Celsius"


TOOLS = (
    list_files, read_file, search_files, write_file, edit_file, run_command, add,
    convert_temperature,
)  # fmt: skip

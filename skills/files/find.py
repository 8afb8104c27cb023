"""Find files and text in the workspace, without reading more than was asked for."""

import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from runner import SkillContext

from .nearest import missing, name_of, odd, shown
from .text import decoded, is_binary, lines_of

MAX_LISTED = 200
MAX_WALKED = 50_000
MAX_MATCHES = 100
MAX_LINE_CHARS = 300
MAX_NUMBERS = 10
MAX_SEARCHED_BYTES = 5_000_000
SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})
Found = dict[tuple[str, str], list[int]]  # file and line, without white space around it → where


def list_files(
    ctx: SkillContext, path: str = ".", pattern: str = "", recursive: bool = False
) -> str:
    """The paths in a folder, one a line, relative to the workspace."""
    folder = ctx.path(path).resolve()
    if folder.is_file():
        return name_of(ctx, folder)
    if not folder.is_dir():
        raise missing(ctx, path, "folder")
    deep = recursive or "**" in pattern or "/" in pattern
    names: list[str] = []
    more = hidden = 0
    for entry in _walk(ctx, folder, deep=deep):
        if is_hidden(entry.name) and not pattern.startswith("."):
            hidden += 1
        elif pattern and not _matches(ctx, folder, entry, pattern):
            continue
        elif len(names) < MAX_LISTED:
            names.append(name_of(ctx, Path(entry.path)) + ("/" if _is_folder(entry) else ""))
        else:
            more += 1
    return "\n".join([*names, *_list_notes(name_of(ctx, folder), names, pattern, more, hidden)])


def search_files(text: str, ctx: SkillContext, path: str = ".", pattern: str = "") -> str:
    """The different lines that contain a text, as `path:line: text`."""
    start = ctx.path(path).resolve()
    if not start.exists() or odd(start):
        raise missing(ctx, path, "file or folder")
    exact: Found = {}
    loose: Found = {}
    searched = 0
    for file in _searchable(ctx, start, pattern):
        searched += 1
        name = name_of(ctx, file)
        for number, line in enumerate(_lines(file), start=1):
            if text in line:
                exact.setdefault((name, line.strip()), []).append(number)
            elif len(loose) <= MAX_MATCHES and text.casefold() in line.casefold():
                loose.setdefault((name, line.strip()), []).append(number)
        if len(exact) > MAX_MATCHES:
            break
    if exact:
        return "\n".join(_capped(exact, text))
    nothing = f"no line contains {text!r}; {searched} files below {name_of(ctx, start)!r} searched"
    if loose:
        return "\n".join([f"{nothing}. In other upper and lower case:", *_capped(loose, text)])
    return f"{nothing}. Try a shorter text, or list_files to see what is there."


def is_hidden(name: str) -> bool:
    """True for what nobody means by "the files of a project"."""
    return name.startswith(".") or name in SKIPPED


def _walk(ctx: SkillContext, folder: Path, *, deep: bool) -> Iterator[os.DirEntry[str]]:
    """Entries sorted by name, a folder's own before those of the next; links are not followed."""
    waiting = [folder]
    walked = 0
    while waiting and walked < MAX_WALKED and not ctx.cancelled():
        try:
            with os.scandir(waiting.pop()) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue  # unreadable, or gone meanwhile: the other folders still count
        walked += len(entries)
        yield from entries
        if deep:
            below = [Path(e.path) for e in entries if _is_folder(e) and not is_hidden(e.name)]
            waiting.extend(reversed(below))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _matches(ctx: SkillContext, folder: Path, entry: os.DirEntry[str], pattern: str) -> bool:
    """Whether the name, or the path below the folder or the workspace, matches."""
    pattern = pattern.removeprefix("./").removeprefix("**/")
    below = Path(entry.path).relative_to(folder).as_posix()
    return any(
        fnmatch(name, pattern.replace("**/", "*"))
        for name in (entry.name, below, name_of(ctx, Path(entry.path)))
    )


def _list_notes(
    folder: str, names: list[str], pattern: str, more: int, hidden: int
) -> Iterator[str]:
    if not names and pattern:
        yield f"[nothing in {folder!r} matches {pattern!r}; try without pattern, or recursive=true]"
    elif not names:
        yield f"[{folder!r} is empty]" if not hidden else f"[{folder!r} holds only hidden entries]"
    if more:
        yield f"[{more} more; give a pattern, or list one of the folders]"
    if hidden:
        yield f"[{hidden} hidden entries left out]"


def _searchable(ctx: SkillContext, start: Path, pattern: str) -> Iterator[Path]:
    if start.is_file():
        yield start
        return
    for entry in _walk(ctx, start, deep=True):
        if is_hidden(entry.name) or not entry.is_file(follow_symlinks=False):
            continue
        if not pattern or _matches(ctx, start, entry, pattern):
            yield Path(entry.path)


def _lines(file: Path) -> list[str]:
    """The file's lines; none when it is binary, too large, or not a plain file any more.

    Does not use `ctx.read_bytes`: a file that was merely searched does not count as read.
    """
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    with os.fdopen(handle, "rb") as stream:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_SEARCHED_BYTES:
            return []
        data = stream.read(MAX_SEARCHED_BYTES)
    return [] if is_binary(data) else lines_of(decoded(str(file), data).content)


def _clipped(line: str, text: str) -> str:
    """The line, or the part of a long one around the text."""
    if len(line) <= MAX_LINE_CHARS:
        return shown(line)
    at = max(0, line.casefold().find(text.casefold()) - MAX_LINE_CHARS // 3)
    return shown(f"…{line[at : at + MAX_LINE_CHARS]}…")


def _capped(found: Found, text: str) -> list[str]:
    """`path:line: text`, equal lines of a file together as `path:1,3: text`."""
    lines = []
    for (name, line), numbers in list(found.items())[:MAX_MATCHES]:
        more = f",… ({len(numbers)} lines)" if len(numbers) > MAX_NUMBERS else ""
        shown_numbers = ",".join(map(str, numbers[:MAX_NUMBERS]))
        lines.append(f"{name}:{shown_numbers}{more}: {_clipped(line, text)}")
    if len(found) > MAX_MATCHES:
        lines.append(f"[more than {MAX_MATCHES} lines; give a path or a pattern]")
    return lines

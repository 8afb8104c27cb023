"""Find files and text in the workspace, without reading more than was asked for."""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from runner import SkillContext

from .inside import Entry, entries, read, sort_of
from .nearest import missing, name_of, shown
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
    folder = ctx.path(path)
    sort = sort_of(ctx, folder)
    if sort == "file":
        return name_of(ctx, folder)
    if sort != "folder":
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
            names.append(name_of(ctx, entry.path) + "/" * (entry.sort == "folder"))
        else:
            more += 1
    return "\n".join([*names, *_list_notes(name_of(ctx, folder), names, pattern, more, hidden)])


def search_files(text: str, ctx: SkillContext, path: str = ".", pattern: str = "") -> str:
    """The different lines that contain a text, as `path:line: text`."""
    start = ctx.path(path)
    if sort_of(ctx, start) not in {"file", "folder"}:
        raise missing(ctx, path, "file or folder")
    exact: Found = {}
    loose: Found = {}
    searched = 0
    for file in _searchable(ctx, start, pattern):
        searched += 1
        name = name_of(ctx, file)
        for number, line in enumerate(_lines(ctx, file), start=1):
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


def _walk(ctx: SkillContext, folder: Path, *, deep: bool) -> Iterator[Entry]:
    """Entries sorted by name, a folder's own before those of the next; links are not followed."""
    waiting = [folder]
    walked = 0
    while waiting and walked < MAX_WALKED and not ctx.cancelled():
        found = entries(ctx, waiting.pop())
        walked += len(found)
        yield from found
        if deep:
            below = [e.path for e in found if e.sort == "folder" and not is_hidden(e.name)]
            waiting.extend(reversed(below))


def _matches(ctx: SkillContext, folder: Path, entry: Entry, pattern: str) -> bool:
    """Whether the name, or the path below the folder or the workspace, matches."""
    pattern = pattern.removeprefix("./").removeprefix("**/")
    below = entry.path.relative_to(folder).as_posix()
    return any(
        fnmatch(name, pattern.replace("**/", "*"))
        for name in (entry.name, below, name_of(ctx, entry.path))
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
    if sort_of(ctx, start) == "file":
        yield start
        return
    for entry in _walk(ctx, start, deep=True):
        if is_hidden(entry.name) or entry.sort != "file":
            continue
        if not pattern or _matches(ctx, start, entry, pattern):
            yield entry.path


def _lines(ctx: SkillContext, file: Path) -> list[str]:
    """The file's lines; none when it is binary or too large. It does not count as read."""
    data = read(ctx, file, MAX_SEARCHED_BYTES)
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

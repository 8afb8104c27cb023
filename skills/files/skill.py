"""Read, write and edit the text files of the workspace."""

import re
import stat
from difflib import get_close_matches
from pathlib import Path

from runner import SkillContext, ToolError

from .inside import root_of, sort_of, state_of
from .nearest import missing, name_of
from .text import Text, decoded, lines_of

MAX_LINES = 500
MAX_CHARS = 20_000
MAX_BYTES = 10_000_000
MAX_COMPARED_CHARS = 500
MAX_NUMBERS = 10


def read_file(path: str, ctx: SkillContext, offset: int = 1, limit: int = MAX_LINES) -> str:
    """Numbered lines of a file, after a line that says which of how many these are."""
    name = name_of(ctx, _existing(path, ctx))
    lines = lines_of(decoded(path, ctx.read_bytes(path)).content)
    if not lines:
        return f"{name} is empty"
    if offset > len(lines):
        raise ToolError(f"{name} has {len(lines)} lines; there is no line {offset}")
    page: list[str] = []
    room = MAX_CHARS
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        room -= len(line) + 8
        if room < 0 and page:
            break
        page.append(f"{number}\t{line}")
    last = offset + len(page) - 1
    asked = len(page) == limit < MAX_LINES  # so many lines were wanted, and no more
    go_on = f"; read on with offset={last + 1}" if last < len(lines) and not asked else ""
    return "\n".join([f"{name}, lines {offset}-{last} of {len(lines)}{go_on}", *page])


def write_file(path: str, content: str, ctx: SkillContext) -> str:
    """Writes the whole file, unless that would overwrite something nobody has looked at."""
    file = ctx.path(path, write=True)
    sort = sort_of(ctx, file)
    if sort == "folder":
        raise ToolError(f"{path!r} is a folder; give the path of a file in it")
    if sort not in {"", "file"}:
        raise missing(ctx, path, "file")
    if sort and (reason := ctx.stale(path)):
        raise ToolError(
            f"not written: {reason}. Call read_file with path {path!r}, then decide: "
            "edit_file for a change, or write_file again to replace it all."
        )
    _check_folders(path, file, ctx)
    ctx.write_bytes(path, content.encode())
    count = len(lines_of(content))
    return f"{'replaced' if sort else 'created'} {name_of(ctx, file)}, {count} lines"


def edit_file(
    path: str,
    old: str,
    new: str,
    ctx: SkillContext,
    all: bool = False,  # noqa: A002 - the plainest word for a model
) -> str:
    """Replaces a text that occurs exactly once, or every occurrence; no old text adds at the end.

    Who knows the one text to replace need not have read the file, but must not have read another
    one. Every occurrence is replaced only in a file that was read: nobody has seen them all else.
    """
    file = ctx.path(path, write=True)
    _existing(path, ctx)
    if (reason := ctx.stale(path)) and (all or "changed" in reason):
        raise ToolError(f"not edited: {reason}. Call read_file with path {path!r} first.")
    if old == new:
        raise ToolError("not edited: old and new are the same text")
    text = decoded(path, ctx.read_bytes(path))
    if not old:
        return _added(path, text, new, ctx)
    found = list(_pattern(old).finditer(text.content))
    numbers = [text.content.count("\n", 0, match.start()) + 1 for match in found]
    if not found:
        raise ToolError(f"not edited: {_why_not_found(path, old, text)}")
    if len(found) > 1 and not all:
        raise ToolError(
            f"not edited: the old text occurs {len(found)} times, at lines {_some(numbers)}. "
            "Add the lines around it so that it is unique, or set all to true."
        )
    ctx.write_bytes(path, _replaced(path, text, old, new))
    return f"edited {name_of(ctx, file)}: {len(found)} replaced, at lines {_some(numbers)}"


def _added(path: str, text: Text, new: str, ctx: SkillContext) -> str:
    """The new text as further lines of the file."""
    between = "\n" if text.content and not text.content.endswith(("\n", "\r")) else ""
    added = (between + new.replace("\r\n", "\n").rstrip("\n") + "\n").replace("\n", text.newline)
    ctx.write_bytes(path, _encoded(path, text, text.content + added))
    return f"added {len(lines_of(new))} lines at the end of {name_of(ctx, ctx.path(path))}"


def _existing(path: str, ctx: SkillContext) -> Path:
    file = ctx.path(path)
    state = state_of(ctx, file)
    if state is None or not stat.S_ISREG(state.st_mode):
        raise missing(ctx, path, "file")
    if (size := state.st_size) > MAX_BYTES:
        raise ToolError(f"{path} has {size:,} bytes, over {MAX_BYTES:,}; use search_files on it")
    return file


def _check_folders(path: str, file: Path, ctx: SkillContext) -> None:
    """The runner makes the folders of a new file; what stands in their way is named here."""
    for part in file.parents:
        sort = sort_of(ctx, part) if part.is_relative_to(root_of(ctx)) else "folder"
        if sort == "folder":
            return
        if sort:
            kind = "a file" if sort == "file" else sort
            where = name_of(ctx, part)
            raise ToolError(f"cannot write {path!r}: {where!r} is {kind}, not a folder")


def _pattern(old: str) -> re.Pattern[str]:
    """Matches the text whatever the file's line endings are."""
    return re.compile(r"\r?\n".join(map(re.escape, old.replace("\r\n", "\n").split("\n"))))


def _replaced(path: str, text: Text, old: str, new: str) -> bytes:
    replacement = new.replace("\r\n", "\n").replace("\n", text.newline)
    return _encoded(path, text, _pattern(old).sub(lambda _match: replacement, text.content))


def _encoded(path: str, text: Text, content: str) -> bytes:
    try:
        return text.encoded(content)
    except UnicodeEncodeError as error:
        bad = content[error.start : error.end]
        raise ToolError(f"not edited: {path} is {text.encoding} and cannot hold {bad!r}") from error


def _why_not_found(path: str, old: str, text: Text) -> str:
    """The likeliest reason: line numbers, white space, or a line that is only similar."""
    wanted = [line for line in lines_of(old) if line.strip()]
    if wanted and all(re.match(r"\s*\d+\t", line) for line in wanted):
        return "the old text begins with line numbers; leave them out"
    lines = lines_of(text.content)[:5_000]
    first = " ".join(wanted[0].split()) if wanted else ""
    for number, line in enumerate(lines, start=1):
        if first and " ".join(line.split()) == first:
            return (
                f"the old text is not in {path}, but line {number} begins like it: {line!r}. "
                "White space or the lines after it differ; copy them exactly."
            )
    short = [line.strip() for line in lines if len(line) < MAX_COMPARED_CHARS]
    near = get_close_matches(first, short, n=1)
    hint = f"The most similar line is {near[0]!r}." if near else "Read the file again."
    return f"the old text is not in {path}. {hint}"


def _some(numbers: list[int]) -> str:
    more = " …" if len(numbers) > MAX_NUMBERS else ""
    return ", ".join(map(str, numbers[:MAX_NUMBERS])) + more

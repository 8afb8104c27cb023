"""Say what is there, when what was asked for is not."""

import os
from difflib import get_close_matches
from pathlib import Path

from runner import SkillContext, ToolError

from .inside import entries, root_of, sort_of

MAX_NAMED = 20
MAX_LOOKED_AT = 5_000


def missing(ctx: SkillContext, path: str, what: str) -> ToolError:
    """The error for a path that is not there: the likely path, and what the nearest folder holds."""
    wanted = ctx.path(path)
    sort = sort_of(ctx, wanted)
    if sort == "folder":
        return ToolError(f"{path!r} is a folder, not a {what}. {_inside(ctx, wanted)}")
    above = (p for p in wanted.parents if sort_of(ctx, p) == "folder")
    folder = next(above, root_of(ctx))
    if sort not in {"", "file"}:
        holdings = _holdings(ctx, folder)
        return ToolError(f"{path!r} is {sort}, not a {what}; it holds no text. {holdings}")
    problem = f"{path!r} is not a {what}" if sort else f"no {what} {path!r}"
    likely = _likely(ctx, folder, wanted.name)
    hint = f"; did you mean {' or '.join(map(repr, likely))}?" if likely else "."
    return ToolError(f"{problem}{hint} {_holdings(ctx, folder)}")


def _inside(ctx: SkillContext, folder: Path) -> str:
    """What a folder holds; its only file as the likely one."""
    files = [e for e in entries(ctx, folder) if e.sort == "file" and not e.name.startswith(".")]
    if len(files) == 1:
        return f"Did you mean {name_of(ctx, files[0].path)!r}?"
    return _holdings(ctx, folder)


def name_of(ctx: SkillContext, path: Path) -> str:
    """A resolved path as the model may pass it on: relative to the workspace."""
    return shown(os.path.relpath(path, root_of(ctx)).replace(os.sep, "/"))


def shown(text: str) -> str:
    """Text without control characters or undecodable bytes; each is written as an escape."""
    plain = "".join(c if c.isprintable() or c == "\t" else _escape(c) for c in text)
    return plain.encode("utf-8", "backslashreplace").decode()


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _likely(ctx: SkillContext, folder: Path, name: str) -> list[str]:
    """Entries of the folder with a similar name, else files of that name anywhere."""
    beside = get_close_matches(name, [e.name for e in entries(ctx, folder)], n=2, cutoff=0.7)
    if beside:
        return [name_of(ctx, folder / n) for n in beside]
    return [name_of(ctx, p) for p in _elsewhere(ctx, name)]


def _elsewhere(ctx: SkillContext, name: str) -> list[Path]:
    found: list[Path] = []
    looked_at = 0
    waiting = [root_of(ctx)]
    while waiting and len(found) < 2 and looked_at <= MAX_LOOKED_AT:  # noqa: PLR2004 - two to name
        held = entries(ctx, waiting.pop())
        looked_at += len(held)
        found += [e.path for e in held if e.name.casefold() == name.casefold()]
        below = [e for e in held if e.sort == "folder" and not e.name.startswith(".")]
        waiting.extend(e.path for e in reversed(below) if e.name != "node_modules")
    return found[:2]


def _holdings(ctx: SkillContext, folder: Path) -> str:
    held = [e for e in entries(ctx, folder) if not e.name.startswith(".")]
    names = [name_of(ctx, e.path) + "/" * (e.sort == "folder") for e in held[:MAX_NAMED]]
    where = name_of(ctx, folder)
    if not names:
        return f"The folder {where!r} is empty."
    more = f" and {len(held) - MAX_NAMED} more" if len(held) > MAX_NAMED else ""
    return f"The folder {where!r} holds: {', '.join(names)}{more}."

"""Say what is there, when what was asked for is not."""

import os
import stat
from difflib import get_close_matches
from pathlib import Path

from runner import SkillContext, ToolError

MAX_NAMED = 20
MAX_LOOKED_AT = 5_000
ODD = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def missing(ctx: SkillContext, path: str, what: str) -> ToolError:
    """The error for a path that is not there: the likely path, and what the nearest folder holds."""
    wanted = ctx.path(path).resolve()
    if wanted.is_dir():
        return ToolError(f"{path!r} is a folder, not a {what}. {_inside(ctx, wanted)}")
    folder = next((p for p in wanted.parents if p.is_dir()), ctx.workspace.resolve())
    if kind := odd(wanted):
        holdings = _holdings(ctx, folder)
        return ToolError(f"{path!r} is {kind}, not a {what}; it holds no text. {holdings}")
    problem = f"{path!r} is not a {what}" if wanted.exists() else f"no {what} {path!r}"
    likely = _likely(ctx, folder, wanted.name)
    hint = f"; did you mean {' or '.join(map(repr, likely))}?" if likely else "."
    return ToolError(f"{problem}{hint} {_holdings(ctx, folder)}")


def odd(path: Path) -> str:
    """What a path leads to when that is neither a file nor a folder; opening it could wait for ever."""
    try:
        return ODD.get(stat.S_IFMT(path.stat().st_mode), "")
    except OSError:
        return ""


def _inside(ctx: SkillContext, folder: Path) -> str:
    """What a folder holds; its only file as the likely one."""
    files = [e for e in _entries(folder) if e.is_file() and not e.name.startswith(".")]
    if len(files) == 1:
        return f"Did you mean {name_of(ctx, files[0])!r}?"
    return _holdings(ctx, folder)


def name_of(ctx: SkillContext, path: Path) -> str:
    """A resolved path as the model may pass it on: relative to the workspace."""
    return shown(os.path.relpath(path, ctx.workspace.resolve()).replace(os.sep, "/"))


def shown(text: str) -> str:
    """Text without control characters or undecodable bytes; each is written as an escape."""
    plain = "".join(c if c.isprintable() or c == "\t" else _escape(c) for c in text)
    return plain.encode("utf-8", "backslashreplace").decode()


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _likely(ctx: SkillContext, folder: Path, name: str) -> list[str]:
    """Entries of the folder with a similar name, else files of that name anywhere."""
    beside = get_close_matches(name, [e.name for e in _entries(folder)], n=2, cutoff=0.7)
    if beside:
        return [name_of(ctx, folder / n) for n in beside]
    return [name_of(ctx, p) for p in _elsewhere(ctx.workspace.resolve(), name)]


def _elsewhere(workspace: Path, name: str) -> list[Path]:
    found: list[Path] = []
    looked_at = 0
    for folder, folders, files in os.walk(workspace):
        folders[:] = [f for f in sorted(folders) if not f.startswith(".") and f != "node_modules"]
        found += [Path(folder, n) for n in (*folders, *files) if n.casefold() == name.casefold()]
        looked_at += len(folders) + len(files)
        if len(found) > 1 or looked_at > MAX_LOOKED_AT:
            break
    return found[:2]


def _holdings(ctx: SkillContext, folder: Path) -> str:
    entries = sorted(e for e in _entries(folder) if not e.name.startswith("."))
    names = [name_of(ctx, e) + ("/" if e.is_dir() else "") for e in entries[:MAX_NAMED]]
    where = name_of(ctx, folder)
    if not names:
        return f"The folder {where!r} is empty."
    more = f" and {len(entries) - MAX_NAMED} more" if len(entries) > MAX_NAMED else ""
    return f"The folder {where!r} holds: {', '.join(names)}{more}."


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []

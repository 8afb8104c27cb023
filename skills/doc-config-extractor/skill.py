"""Find configuration items: the lines of a document that contain a keyword."""

import os
from pathlib import Path
from typing import Any

from runner import SkillContext, ToolError

MAX_MATCHES = 30
MAX_LINE_CHARS = 500
MAX_NAMED = 20
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def extract_config_items(file_path: str, keyword: str, ctx: SkillContext) -> dict[str, Any]:
    """The file's lines that contain the keyword, each different line once with its count."""
    matches: dict[str, dict[str, Any]] = {}
    total = 0
    for number, line in enumerate(_text(file_path, ctx).splitlines(), start=1):
        if keyword not in line:
            continue
        total += 1
        text = line.strip()
        match = matches.setdefault(text, {"line": number, "text": _clipped(text), "count": 0})
        match["count"] += 1
    result = {
        "file": file_path,
        "keyword": keyword,
        "matches": list(matches.values())[:MAX_MATCHES],
        "total": total,
    }
    if len(matches) > MAX_MATCHES:
        result["note"] = f"the first {MAX_MATCHES} of {len(matches)} different lines"
    return result


def _text(file_path: str, ctx: SkillContext) -> str:
    file = ctx.path(file_path)  # inside the workspace, or ToolError
    if not file.is_file():
        raise _missing(file_path, file, ctx)
    try:
        return ctx.read_bytes(file_path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError(f"{file_path} is not UTF-8 text; this tool reads text only") from error


def _missing(file_path: str, file: Path, ctx: SkillContext) -> ToolError:
    """What is there instead, so that the next call can name it."""
    folder = file if file.is_dir() else file.parent
    above = Path(file_path) if file.is_dir() else Path(file_path).parent
    names = [name for name in _files_in(folder, ctx) if not name.startswith(".")]
    shown = [(above / name).as_posix() for name in names][:MAX_NAMED]
    problem = f"{file_path!r} is no text file" if file.exists() else f"no file {file_path!r}"
    problem = f"{file_path!r} is a folder" if file.is_dir() else problem
    there = f"give one file: {', '.join(shown)}" if shown else "list_files shows which files exist"
    return ToolError(f"{problem}; {there}")


def _files_in(folder: Path, ctx: SkillContext) -> list[str]:
    """The files in a folder, reached without a link: one could be put there to lead outside."""
    root = ctx.workspace.resolve()
    handle = os.open(root, FOLDER)
    try:
        for part in folder.relative_to(root).parts:
            inner = os.open(part, FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        with os.scandir(handle) as found:
            return sorted(e.name for e in found if e.is_file(follow_symlinks=False))
    except OSError:
        return []
    finally:
        os.close(handle)


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_LINE_CHARS else text[: MAX_LINE_CHARS - 1] + "…"

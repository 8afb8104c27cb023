"""Find configuration items: the lines of a document that contain a keyword."""

from typing import Any

from runner import SkillContext, ToolError

MAX_MATCHES = 30
MAX_LINE_CHARS = 500


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
        raise ToolError(f"no file {file_path!r}; list the folder to see what is there")
    try:
        return ctx.read_bytes(file_path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError(f"{file_path} is not UTF-8 text; this tool reads text only") from error


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_LINE_CHARS else text[: MAX_LINE_CHARS - 1] + "…"

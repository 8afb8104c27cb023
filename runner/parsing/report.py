"""Say what the parser sees in a text: as data for scripts, as lines for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .nouns import Fits, Parsed, Tools
from .reader import read

_EXCERPT = 60


def report(
    record: Mapping[str, Any], *, mode: str, policy: str, fits_for: Callable[[Tools], Fits]
) -> dict[str, Any]:
    """Read one record (`text`, `tools`, …) and give the object that `runner parse` prints."""
    parsed = parse_record(record, mode=mode, policy=policy, fits_for=fits_for)
    found: dict[str, Any] = {"id": record["id"]} if "id" in record else {}
    found["kind"] = parsed.kind
    found["calls"] = [{"name": call.name, "arguments": call.arguments} for call in parsed.calls]
    return {**found, "reason": parsed.reason, "recogniser": parsed.recogniser}


def parse_record(
    record: Mapping[str, Any], *, mode: str, policy: str, fits_for: Callable[[Tools], Fits]
) -> Parsed:
    """Read one record. `tools` is a list of tools, in any usual form, or an object of schemas."""
    tools = tools_of(record.get("tools") or ())
    context = record.get("context")
    outputs = context.get("tool_outputs") if isinstance(context, Mapping) else None
    return read(
        str(record.get("text") or ""),
        tools,
        fits=fits_for(tools),
        finish=str(record.get("finish_reason") or "stop"),
        mode="json" if mode == "json" else "native",
        policy=_policy(policy),
        tool_outputs=tuple(str(one) for one in outputs or ()),
    )


def _policy(policy: str) -> Any:
    return policy if policy in {"whole", "terminal+tail"} else "terminal"


def tools_of(given: Any) -> dict[str, dict[str, Any]]:
    """Give name → parameters for a list of `{name, parameters}` or of OpenAI-style tools."""
    if isinstance(given, Mapping):
        if isinstance(given.get("tools"), (list, Mapping)):
            return tools_of(given["tools"])
        return {str(name): _schema(one) for name, one in given.items()}
    found: dict[str, dict[str, Any]] = {}
    for one in given if isinstance(given, Iterable) and not isinstance(given, str) else ():
        inner = one.get("function", one) if isinstance(one, Mapping) else {"name": str(one)}
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            found[inner["name"]] = _schema(inner)
    return found


def _schema(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        return {}
    inner = tool.get("parameters") or tool.get("input_schema")
    if isinstance(inner, Mapping):
        return dict(inner)
    return dict(tool) if "properties" in tool else {}


def explain(parsed: Parsed, text: str) -> str:
    """Describe a reading in a few lines for a person."""
    lines = [f"{parsed.kind}{_because(parsed)}"]
    lines += [f"  call      {call.name} {call.arguments}" for call in parsed.calls]
    lines += [f"  not run   {call.name} {call.arguments}" for call in parsed.rejected]
    if parsed.span is not None and parsed.kind != "final":
        lines.append(f"  at        {_where(parsed.span, text)}")
    if parsed.detail:
        lines.append(f"  to model  {parsed.detail}")
    lines += [f"  tried     {one}" for one in parsed.tried]
    return "\n".join(lines)


def _because(parsed: Parsed) -> str:
    reason = f": {parsed.reason}" if parsed.reason else ""
    return reason + (f" (recogniser {parsed.recogniser})" if parsed.recogniser else "")


def _where(span: tuple[int, int], text: str) -> str:
    start, end = span
    line = text.count("\n", 0, start) + 1
    excerpt = " ".join(text[start:end].split())
    short = excerpt if len(excerpt) <= _EXCERPT else excerpt[: _EXCERPT - 1] + "…"
    return f"characters {start}–{end}, line {line}: {short}"

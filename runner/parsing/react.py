"""Read ReAct replies: `Action:` and `Action Input:`, or `Final Answer:`."""

from __future__ import annotations

import re

from .marked import CUT_MARK, value_at
from .nouns import Answer, Fault, Found, RawCall, Reading, Source
from .pattern import pattern
from .pythoncall import read_calls
from .shape import calls_in

_ACTION = pattern(r"(?m)^[ \t]*\**Action\**[ \t]*\**:\**[ \t]*(?P<name>[^\n(]*)")
_INPUT = pattern(r"\s*^[ \t]*\**Action[ _]Input\**[ \t]*\**:\**[ \t]*", re.MULTILINE)
_FENCE = pattern(r"\s*(?:```+|''')[ \t]*[\w]*[ \t]*\r?\n?\s*")
_FENCE_END = pattern(r"\s*(?:```+|''')")
_FINAL = pattern(r"(?m)^[ \t]*\**Final Answer\**[ \t]*\**:\**[ \t]*")
_NOTHING = pattern(r"(?:None|null|N/A)[ \t]*(?:\n|\Z)")
_MAX_GAP = 1000
_NAME = pattern(r"[`\"'\[]?([A-Za-z_][\w.:-]*)[`\"'\]]?")


def parse(source: Source, _position: int) -> Reading:
    """Read the first action; what follows it is the model's invention."""
    text = source.text
    action = _ACTION.search(text)
    final = _FINAL.search(text)
    if action is None or (final is not None and final.start() < action.start()):
        return Answer("react_final", text[final.end() :].strip()) if final else None
    if _fenced(text, action.start()):
        return None
    written = action["name"].strip()
    if not written or (written[0] in "`{['" and not _NAME.fullmatch(written)):
        return _blob(source, action)
    name = _NAME.fullmatch(written)
    if name is None:
        return None
    bracket = re.compile(r"\s*\(\s*").match(text, action.end())
    if bracket is not None and text[bracket.end() : bracket.end() + 1] == "{":
        return _input(source, action, name.group(1), bracket.end())
    if bracket is not None:
        return _python(source, action)
    given = _INPUT.match(text, action.end())
    if given is None:
        return _no_input(source, action, name.group(1))
    return _input(source, action, name.group(1), given.end())


def _fenced(text: str, at: int) -> bool:
    return text.count("```", 0, at) % 2 == 1 and not text.lstrip().startswith("```")


def _python(source: Source, action: re.Match[str]) -> Reading:
    got = read_calls(source, action.start("name"))
    return got if isinstance(got, Fault) else Found(tuple(got[0]), action.start(), got[1])


def _after_space(text: str, at: int) -> int:
    return at + len(text[at : at + _MAX_GAP]) - len(text[at : at + _MAX_GAP].lstrip())


def _no_input(source: Source, action: re.Match[str], name: str) -> Reading:
    rest = source.text[action.end() :].strip()
    begun = rest.startswith("(") or "Action Input".startswith(rest[:12].split(":")[0])
    if begun and (name in source.tools or source.cut):
        return Fault("truncated", CUT_MARK, action.start(), len(source.text))
    return None


def _input(source: Source, action: re.Match[str], name: str, at: int) -> Reading:
    text = source.text
    fence = _FENCE.match(text, at)
    start = fence.end() if fence else _after_space(text, at)
    if not text[start:].strip():
        return Fault("truncated", CUT_MARK, action.start(), len(text))
    if _NOTHING.match(text, start):
        return Found((RawCall(name, {}),), action.start(), start + 4)
    if text[start] not in "{[":
        detail = f"Action Input must be one JSON object with the parameters of {name}."
        return Fault("invalid_arguments", detail, action.start(), len(text), (RawCall(name, {}),) if name not in source.tools else ())  # fmt: skip
    got = value_at(source, start)
    if isinstance(got, Fault):
        return got
    calls = [RawCall(name, got.value)]
    end, loose = got.end, got.loose
    closing = _FENCE_END.match(text, end) if fence else re.compile(r"\s*\)").match(text, end)
    end = closing.end() if closing else end
    following = _ACTION.match(text, re.compile(r"\s*").match(text, end).end())  # type: ignore[union-attr]
    if following is not None:
        more = parse_from(source, following)
        if isinstance(more, Fault):
            return more
        if isinstance(more, Found):
            calls += more.calls
            end, loose = more.end, loose or more.loose
    return Found(tuple(calls), action.start(), end, loose)


def parse_from(source: Source, action: re.Match[str]) -> Reading:
    """Read a further action that follows at once; one is enough in practice, many are refused."""
    name = _NAME.fullmatch(action["name"].strip())
    given = _INPUT.match(source.text, action.end())
    if name is None or given is None:
        return _no_input(source, action, name.group(1) if name else "")
    got = value_at(source, given.end())
    if isinstance(got, Fault):
        return got
    return Found((RawCall(name.group(1), got.value),), action.start(), got.end, got.loose)


def _blob(source: Source, action: re.Match[str]) -> Reading:
    """Structured chat: the action is itself a JSON object, mostly fenced."""
    at = action.start("name")
    fence = _FENCE.match(source.text, at)
    start = re.compile(r"\s*").match(source.text, fence.end() if fence else at).end()  # type: ignore[union-attr]
    if source.text[start : start + 1] not in {"{", "["}:
        return None
    got = value_at(source, start)
    if isinstance(got, Fault):
        return got
    reading = calls_in(got.value, source.tools, marked=True)
    if isinstance(reading, Found):
        return Found(reading.calls, action.start(), got.end, got.loose)
    return reading

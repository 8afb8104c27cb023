"""Read a model's reply: calls to run, a final answer, or an error for the model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from .blocks import call_like
from .frame import CALL_LANGUAGES, bounds, place, whole_fence
from .judge import CUT, judge, refuse
from .lenient import holds_bare_path
from .nouns import (
    MAX_TEXT,
    Answer,
    Fault,
    Fits,
    Found,
    Parsed,
    Reading,
    Recogniser,
    Source,
    Tools,
    Unreadable,
)
from .pattern import pattern
from .pythoncall import first_line
from .reasoning import answer_of, take_away
from .shape import calls_in
from .strict import decode
from .table import RECOGNISERS
from .xmlcalls import first_tag

_MAX_HITS = 32
_QUOTING = frozenset("`\"'“‘「『>")
_RUN_ON_TAG = pattern(
    r"\s*(?:<(?:tool_response|response|function_results?|tool_result|observation)>|Observation:|<\|)"
)
_FENCED = CALL_LANGUAGES | {"python", "javascript", "js"}
_SCHEMA = pattern(r'"(?:parameters|input_schema)"\s*:\s*\{\s*"type"\s*:\s*"object"')
EMPTY = "The reply is empty. Answer, or call a tool."


def read(
    text: str,
    tools: Tools,
    *,
    fits: Fits,
    finish: str = "stop",
    mode: Literal["native", "json"] = "native",
    policy: Literal["whole", "terminal", "terminal+tail"] = "terminal",
    tool_outputs: Sequence[str] = (),
) -> Parsed:
    """Read one reply. Never raises, whatever the text; `fits` may mend arguments in place."""
    source = Source(text, tools, finish, mode, policy, tool_outputs)
    try:
        return _read(source, fits)
    except RecursionError:
        detail = "Brackets are nested too deeply; send a flatter call."
        return Parsed(kind="error", reason="nesting_limit", detail=detail)


def _read(source: Source, fits: Fits) -> Parsed:
    if len(source.text) > MAX_TEXT:
        detail = f"The reply is longer than {MAX_TEXT} characters and was not read."
        return Parsed(kind="error", reason="malformed", detail=detail)
    original = source.text
    start, end = bounds(original)
    if start >= end:
        return Parsed(kind="error", reason="empty", detail=EMPTY)
    whole = _whole(source, fits, start, end)
    if whole is not None:
        return whole
    thought = take_away(original[:end])
    source.text = " " * start + thought.text[start:]
    source.removed = thought.removed
    source.original = " " * start + original[start:end]
    if not source.text.strip():
        return _only_reasoning(source, original)
    parsed = _without_reasoning(source, fits, bool(thought.removed))
    return replace(parsed, tried=tuple(source.tried)) if source.tried else parsed


def _without_reasoning(source: Source, fits: Fits, changed: bool) -> Parsed:
    text = source.text
    start, end = bounds(text)
    if changed and not _holds_reasoning(source, Found((), start, end)):
        whole = _whole(source, fits, start, end)
        if whole is not None:
            return whole
    fenced = _open_fence(source)
    if fenced is not None:
        whole = _whole(source, fits, *fenced, name="fence")
        if whole is not None:
            return whole
    for recogniser, position in _asked(source):
        reading = _placed(recogniser, source, position)
        if reading is None:
            source.tried.append(f"{recogniser.name}: nothing of its kind at {position}")
            continue
        parsed = _concluded(reading, source, fits, recogniser.name)
        if parsed is not None:
            return parsed
    return _final(source)


def _whole(source: Source, fits: Fits, start: int, end: int, name: str = "strict") -> Parsed | None:
    """The reply is one JSON value, to the letter."""
    text = source.text[start:end]
    if text[0] not in '{["':
        return None
    try:
        value = decode(text)
        if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
            value = decode(value.strip())
    except Unreadable as error:
        source.tried.append(f"{name}: {error.detail}")
        if error.reason == "malformed" or not call_like(text, source.tools):
            return None
        return refuse(Fault(error.reason, error.detail, start, end), source, name)
    reading = calls_in(value, source.tools)
    if isinstance(reading, Found):
        if "\\" in text and holds_bare_path(text):
            return None
        return judge(Found(reading.calls, start, end), source, fits, name)
    if isinstance(reading, Fault):
        return refuse(
            Fault(reading.reason, reading.detail, start, end, reading.calls), source, "strict"
        )
    return _json_answer(value, text, reading, source)


def _json_answer(value: Any, text: str, reading: Reading, source: Source) -> Parsed:
    if isinstance(reading, Answer):
        return Parsed(kind="final", reason=reading.reason, text=reading.text or text)
    answer = value.get("answer") if isinstance(value, dict) and len(value) == 1 else None
    if source.mode == "json" and isinstance(answer, str):
        if not answer.strip():
            return Parsed(kind="error", reason="empty", detail=EMPTY)
        return Parsed(kind="final", reason="plain_text", text=answer)
    if source.mode == "json" and isinstance(answer, dict):
        return Parsed(kind="final", reason="data_json", text=json.dumps(answer, ensure_ascii=False))
    kind = "schema_echo" if _is_schema(value) else "data_json"
    return Parsed(kind="final", reason=kind, text=text)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "object" and "properties" in value


def _only_reasoning(source: Source, original: str) -> Parsed:
    if source.cut:
        return Parsed(kind="error", reason="truncated", detail="The reply was cut off while still reasoning (output limit). Reason less and answer.")  # fmt: skip
    if "{" in original and call_like(original[original.index("{") :], source.tools):
        detail = "The call stands within the reasoning, where nothing is executed. Send it after the reasoning."
        return Parsed(kind="error", reason="call_in_reasoning", detail=detail)
    return Parsed(kind="error", reason="empty", detail="The reply holds only reasoning. Answer, or call a tool.")  # fmt: skip


def _open_fence(source: Source) -> tuple[int, int] | None:
    """Blank a code fence that is around the whole reply, and give where its body stands."""
    text = source.text
    start = len(text) - len(text.lstrip())
    fence = whole_fence(text[start:].rstrip())
    if fence is None or fence[0] not in _FENCED:
        return None
    _, begin, end = fence
    source.text = " " * (start + begin) + text[start + begin : start + end]
    begin, end = bounds(source.text)
    return (begin, end) if begin < end else None


@lru_cache(maxsize=8)
def _triggers(table: tuple[Recogniser, ...]) -> tuple[re.Pattern[str], dict[str, list[Recogniser]]]:
    by_trigger: dict[str, list[Recogniser]] = {}
    for recogniser in table:
        for trigger in recogniser.triggers if recogniser.marked else ():
            by_trigger.setdefault(trigger, []).append(recogniser)
    ordered = sorted(by_trigger, key=len, reverse=True)
    begins = {trigger[:1] for trigger in ordered}
    parts = [
        _beginning_with(first, [one for one in ordered if one[0] == first])
        for first in sorted(begins)
    ]
    return re.compile("|".join(parts)), by_trigger


def _beginning_with(first: str, triggers: list[str]) -> str:
    """Match any of the triggers; the second character is looked at before all of them are tried."""
    seconds = "".join(sorted({re.escape(trigger[1:2]) for trigger in triggers if len(trigger) > 1}))
    rest = "|".join(re.escape(trigger[1:]) for trigger in triggers)
    ahead = f"(?=[{seconds}])" if all(len(trigger) > 1 for trigger in triggers) else ""
    return f"{re.escape(first)}{ahead}(?:{rest})"


def _asked(source: Source) -> Iterator[tuple[Recogniser, int]]:
    """Who is asked, and where: what opens first outside values and quotes, then the rest in order."""
    pattern, by_trigger = _triggers(tuple(RECOGNISERS))
    early = _spelled(source)
    for count, hit in enumerate(pattern.finditer(source.text)):
        while early and early[0][1] < hit.start():
            yield early[0]
            if not source.text[: early.pop(0)[1]].strip():
                return
        if count >= _MAX_HITS:
            break
        if _quoted(source, hit.start()):
            source.tried.append(f"{hit.group()}: quoted at {hit.start()}")
            continue
        for recogniser in by_trigger[hit.group()]:
            yield recogniser, hit.start()
    yield from _unmarked(source)


def _spelled(source: Source) -> list[tuple[Recogniser, int]]:
    """Calls that begin with a tool's name on its own line, before any marker."""
    found = []
    line = first_line(source) if "(" in source.text else None
    tag = first_tag(source) if "<" in source.text else None
    for name, head, group in (("python", line, "start"), ("tag", tag, 0)):
        if head is not None:
            found += [(one, head.start(group)) for one in RECOGNISERS if one.name == name]
    return sorted(found, key=lambda item: item[1])


def _unmarked(source: Source) -> Iterator[tuple[Recogniser, int]]:
    for recogniser in RECOGNISERS:
        if recogniser.marked:
            continue
        at = min((p for t in recogniser.triggers if (p := source.text.find(t)) >= 0), default=-1)
        if at >= 0:
            yield recogniser, at


def _quoted(source: Source, at: int) -> bool:
    before = source.text[max(0, at - 2) : at]
    if before.strip() and before[-1] in _QUOTING and not before.endswith("```") and not re.search(r"[\w\]|}/｜✿'\"]>\Z", source.text[max(0, at - 3) : at]):  # fmt: skip
        return True
    return bool(re.search(r"[{\[]", source.text[:at])) and source.scan.inside(at)


def _placed(recogniser: Recogniser, source: Source, position: int) -> Reading:
    """A marked call must end the reply too, unless its marker leaves no doubt."""
    reading = recogniser.parse(source, position)
    text = source.text
    if isinstance(reading, Found) and _holds_reasoning(source, reading):
        return _unclear(reading)
    if recogniser.marked and isinstance(reading, Fault) and _is_mention(text, position):
        return None
    if not recogniser.marked or not isinstance(reading, Found):
        return reading
    around = place(text, reading.start, reading.end)
    tail = text[around.end :]
    lead = text[: around.start].strip()
    if around.language is not None and (around.language not in _FENCED or tail.strip()):
        return _unclear(reading)
    if around.language is None and _within_fence(text, reading.start):
        return _unclear(reading)
    if not tail.strip() or _RUN_ON_TAG.match(tail):
        return reading
    if tail.lstrip().startswith("</") or _triggers(tuple(RECOGNISERS))[0].search(tail):
        return _unclear(reading)
    special = not text[reading.start : reading.end].startswith("<") or text[
        position : position + 2
    ] in {"<|", "<｜"}
    if special or (not lead and tail.lstrip(" \t")[:1] in {"\n", "\r"}):
        return reading
    return _unclear(reading)


def _holds_reasoning(source: Source, found: Found) -> bool:
    """Reasoning that was taken away must not have been part of a value."""
    return any(found.start < start and end < found.end for start, end in source.removed)


_MENTION = pattern(r"(?:<[^>\s]*>|\[[A-Z_]+\]|✿\w+✿|functions\.|call:)[ \t]+[^\s{\[<]")


def _is_mention(text: str, at: int) -> bool:
    """A marker in the middle of a sentence, with no call after it, is only spoken of."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return bool(line.strip()) and _MENTION.match(text, at) is not None


def _within_fence(text: str, at: int) -> bool:
    return len(re.findall(r"(?m)^[ \t]*(?:```|~~~)", text[:at])) % 2 == 1


def _unclear(found: Found) -> Fault:
    detail = "The call does not stand alone, so it was not run. To run it, send only the call; to answer, write the answer without a call in it."
    return Fault("ambiguous", detail, found.start, found.end, found.calls)


def _concluded(reading: Reading, source: Source, fits: Fits, name: str) -> Parsed | None:
    if isinstance(reading, Found):
        return judge(reading, source, fits, name)
    if isinstance(reading, Fault):
        return refuse(reading, source, name)
    if not isinstance(reading, Answer):
        return None
    text = answer_of(source.answer) if reading.text is None else reading.text
    if not text.strip():
        return Parsed(kind="error", reason="empty", detail=EMPTY, recogniser=name)
    return Parsed(kind="final", reason=reading.reason, text=text, recogniser=name)


def _final(source: Source) -> Parsed:
    text = answer_of(source.answer)
    if (
        source.cut
        and "{" in text[-2000:]
        and call_like(text[text.index("{") :], source.tools, cut=True)
    ):
        return Parsed(kind="error", reason="truncated", detail=CUT)
    if not text:
        return Parsed(kind="error", reason="empty", detail=EMPTY)
    return Parsed(kind="final", reason=_sort(source, text), text=text)


def _sort(source: Source, text: str) -> str:
    """Say what kind of answer a text is."""
    if _SCHEMA.search(text):
        return "schema_echo"
    if "```" in text or "~~~" in text:
        return "data_json" if re.search(r'[{,]\s*"[^"\n]+"\s*:', text) else "code_answer"
    if re.search(r'\{\s*"?\w+"?\s*:', text) or text[0] in '"[{':
        return "data_json"
    if any(f"{name}(" in text for name in source.tools):
        return "quoted"
    return "plain_text"

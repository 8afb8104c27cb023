"""Read JSON calls out of a text: one block, or several, that end the reply."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from .frame import CALL_LANGUAGES, Place, only_closers, place
from .lenient import decode_loosely, holds_bare_path
from .names import resolve_name
from .nouns import Answer, Fault, Found, Reading, Source, Tools, Unreadable
from .pattern import pattern
from .scan import Block
from .shape import calls_in
from .strict import decode

MAX_LEAD = 300
MAX_TAIL = 120

_EXPLICIT = "tool|tool_?name|function|function_?name|recipient_name|skill"
_WRAPPERS = "tool_?calls?|calls|tool_uses|function_?calls?|command"
_CALL_KEY = pattern(
    rf"[\"'“„‘{{,\s](?:{_EXPLICIT}|{_WRAPPERS}|name|action|params|arguments)[\"'”“’]?\s*+[:=：]",
    re.IGNORECASE,
)
_NAMED = pattern(
    rf"[\"'“„‘{{,\s](?P<key>{_EXPLICIT}|name|action)[\"'”“’]?\s*+[:=：]\s*+(?P<quote>[\"'“„‘]?)(?P<value>[^\"'”“’\s,}}{{]*+)",
    re.IGNORECASE,
)
_ARGUMENTS = pattern(r"[\"'“„‘{,\s](?:params|arguments|args|parameters|(?:tool|action)_input)[\"'”“’]?\s*+[:=：]", re.IGNORECASE)  # fmt: skip
_EXPLICIT_KEY = pattern(
    rf"[\"'“„‘{{,\s](?:{_EXPLICIT}|action_input)[\"'”“’]?\s*+[:=：]", re.IGNORECASE
)
_FIRST_KEY = pattern(r"\{\s*+[\"'“‘]?([\w.-]++)[\"'”’]?\s*+[:=：]\s*+[{\"\[]")
_STUB = pattern(r"[{\[]\s*+\{?\s*+[\"'“]\w{0,16}[\"'”]?\s*+:?\s*+[\"'“]?\Z")
_DOCUMENT = pattern(
    r"(?m)^[ \t]*(?:#{1,6}[ \t]|\|.*\||>|\*\*[^*\n]+\*\*:?[ \t]*$|(?:User|Human|Assistant|System)[ \t]*:)"
)
_RUN_ON = pattern(
    r"\s*\n[ \t]*\**(?:User|Human|Assistant|System|Tool|Result|Results|Output|Observation|Response|Tool (?:result|output|response)|结果|输出|用户|观察)\**[ \t]*[:：]",
    re.IGNORECASE,
)
_CODE = pattern(r"(?ms)^[ \t]*```.*?^[ \t]*```")
_SEPARATOR = pattern(r"[\s,;，；]*")
_LANGUAGES = CALL_LANGUAGES | {"python", "javascript", "js"}
_LOOK = 4000
_NAME_WITHIN = 1000


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of the text with its fence and what it was read as."""

    block: Block
    place: Place
    reading: Reading
    loose: bool = False

    @property
    def calls(self) -> bool:
        return isinstance(self.reading, Found)


def call_like(text: str, tools: Tools, *, cut: bool = False) -> bool:
    """Say whether a text that cannot be read was meant as a call, by the keys it holds."""
    head = text[:_LOOK]
    named = _NAMED.search(head)
    if named is None:
        first = _FIRST_KEY.match(head)
        stub = cut and len(text) < _LOOK and _STUB.match(head) is not None
        return stub or (first is not None and first.group(1) in tools)
    if resolve_name(named["value"], tools):
        return True
    explicit = named["key"].lower() not in {"name", "action"}
    if cut:
        ends_here = not head[named.end() :].strip("\"'” ")
        return explicit or (ends_here and any(tool.startswith(named["value"]) for tool in tools))
    return explicit and _ARGUMENTS.search(head) is not None


def read_piece(text: str, tools: Tools) -> tuple[Reading, bool]:
    """Decode one isolated candidate, strictly or else leniently, and read the calls in it."""
    head = text[:_LOOK]
    first = _FIRST_KEY.match(head)
    if not _CALL_KEY.search(head) and not (first and first.group(1) in tools):
        return None, False
    try:
        reading = calls_in(decode(text), tools)
        if not (isinstance(reading, Found) and holds_bare_path(text)):
            return reading, False
    except Unreadable as error:
        if error.reason != "malformed":
            fault = Fault(error.reason, error.detail)
            return (fault if call_like(text, tools) else None), False
    return _read_loosely(text, tools)


def _read_loosely(text: str, tools: Tools) -> tuple[Reading, bool]:
    if not call_like(text, tools) and not call_like(text[1:].lstrip(), tools):
        return None, False
    inner = text
    if text.startswith("{{") and text.endswith("}}"):
        inner = text[1:-1]
    try:
        return calls_in(decode_loosely(inner), tools), True
    except Unreadable as error:
        return Fault(error.reason, error.detail), True


def parse(source: Source, position: int) -> Reading:
    """Read the JSON calls that end the reply (or begin it, where that is enough)."""
    text = source.text
    if source.scan.deep:
        fault = Fault("nesting_limit", "Brackets are nested too deeply; send a flatter call.", position, len(text))  # fmt: skip
        return fault if call_like(text[position:], source.tools) else None
    pieces = [_piece(source, block) for block in source.scan.blocks]
    early = _beginning(source, pieces)
    if early is not None:
        return early
    broken = _unclosed(source)
    if broken is not None:
        return broken
    meant = [piece for piece in pieces if isinstance(piece.reading, (Found, Fault, Answer))]
    if not meant:
        return None
    if pieces[-1] is not meant[-1]:
        return _elsewhere(source, meant)
    return _terminal(source, pieces, meant)


def _piece(source: Source, block: Block) -> Piece:
    reading, loose = read_piece(source.text[block.start : block.end], source.tools)
    return Piece(block, place(source.text, block.start, block.end), reading, loose)


def _beginning(source: Source, pieces: list[Piece]) -> Reading:
    """In json mode a reply that begins with a call is that call; elsewhere only one that runs on."""
    if not pieces or not pieces[0].calls or source.policy == "whole":
        return None
    first = pieces[0]
    if source.text[: first.place.start].strip() or (len(pieces) == 1 and _ends(source, first)):
        return None
    if source.mode == "json" and not _all_calls(source, pieces):
        return _found([first])
    if source.mode == "native" and _RUN_ON.match(source.text, first.place.end):
        return _found([first])
    return None


def _all_calls(source: Source, pieces: list[Piece]) -> bool:
    return (
        source.scan.open_at is None
        and all(piece.calls for piece in pieces)
        and _ends(source, pieces[-1])
        and all(_adjacent(source, a, b) for a, b in pairwise(pieces))
    )


def _adjacent(source: Source, one: Piece, other: Piece) -> bool:
    return _SEPARATOR.fullmatch(source.text, one.place.end, other.place.start) is not None


def _ends(source: Source, piece: Piece) -> bool:
    tail = source.text[piece.place.end :].strip()
    return not tail or only_closers(tail)


def _unclosed(source: Source) -> Fault | None:
    at = source.scan.open_at
    if at is None:
        return None
    lead = " ".join(source.text[:at].split())
    if len(lead) > MAX_LEAD and not source.cut:
        return None
    text = source.text[at : at + _NAME_WITHIN]
    if not (call_like(text, source.tools, cut=True) or call_like(text[1:].lstrip(), source.tools)):
        return None
    last = max((block.end for block in source.scan.blocks), default=0)
    tail = source.text[last:].strip() if last > at else ""
    if tail and re.match(r"[^\W\d]", tail) and not source.cut:
        detail = "An object is opened and never closed. Send exactly one complete JSON object."
        return Fault("malformed", detail, at, len(source.text))
    detail = "The reply ends before the JSON object is closed (truncated). Send the whole call again; if it is long, send less."
    return Fault("truncated", detail, at, len(source.text))


def _found(group: list[Piece]) -> Found:
    calls = tuple(call for piece in group for call in piece.reading.calls)  # type: ignore[union-attr]
    loose = any(piece.loose for piece in group)
    return Found(calls, group[0].block.start, group[-1].block.end, loose)


def _terminal(source: Source, pieces: list[Piece], meant: list[Piece]) -> Reading:
    last = pieces[-1]
    tail = source.text[last.place.end :].strip()
    surplus = bool(tail) and only_closers(tail)
    if tail and not surplus and not (source.policy == "terminal+tail" and len(tail) <= MAX_TAIL):
        return _elsewhere(source, meant)
    if not last.calls:
        return _ending_fault(source, last)
    group = _group(source, pieces)
    lead = source.text[: group[0].place.start]
    if len([piece for piece in meant if piece.calls]) > len(group) or not _may_lead(
        source, lead, group
    ):
        return _elsewhere(source, meant)
    before = pieces[-len(group) - 1] if len(pieces) > len(group) else None
    if before and isinstance(before.reading, Fault) and _adjacent(source, before, group[0]):
        return before.reading
    for piece in pieces[: -len(group)]:
        if isinstance(piece.reading, Fault) and piece.reading.reason == "malformed":
            return piece.reading
    found = _found(group)
    return Found(found.calls, found.start, found.end, loose=True) if surplus else found


def _ending_fault(source: Source, last: Piece) -> Reading:
    lead = " ".join(source.text[: last.place.start].split())
    reading = last.reading
    if isinstance(reading, Answer):
        return reading
    if len(lead) > MAX_LEAD or _is_structured(source.text[: last.place.start]):
        return None
    block = source.text[last.block.start : last.block.end]
    assert isinstance(reading, Fault)  # noqa: S101  the caller saw to it
    weak = reading.reason in {"unknown_tool", "missing_name"} and not _EXPLICIT_KEY.search(
        block[:_LOOK]
    )
    if lead and weak:
        return None
    return Fault(reading.reason, reading.detail, last.block.start, last.block.end, reading.calls)


def _group(source: Source, pieces: list[Piece]) -> list[Piece]:
    """The calls at the end that belong together: adjacent, or apart by plain prose in own fences."""
    group = [pieces[-1]]
    for piece in reversed(pieces[:-1]):
        between = source.text[piece.place.end : group[0].place.start]
        fenced = piece.place.language is not None and group[0].place.language is not None
        if not piece.calls or not (
            _adjacent(source, piece, group[0]) or (fenced and _plain(between))
        ):
            break
        group.insert(0, piece)
    return group


def _plain(between: str) -> bool:
    lines = [line for line in between.splitlines() if line.strip()]
    listed = any(re.match(r"[ \t]*(?:\d+[.)]|[-*+])[ \t]", line) for line in lines)
    return len(between) <= MAX_LEAD and not listed and not _is_structured(between)


def _may_lead(source: Source, lead: str, group: list[Piece]) -> bool:
    """Say whether the text before the calls is a lead-in rather than a document around them."""
    first = group[0]
    bare = lead.strip()
    if any(
        piece.place.language not in _LANGUAGES and piece.place.language is not None
        for piece in group
    ):
        return False
    if not bare:
        return True
    if source.policy == "whole" or len(" ".join(bare.split())) > MAX_LEAD or _is_structured(lead):
        return False
    ticked = first.place.language is not None and source.text[first.place.start : first.place.start + 2] != "``"  # fmt: skip
    inline = ticked and source.text[first.place.start] == "`"
    return not inline and (first.place.language is not None or bare[-1] not in "=\"'`([“‘")


def _elsewhere(source: Source, meant: list[Piece]) -> Reading:
    """Calls that do not end the reply: part of a document, or too unclear to run."""
    calls = [piece for piece in meant if piece.calls]
    if not calls:
        return _broken_start(source, meant[0])
    known = [piece for piece in calls if _names_offered(piece, source.tools)]
    if not known:
        return None
    if not _ends(source, known[-1]) and _is_document(source, known):
        return Answer(_document_kind(source, known))
    detail = "The call does not stand alone, so it was not run. To run it, send only the JSON object of the call and nothing else; to answer, write the answer without a call in it."
    return Fault(
        "ambiguous", detail, known[0].block.start, known[-1].block.end, _found(known).calls
    )


def _broken_start(source: Source, first: Piece) -> Reading:
    """A reply that begins with a broken call is that call, whatever its brackets make of the rest."""
    reading = first.reading
    if not isinstance(reading, Fault) or source.text[: first.place.start].strip():
        return None
    if reading.reason not in {"malformed", "duplicate_key", "non_finite", "number_limit"}:
        return None
    return Fault(reading.reason, reading.detail, first.block.start, len(source.text))


def _document_kind(source: Source, known: list[Piece]) -> str:
    for piece in known:
        written = source.text[piece.block.start : piece.block.end]
        before = source.text[: piece.block.start].rstrip()
        if before.endswith((">", "“", "「", '"')) or any(
            written in one for one in source.tool_outputs
        ):
            return "quoted"
    return "documentation"


def _is_structured(text: str) -> bool:
    """Say whether a text has headings, tables, quotes or a dialogue, outside its code."""
    return _DOCUMENT.search(_CODE.sub("", text) if "```" in text else text) is not None


def _names_offered(piece: Piece, tools: Tools) -> bool:
    return isinstance(piece.reading, Found) and any(resolve_name(call.name, tools) for call in piece.reading.calls)  # fmt: skip


def _is_document(source: Source, known: list[Piece]) -> bool:
    if not source.text[: known[0].place.start].strip():
        return False
    if _is_structured(source.text):
        return True
    for piece in known:
        tail = source.text[piece.place.end :]
        if piece.place.language is not None and piece.place.language not in _LANGUAGES:
            return True
        if tail.strip() and not re.match(r"[ \t）)」』”’\"\'。.!！]*+(?:\r?\n|\Z)", tail):
            return True
    return len(source.text) - known[-1].place.end > MAX_LEAD

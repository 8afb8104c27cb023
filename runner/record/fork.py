"""A new session that begins as another one was after one of its iterations."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..calls.ledger import Ledger
from ..errors import RecordError, SessionError
from .trajectory import ID_RULE, check_id, file_of
from .turns import holds_mask, load

Record = dict[str, Any]
_LONGEST_ID = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The new session. `warnings` says in sentences what could not be carried over."""

    session: str
    turn: int
    iteration: int
    warnings: tuple[str, ...] = ()


def fork(state: Path, session: str, new: str, *, at: int, turn: int | None = None) -> Forked:
    """Writes the new session; the old one is only read. `SessionError` when there is no such point.

    Without `turn` the last one that stands; a turn that was taken back stands again when named.
    """
    target = file_of(state, new)
    if target.exists():
        raise SessionError(f"there is a session {new!r} already; name another one with --as")
    loaded = load(state, session)
    wanted = turn if turn is not None else _last_standing(loaded.records, session)
    kept, warnings = cut(loaded.records, session, turn=wanted, at=at), list(loaded.damage)
    records = [_renamed(record, session, new, warnings) for record in kept]
    records.append(_note(records, new, of=session, turn=wanted, at=at))
    _carry_spills(state / "spills", session, new, records)
    _write(target, records)
    return Forked(session=new, turn=wanted, iteration=at, warnings=tuple(warnings))


def cut(records: Sequence[Record], session: str, *, turn: int, at: int) -> list[Record]:
    """The records up to the end of iteration `at` of a turn, the turn's end included if it was the last."""
    iterations = [_point(r)[1] for r in records if _own(r, session) and _point(r)[0] == turn]
    if not iterations:
        raise SessionError(
            f"session {session!r} has no turn {turn}; it has {_last_turn(records, session)}"
        )
    if not 0 <= at <= max(iterations):
        raise SessionError(
            f"turn {turn} of session {session!r} has {max(iterations)} iteration(s); "
            f"--at takes 0 to {max(iterations)}"
        )
    kept: list[Record] = []
    begun = False
    for record in records:
        if _own(record, session):
            begun = begun or _point(record)[0] == turn
            if _point(record) > (turn, at) or (begun and record["type"] == "turn.undone"):
                break
        kept.append(record)
    while kept and kept[-1]["type"] == "session.started" and len(kept) > 1:
        kept.pop()  # the next turn's opening, which is no longer there
    return kept


def free_id(state: Path, session: str, at: int) -> str:
    """A name for the fork that nobody has yet: `ID-at-N`, then `ID-at-N-2` and so on."""
    tail, number = f"-at-{at}", 1
    while True:
        name = f"{session[: _LONGEST_ID - len(tail)]}{tail}"
        if ID_RULE.fullmatch(name) and not file_of(state, name).exists():
            return check_id(name)
        number += 1
        tail = f"-at-{at}-{number}"


def _own(record: Mapping[str, Any], session: str) -> bool:
    return record.get("session") == session


def _point(record: Mapping[str, Any]) -> tuple[int, int]:
    turn, iteration = record.get("turn"), record.get("iteration")
    return (
        turn if isinstance(turn, int) else 0,
        iteration if isinstance(iteration, int) else 0,
    )


def _last_turn(records: Sequence[Record], session: str) -> int:
    return max((_point(r)[0] for r in records if _own(r, session)), default=0)


def _last_standing(records: Sequence[Record], session: str) -> int:
    """The last turn that nobody took back, or the last one when none stands."""
    turns: list[int] = []
    for record in records:
        if _own(record, session) and record["type"] == "turn.started":
            turns.append(_point(record)[0])
        elif _own(record, session) and record["type"] == "turn.undone":
            del turns[-1:]
    return turns[-1] if turns else _last_turn(records, session)


def _renamed(record: Record, old: str, new: str, warnings: list[str]) -> Record:
    """The record as the new session's; a sub-agent of the old becomes one of the new."""
    named = dict(record)
    for field in ("session", "parent", "child", "session_id"):
        value = named.get(field)
        if value == old:
            named[field] = new
        elif isinstance(value, str) and value.startswith(f"{old}."):
            named[field] = f"{new}{value[len(old) :]}"
    if named["type"] == "tool.started" and "fingerprint" in named:
        _sign_again(named, warnings)
    return named


def _sign_again(record: Record, warnings: list[str]) -> None:
    """A lost call is known by its fingerprint, which holds the session; its key stays what it was."""
    arguments, tool = record.get("arguments"), str(record.get("tool"))
    if not isinstance(arguments, dict) or holds_mask(arguments):
        if not record.get("idempotent"):
            warnings.append(
                f"{tool} was called with arguments that are masked on disk; the fork cannot "
                "recognise the same call, should its outcome be unknown"
            )
        return
    ledger = Ledger(str(record.get("parent") or record["session"]))
    record["fingerprint"] = ledger.fingerprint(tool, arguments)


def _note(records: Sequence[Record], new: str, *, of: str, turn: int, at: int) -> Record:
    return {
        "seq": max((r["seq"] for r in records if isinstance(r.get("seq"), int)), default=0) + 1,
        "time": datetime.now(UTC).isoformat()[:-6] + "Z",
        "session": new,
        "turn": turn,
        "iteration": at,
        "type": "session.forked",
        "of": of,
    }


def _carry_spills(spills: Path, old: str, new: str, records: Sequence[Record]) -> None:
    """Copies the whole results that the kept ones refer to, and points their records at the copies."""
    for record in records:
        path = Path(str(record.get("spilled_to") or ""))
        if path.parent != spills / old and path.parent.resolve() != (spills / old).resolve():
            continue
        copy = spills / new / path.name
        record["spilled_to"] = str(copy)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):  # gone: `read_result` will say so, as it would in the old session
            shutil.copy2(path, copy)


def _write(target: Path, records: Sequence[Record]) -> None:
    """The whole file at once or nothing, and never over another session."""
    text = "".join(
        json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records
    )
    draft = target.with_suffix(f".{os.getpid()}.draft")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text.encode("utf-8", "replace"))
        os.link(draft, target)
    except FileExistsError as error:
        raise SessionError(f"there is a session {target.stem!r} already") from error
    except OSError as error:
        raise RecordError(f"{target}: cannot be written ({error.strerror})") from error
    finally:
        with suppress(OSError):
            draft.unlink()

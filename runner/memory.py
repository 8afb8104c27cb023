"""What is kept between sessions, only when the user asks for it. SQLite with full-text search."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .builtins import built_in
from .calls.attempt import BuiltInContext
from .errors import RecordError
from .skill import ToolError
from .state import Shared
from .types import Tool

LONGEST = 2000  # characters of one memory
LONG_GOAL = 8000  # characters; of a longer one the beginning and the end are looked at
MOST_FOUND = 20
MOST_TERMS = 32  # of one query; more words than this find nothing new
BUSY_SECONDS = 5.0  # another process may be writing
# What the user's own words look like when they ask for it: an order, not a question about the past.
_ASKS = re.compile(
    r"(?:^|[.!?;:,\n(]|\b(?:please|and|also|then|but|so|can you|could you|will you|would you|you (?:to|must|should)|ok|okay))\s{0,2}"
    r"(?:remember|memori[sz]e|keep in mind|bear in mind|don'?t forget|do not forget|note down|make a note|take a note"
    r"|note that|(?:save|add|store|put|write|keep) (?:\S+ ){1,12}?(?:to|in|into) (?:your |the |my |long-term )?memory"
    r"|(?:save|keep|store) (?:this|that|it) (?:for (?:later|next time|the future)|in (?:your )?memory))\b(?! when\b)"
    r"|(?:请|請|要|帮我|幫我|^|[，。,.!！?？\s])(?:记住|記住|记下|記下|记得|記得)|别忘|別忘|不要忘"
    r"|覚えて(?!い[るたま])|忘れないで|기억해|잊지 ?마"
    r"|\b(?:merke? dir|souviens-toi|retiens|n'oublie pas|recuerda|no olvides|ricorda(?:ti)?|lembre(?:-se)?)\b"
    r"|(?:запомни|не забудь)",
    re.IGNORECASE,
)
# Pasted text is not the user's request: quotes, block quotes and code.
_PASTED = re.compile(
    r"```.*?(?:```|\Z)|^>.*?$|<(\w{1,40})[^<>]{0,200}>.{0,2000}?</\1>|[\"“«「『][^\"”»」』]{12,}[\"”»」』]",
    re.DOTALL | re.MULTILINE,
)
# Scripts that are written without spaces between words, or with endings that stick to them.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_WORDS = re.compile(rf"({_UNSPACED.pattern}+)|((?:(?!{_UNSPACED.pattern})\w)+)")


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing remembered. `created` is RFC 3339."""

    key: str
    text: str
    tags: tuple[str, ...]
    session: str
    created: str


def asks_to_remember(goal: str) -> bool:
    """Does the user's own prompt ask to keep something? What it quotes does not count."""
    if len(goal) > LONG_GOAL:  # mostly pasted: an order stands before or after it
        goal = f"{goal[: LONG_GOAL // 4]}\n{goal[-LONG_GOAL // 4 :]}"
    lines = (" ".join(line.split()) for line in goal.splitlines())
    return bool(_ASKS.search(_PASTED.sub(" ", "\n".join(filter(None, lines)))))


class MemoryStore:
    """The memories of a state folder, in `memory.db` with mode 0600. One connection per call."""

    def __init__(self, state: Path) -> None:
        self._path = state / "memory.db"

    def add(self, text: str, tags: Sequence[str] = (), session: str = "") -> Memory:
        """Keeps a text, its first 2,000 characters."""
        if not text.strip():
            raise RecordError("there is nothing to remember: the text is empty")
        memory = Memory(
            uuid.uuid4().hex[:8],
            text[:LONGEST],
            tuple(" ".join(tag.split()) for tag in tags if tag.strip()),
            session,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        with self._opened(create=True) as db:
            row = (memory.key, memory.text, "\n".join(memory.tags), session, memory.created)
            db.execute(
                "INSERT INTO memories(key, text, tags, session, created, words) VALUES (?,?,?,?,?,?)",
                (*row, _segmented(f"{memory.text}\n{' '.join(memory.tags)}")),
            )
        return memory

    def search(self, query: str, limit: int = 5) -> list[Memory]:
        """The memories that fit best, by any of the words."""
        match = " OR ".join(_terms(query))
        if not match or not self._path.exists():
            return []
        with self._opened() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM memories WHERE memories MATCH ? ORDER BY rank LIMIT ?",  # noqa: S608 - a constant
                (match, max(1, min(limit, MOST_FOUND))),
            ).fetchall()
        return [_memory(row) for row in rows]

    def all(self) -> list[Memory]:
        """Everything, oldest first."""
        if not self._path.exists():
            return []
        with self._opened() as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM memories ORDER BY rowid").fetchall()  # noqa: S608 - a constant
        return [_memory(row) for row in rows]

    def edit(self, key: str, text: str) -> bool:
        """Another text for a memory; False when there is none of that key."""
        if not self._path.exists():
            return False
        text = text[:LONGEST]
        with self._opened() as db:
            found = db.execute("SELECT tags FROM memories WHERE key = ?", (key,)).fetchone()
            if found is None:
                return False
            words = _segmented(f"{text}\n{found[0]}")
            sets = (text, words, key)
            db.execute("UPDATE memories SET text = ?, words = ? WHERE key = ?", sets)
            return True

    def forget(self, key: str) -> bool:
        """Removes a memory; False when there is none of that key."""
        if not self._path.exists():
            return False
        with self._opened() as db:
            gone: int = db.execute("DELETE FROM memories WHERE key = ?", (key,)).rowcount
            return gone > 0

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[Any]:
        """A connection with its table, in one transaction. Whatever is wrong is one `RecordError`."""
        import sqlite3  # 7 ms that most runs never need

        try:
            if create:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_private(self._path)
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as db, db:
                db.execute("PRAGMA secure_delete = ON")
                db.execute(_TABLE)
                yield db
        except (OSError, sqlite3.Error) as error:
            raise RecordError(_what_is_wrong(self._path, error)) from error


async def keep(shared: Shared, text: str, tags: Sequence[str] = (), session: str = "") -> Memory:
    """Keeps a text with its secrets masked, in the state folder of the runner."""
    store, clean = MemoryStore(shared.config.paths.state), shared.redactor.text
    kept: Memory = await shared.workers.run(store.add, clean(text), [*map(clean, tags)], session)
    return kept


async def find(shared: Shared, query: str, limit: int = 5) -> list[Memory]:
    """The memories of the runner's state folder that fit best."""
    store = MemoryStore(shared.config.paths.state)
    found: list[Memory] = await shared.workers.run(store.search, query, limit)
    return found


async def remember(context: BuiltInContext, text: str, tags: Sequence[str] = ()) -> str:
    """Keeps what the user asked to keep."""
    try:
        memory = await keep(context.shared, text, tags, context.session.id)
    except RecordError as error:
        raise ToolError(str(error)) from error
    context.session.emit("memory.saved", key=memory.key, text=memory.text)
    cut = f"; only its first {LONGEST} characters" if len(memory.text) == LONGEST else ""
    return f"remembered as {memory.key}{cut}"


async def recall(context: BuiltInContext, query: str, limit: int = 5) -> str:
    """What was remembered about something."""
    try:
        found = await find(context.shared, query, limit)
    except RecordError as error:
        raise ToolError(str(error)) from error
    if not found:
        return f"nothing is remembered about {query!r}"
    return "\n".join(f"- {m.text} ({m.created[:10]})" for m in found)


def memory_tools() -> dict[str, Tool]:
    """`remember` and `recall`."""
    tools = (
        built_in(
            "remember",
            "Keeps a text for later sessions. Only for what the user asks to remember.",
            remember,
            {
                "properties": {
                    "text": {"type": "string", "minLength": 1, "description": "What to keep"},
                    "tags": {"type": "array", "items": {"type": "string"}, "description": "Words to find it by"},
                },
                "required": ["text"],
            },
        ),
        built_in(
            "recall",
            "Finds what the user asked to remember in earlier sessions.",
            recall,
            {
                "properties": {
                    "query": {"type": "string", "minLength": 1, "description": "Words to look for"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "default": 5, "description": "At most so many"},
                },
                "required": ["query"],
            },
            read_only=True, idempotent=True, concurrent=True,
        ),
    )  # fmt: skip
    return {tool.name: tool for tool in tools}


def _segmented(text: str) -> str:
    """The text as it is indexed: what is written without spaces is taken character by character."""
    text = unicodedata.normalize("NFKC", text)
    return _UNSPACED.sub(lambda found: f" {found[0]} ", text)


def _terms(query: str) -> list[str]:
    """What to look for: words by their beginning, and pairs of characters where there are no spaces."""
    terms: dict[str, None] = {}
    for run, word in _WORDS.findall(unicodedata.normalize("NFKC", query)):
        if word:
            terms[f'"{word}"*'] = None
        pairs = [run[n : n + 2] for n in range(max(1, len(run) - 1))] if run else []
        for pair in pairs:
            terms[f'"{" ".join(pair)}"'] = None
    return list(terms)[:MOST_TERMS]


def _make_private(path: Path) -> None:
    """The file with mode 0600, made when it is not there; never through a link."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def _what_is_wrong(path: Path, error: Exception) -> str:
    from sqlite3 import DatabaseError, OperationalError

    if "locked" in str(error):
        return f"{path}: another process has been writing for {BUSY_SECONDS:g} s; try again"
    if isinstance(error, DatabaseError) and not isinstance(error, OperationalError):
        return f"{path}: this is no memory that can be read ({error}); move the file away to begin a new one"
    return f"{path}: the memory cannot be used ({error})"


def _memory(row: Sequence[str]) -> Memory:
    key, text, tags, session, created = row
    return Memory(key, text, tuple(filter(None, tags.split("\n"))), session, created)


_COLUMNS = "key, text, tags, session, created"
_TABLE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS memories USING fts5("
    "key UNINDEXED, text UNINDEXED, tags UNINDEXED, session UNINDEXED, created UNINDEXED, words, "
    "tokenize='unicode61')"
)

"""What is kept between sessions, only when the user asks for it. SQLite with full-text search."""

from __future__ import annotations

import os
import re
import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .builtins import built_in
from .calls.attempt import BuiltInContext
from .errors import RecordError
from .types import Tool

LONGEST = 2000  # characters of one memory
# The user's own words that ask for it; what a tool result says never counts.
_ASKS = re.compile(
    r"\b(?:remember|memori[sz]e|don'?t forget|do not forget|keep in mind|note (?:that|down)|save (?:this|that|it) for later)\b"
    r"|记住|记下|记得|別忘|别忘|覚えて|기억해|\b(?:merke? dir|souviens-toi|retiens|recuerda|ricorda(?:ti)?|lembre)\b|запомни",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing remembered. `created` is RFC 3339."""

    key: str
    text: str
    tags: tuple[str, ...]
    session: str
    created: str


def asks_to_remember(goal: str) -> bool:
    """Does the user's own prompt ask to keep something?"""
    return bool(_ASKS.search(goal))


class MemoryStore:
    """The memories of a state folder, in `memory.db` with mode 0600. One connection per call."""

    def __init__(self, state: Path) -> None:
        self._path = state / "memory.db"

    def add(self, text: str, tags: Sequence[str] = (), session: str = "") -> Memory:
        """Keeps a text."""
        memory = Memory(
            uuid.uuid4().hex[:8],
            text[:LONGEST],
            tuple(tags),
            session,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        with closing(self._connect(create=True)) as db, db:
            db.execute(
                "INSERT INTO memories(key, text, tags, session, created) VALUES (?, ?, ?, ?, ?)",
                (memory.key, memory.text, " ".join(memory.tags), session, memory.created),
            )
        return memory

    def search(self, query: str, limit: int = 5) -> list[Memory]:
        """The memories that fit best, by any of the words."""
        words = re.findall(r"\w+", query)
        if not words or not self._path.exists():
            return []
        match = " OR ".join(f'"{word}"*' for word in words)
        with closing(self._connect()) as db:
            rows = db.execute(
                "SELECT key, text, tags, session, created FROM memories "
                "WHERE memories MATCH ? ORDER BY rank LIMIT ?",
                (match, limit),
            ).fetchall()
        return [_memory(row) for row in rows]

    def all(self) -> list[Memory]:
        """Everything, oldest first."""
        if not self._path.exists():
            return []
        with closing(self._connect()) as db:
            rows = db.execute("SELECT key, text, tags, session, created FROM memories").fetchall()
        return [_memory(row) for row in rows]

    def edit(self, key: str, text: str) -> bool:
        """Another text for a memory; False when there is none of that key."""
        if not self._path.exists():
            return False
        with closing(self._connect()) as db, db:
            changed = db.execute(
                "UPDATE memories SET text = ? WHERE key = ?", (text[:LONGEST], key)
            )
            return changed.rowcount > 0

    def forget(self, key: str) -> bool:
        """Removes a memory; False when there is none of that key."""
        if not self._path.exists():
            return False
        with closing(self._connect()) as db, db:
            return db.execute("DELETE FROM memories WHERE key = ?", (key,)).rowcount > 0

    def _connect(self, *, create: bool = False) -> sqlite3.Connection:
        try:
            if create:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            db = sqlite3.connect(self._path, timeout=5.0)
            db.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS memories USING fts5("
                "text, tags, key UNINDEXED, session UNINDEXED, created UNINDEXED, "
                "tokenize='unicode61')"
            )
        except (OSError, sqlite3.Error) as error:
            raise RecordError(f"{self._path}: the memory cannot be used ({error})") from error
        return db


async def remember(context: BuiltInContext, text: str, tags: Sequence[str] = ()) -> str:
    """Keeps what the user asked to keep."""
    store = MemoryStore(context.shared.config.paths.state)
    clean = context.shared.redactor.text(text)
    memory = await context.shared.workers.run(store.add, clean, tuple(tags), context.session.id)
    context.session.emit("memory.saved", key=memory.key, text=memory.text)
    return f"remembered as {memory.key}"


async def recall(context: BuiltInContext, query: str, limit: int = 5) -> str:
    """What was remembered about something."""
    store = MemoryStore(context.shared.config.paths.state)
    found = await context.shared.workers.run(store.search, query, limit)
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
                    "tags": {"type": "array", "items": {"type": "string"}},
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
                    "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 5},
                },
                "required": ["query"],
            },
            read_only=True, idempotent=True, concurrent=True,
        ),
    )  # fmt: skip
    return {tool.name: tool for tool in tools}


def _memory(row: Sequence[str]) -> Memory:
    key, text, tags, session, created = row
    return Memory(key, text, tuple(tags.split()), session, created)

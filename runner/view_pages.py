"""What a view answers: pages with a policy of their own each, and JSON."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from .cli.text import one_line
from .errors import RecordError
from .record.overview import Overview, overview
from .record.trajectory import listed

MOST_LISTED = 300
_GOAL_CHARS = 160
_COMMON = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, headers and a body. Nothing here is ever shared with another site."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def list_page(state: Path) -> Answer:
    """The sessions, newest first."""
    rows = "\n".join(_row(one) for one in _overviews(state))
    return _from_template(
        "view_list.html", {"ROWS": rows or "<tr><td>There are no sessions yet.</td></tr>"}
    )


def frame_page(session: str, *, controls: bool) -> Answer:
    """One session, followed. `controls`: with buttons."""
    values = {"SESSION": html.escape(session), "CONTROLS": "" if controls else "hidden"}
    return _from_template("view.html", values)


def session_page(text: str) -> Answer:
    """The page that `trace html` writes, to be shown within `frame_page` alone."""
    return _html(text, "frame-ancestors 'self'")


def json_answer(value: Any, status: int = 200) -> Answer:
    """A JSON document."""
    headers = {**_COMMON, "Content-Type": "application/json"}
    return Answer(status, headers, json.dumps(value).encode("ascii"))


def failure(status: int, text: str) -> Answer:
    """Why there is nothing to see."""
    headers = {**_COMMON, "Content-Type": "text/plain; charset=utf-8"}
    return Answer(status, headers, one_line(text).encode("utf-8", "replace"))


def _overviews(state: Path) -> Iterator[Overview]:
    for path in listed(state)[:MOST_LISTED]:
        try:
            yield overview(path)
        except RecordError:
            continue  # `runner sessions show` says why; the others can be looked at


def _row(one: Overview) -> str:
    name = html.escape(one_line(one.id))
    goal = html.escape(one_line(one.goal, _GOAL_CHARS))
    cells = f"<td>{one.turns}</td><td>{html.escape(one_line(one.status))}</td><td>{one.when}</td>"
    return f'<tr><td><a href="s/{name}">{name}</a></td>{cells}<td>{goal}</td></tr>'


def _from_template(name: str, values: Mapping[str, str]) -> Answer:
    template, policy = _template(name)
    for key, value in values.items():
        template = template.replace(f"@@{key}@@", value)
    return _html(template, policy)


@cache
def _template(name: str) -> tuple[str, str]:
    """The template and the policy that lets its own style and script run and nothing else."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    scripts = (
        f"script-src {_hash(text, 'script')}; connect-src 'self'; " if "<script>" in text else ""
    )
    policy = (
        f"default-src 'none'; style-src {_hash(text, 'style')}; {scripts}frame-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def _hash(text: str, element: str) -> str:
    inner = text.split(f"<{element}>", 1)[1].split(f"</{element}>", 1)[0]
    digest = hashlib.sha256(inner.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _html(text: str, policy: str) -> Answer:
    headers = {**_COMMON, "Content-Type": "text/html; charset=utf-8"}
    return Answer(
        200, {**headers, "Content-Security-Policy": policy}, text.encode("utf-8", "replace")
    )

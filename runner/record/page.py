"""A session as one page to look at: nothing is loaded, and nothing in the record can act."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any


def page(records: Iterable[Mapping[str, Any]], session: str, damage: Sequence[str] = ()) -> str:
    """The whole page. Its policy lets its own style and script run and nothing else."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src {_hash(template, '<style>', '</style>')}; "
        f"script-src {_hash(template, '<script>', '</script>')}; base-uri 'none'; form-action 'none'"
    )
    data = {"session": session, "records": list(records), "damage": list(damage)}
    values = {
        "POLICY": html.escape(policy),
        "TITLE": html.escape(f"{session} · slotrunner"),
        "DATA": embedded(data),
    }
    return re.sub(r"@@(POLICY|TITLE|DATA)@@", lambda found: values[found[1]], template)


def embedded(value: Any) -> str:
    """JSON for a script element: pure ASCII, and without a character that markup is made of."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _hash(template: str, start: str, end: str) -> str:
    """The content-security source of the one element between the two tags."""
    inner = template.split(start, 1)[1].split(end, 1)[0]
    digest = hashlib.sha256(inner.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

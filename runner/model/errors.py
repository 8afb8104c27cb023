"""What a model server's failure means: who may try again, and what the user can do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..errors import (
    ContextOverflow,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    ReplyUnreadable,
    ToolsUnsupported,
)

OK, REDIRECT, BAD, TOO_LARGE, RATE_LIMITED, SERVER_FAULT = 200, 300, 400, 413, 429, 500
MAX_DETAIL = 300
KEY_REFUSED = frozenset({401, 403})
TRY_LATER = frozenset({408, 409, 425, RATE_LIMITED})
NEVER = frozenset({501, 505})
OVERFLOW = (
    r"context_length_exceeded|exceed_context_size|maximum context length|max(?:imum)? context length"
    r"|exceeds? (?:the |its )?(?:available )?context (?:size|window|length|limit)"
    r"|context window exceeds|exceeds? the context|greater than the context length"
    r"|prompt is too long|prompt too long|prompt exceeds max|maximum prompt length"
    r"|input is too long|input length (?:and|exceeds)|range of input length"
    r"|input token count.{0,40}exceeds|exceeds? the maximum number of (?:input )?tokens"
    r"|reduce the length of the (?:messages|prompt)|exceeded model token limit"
    r"|too many (?:input )?tokens|`?inputs`? tokens \+ `?max_new_tokens"
    r"|prompt token count.{0,40}exceeds|contextwindowexceeded"
)
_COUNT = r"(\d{1,3}(?:[,_]\d{3})+|\d{3,8})\b(?![.,]\d| ?[km]\b)"
WINDOW = (  # a number behind each: tokens the model, or this server of it, holds
    rf"context length (?:is|of)(?: only)? {_COUNT}|context (?:size|window|length|limit) \({_COUNT}"
    rf"|\d tokens? > {_COUNT} maximum|maximum number of tokens allowed \({_COUNT}|n_ctx\D{{1,4}}{_COUNT}"
)
NO_TOOLS = (
    r"not support tools|not support (?:function|tool)[ -]?call|support tool use"
    r"|tools?(?: use| calling)? (?:is|are) not supported|tools param requires"
    r"|enable-auto-tool-choice|not support parameters: \[[^\]]*'tools'"
)
UNREADABLE = (
    r"does not match the expected peg|error parsing tool call|failed to parse tool call"
    r"|failed to parse input at pos|tool_use_failed|xml syntax error"
)
NO_MODEL = r"model\b.{0,120}(?:not found|does not exist|not exist)"
NO_QUOTA = r"insufficient_quota|exceeded your current quota|credit balance is too low"
HTML = r"\A\s*<(?:!doctype|html|head|body|h1|center|title)\b"


def classify(
    status: int | None,
    text: str,
    *,
    model: str = "the model",
    where: str = "",
    retry_after: float | None = None,
    key_env: str = "",
) -> ModelError:
    """The exception for an answer that is not a reply; `status` None: it came inside a stream."""
    place = f"{model} at {where}" if where else model
    if _says(HTML, text[:1000]):
        return _html(status, place, retry_after)
    detail = detail_of(text)
    if status in KEY_REFUSED:
        advice = f"check the variable {key_env}" if key_env else "set [model] api_key_env"
        return ModelRefused(f"{place} refused the key ({status}): {detail}; {advice}")
    known = _by_text(status, f"{place}: {detail}", model)
    return known or _by_status(status, place, detail, retry_after)


def window_in(said: str) -> int | None:
    """Tokens a server says it holds, when it refuses a request as too large."""
    found = re.search(WINDOW, said, re.IGNORECASE)
    numbers = filter(None, found.groups()) if found else ()
    return next((int(number.replace(",", "")) for number in numbers), None)


def counts_reply(said: str) -> bool:
    """Does a server that refuses a request as too large count the room asked for the reply, too?"""
    return (
        re.search(r"completion|max_(?:new_)?tokens|output tokens", said, re.IGNORECASE) is not None
    )


def unreachable(where: str, reason: str, *, advice: str = "") -> ModelUnavailable:
    """The exception for a server that cannot be connected to."""
    return ModelUnavailable(
        one_line(f"cannot reach {where}: {reason}{'; ' + advice if advice else ''}")
    )


def cut_off(model: str) -> ModelUnavailable:
    """The exception for a reply that ended before it was complete."""
    return ModelUnavailable(f"{model}: the connection ended before the reply was complete")


def read_retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds the server asks to wait, from a number or a date; headers in lower case."""
    milliseconds = headers.get("retry-after-ms", "")
    if _is_number(milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if _is_number(value):
        return float(value)
    if not value:
        return None
    from email.utils import parsedate_to_datetime  # slow to import and hardly ever needed

    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())


def detail_of(text: str) -> str:
    """The sentence inside an error body, whatever the provider wraps it in; one line, cut."""
    try:
        return one_line(_inner(json.loads(text)) or text)
    except (ValueError, RecursionError):
        return one_line(text)


def one_line(text: str) -> str:
    """The text without line breaks and control characters, at most `MAX_DETAIL` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * MAX_DETAIL]).split())
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1] + "…"


def _inner(value: Any) -> str:
    if isinstance(value, list) and value:
        return _inner(value[0])
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    for key in ("error", "message", "detail", "msg"):
        found = _inner(value.get(key))
        if found:
            code = value.get("code")
            return f"{found} ({code})" if isinstance(code, str) and code not in found else found
    return ""


def _by_text(status: int | None, said: str, model: str) -> ModelError | None:
    if status != RATE_LIMITED and (status == TOO_LARGE or _says(OVERFLOW, said)):
        return ContextOverflow(said)
    if _says(NO_TOOLS, said):
        return ToolsUnsupported(said)
    if _says(UNREADABLE, said):
        return ReplyUnreadable(f"the server could not read its own model's reply: {said}")
    if _says(NO_MODEL, said):
        return ModelRefused(f"{said}; {_pull_advice(model)}")
    if _says(NO_QUOTA, said):
        return ModelRefused(f"{said}; the account has no credit left")
    return None


def _by_status(
    status: int | None, place: str, detail: str, retry_after: float | None
) -> ModelError:
    if status is None:
        return ModelUnavailable(f"{place}: {detail}", retry_after=retry_after)
    said = f"{place} answered {status}{': ' + detail if detail else ''}"
    if _may_pass(status):
        return ModelUnavailable(said, retry_after=retry_after)
    if REDIRECT <= status < BAD:
        return ModelRefused(f"{place} redirects elsewhere ({status}): is base_url right?")
    return ModelRefused(said)


def _says(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None


def _may_pass(status: int) -> bool:
    return status in TRY_LATER or (status >= SERVER_FAULT and status not in NEVER)


def _html(status: int | None, place: str, retry_after: float | None) -> ModelError:
    said = f"{place} answered HTML, not JSON{f' ({status})' if status else ''}: is base_url right?"
    if status is not None and _may_pass(status):
        return ModelUnavailable(said, retry_after=retry_after)
    return ModelRefused(said)


def _pull_advice(model: str) -> str:
    provider, _, name = model.partition("/")
    return f"get it with: ollama pull {name}" if provider == "ollama" else "check [model] name"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d{1,9}(\.\d+)?", text) is not None

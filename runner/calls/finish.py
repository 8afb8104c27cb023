"""The one exit of a result: redact, hooks, redact, size; then it is final for everybody."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..context import tokens
from ..state import SessionState, Shared
from ..types import Kind, Tool, ToolCall, ToolResult
from .shape import READ_ONLY_FACTOR, Shaper, has_long_line

RESULT_SHARE = 0.25  # of the context budget, for one result
BATCH_SHARE = 0.5  # for all results of one batch
LEAST_CHARS = 400  # below this a result says nothing
NOTES_CHARS = 4000


@dataclass(slots=True)
class Allowance:
    """Characters a batch's results may still take. What one leaves over the next may use."""

    result_tokens: int
    chars_left: int
    calls_left: int

    @classmethod
    def of(cls, budget_tokens: int, batch_chars: int, calls: int) -> Allowance:
        """The allowance of a batch of so many calls."""
        batch = batch_chars or int(budget_tokens * BATCH_SHARE * 4)
        return cls(int(budget_tokens * RESULT_SHARE), batch, max(1, calls))

    def quota(self, text: str, wanted: int) -> int:
        """Characters the next result may take."""
        if len(text) <= min(wanted, self.result_tokens, self.chars_left // self.calls_left):
            return wanted  # a character is never more than a token, but for the rarest
        counted = max(1, tokens.estimate(text))
        by_window = int(self.result_tokens * len(text) / counted)
        share = self.chars_left // self.calls_left
        return min(wanted, max(LEAST_CHARS, min(by_window, share)))

    def take(self, used: int) -> None:
        """So many characters are gone."""
        self.chars_left = max(0, self.chars_left - used)
        self.calls_left = max(1, self.calls_left - 1)


async def finish(
    shared: Shared,
    session: SessionState,
    call: ToolCall,
    tool: Tool | None,
    result: ToolResult,
    allowance: Allowance,
) -> ToolResult:
    """The result as the model, the user and the disk get it. Emits `tool.finished`."""
    clean = shared.redactor.text
    content = clean(result.content)
    if content is not result.content or result.notes or result.output:
        notes, output = clean(result.notes), clean(result.output)
        result = replace(result, content=content, notes=notes, output=output)
    if tool is None:
        result = replace(result, tool=clean(result.tool))  # a name the model made up
    if shared.plugins.has("post_tool_use"):
        result = await _hooked(shared, session, call, result)
    result = await _sized(shared, session, tool, result, allowance)
    session.recent_outputs.append(result.content)
    del session.recent_outputs[:-8]
    _emit(session, result)
    return result


async def _hooked(
    shared: Shared, session: SessionState, call: ToolCall, result: ToolResult
) -> ToolResult:
    """What the hooks make of it, redacted again. They cannot make it another call's."""
    own = replace(call, arguments=copy.deepcopy(call.arguments))
    folding = shared.plugins.fold(
        "post_tool_use", "result", result, call=own, session=session.describe()
    )
    folded = await (session.turn.see_out(folding) if session.turn is not None else folding)
    clean = shared.redactor.text
    made: ToolResult = folded or result
    return replace(
        made,
        call_id=call.id,
        tool=result.tool,
        content=clean(str(made.content)),
        notes=clean(str(made.notes)),
        output=clean(str(made.output)),
    )


async def _sized(
    shared: Shared,
    session: SessionState,
    tool: Tool | None,
    result: ToolResult,
    allowance: Allowance,
) -> ToolResult:
    c = shared.config.results
    wanted = (tool.flags.max_result_chars if tool else None) or c.max_chars
    content, spilled = result.content, None
    if len(content) <= min(LEAST_CHARS, wanted, c.line_chars) and not result.notes:
        allowance.take(len(content))  # no quota is smaller
        return result
    whole = result.ok and tool is not None and tool.flags.read_only
    full = wanted * READ_ONLY_FACTOR if whole else wanted
    quota = allowance.quota(content, full)
    ours = tool is not None and tool.origin == "built-in"  # prose and pages, whose lines are whole
    line_chars = max(c.line_chars, full) if ours else c.line_chars
    if len(content) > quota or has_long_line(content, line_chars):
        shaper = Shaper(shared.spills / session.id)
        shaped = await shared.workers.run(
            lambda: shaper.shape(
                content,
                quota=quota,
                spill_limit=max(c.spill_chars, 3 * wanted),
                line_chars=line_chars,
            )
        )
        content, spilled = shaped.content, shaped.spilled_to
    session.spilled = session.spilled or spilled is not None
    allowance.take(len(content))
    if result.notes:
        content = f"{content}\n\n{result.notes[:NOTES_CHARS]}"
    if content is result.content:
        return result
    return replace(result, content=content, spilled_to=spilled or result.spilled_to)


def _emit(session: SessionState, result: ToolResult) -> None:
    changes = result.changes
    session.emit(
        "tool.finished",
        clean={"content": result.content, "output": result.output},
        call_id=result.call_id,
        tool=result.tool,
        ok=result.kind is Kind.OK,
        kind=result.kind.value,
        attempts=result.attempts,
        duration=round(result.duration, 6),
        degraded_by=result.degraded_by,
        changes=None
        if changes is None
        else {
            "created": list(changes.created),
            "modified": list(changes.modified),
            "deleted": list(changes.deleted),
        },
        spilled_to=result.spilled_to,
        coerced=list(result.coerced),
    )


def refused(call: ToolCall, kind: Kind, content: str) -> ToolResult:
    """The result of a call that runs no line of code."""
    return ToolResult(call_id=call.id, tool=call.name, kind=kind, content=content)


def named(names: Sequence[str], most: int = 12) -> str:
    """A short list of names for a message."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown

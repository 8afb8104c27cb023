"""`runner trace replay`: a session run again, with recorded results or with today's skills."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click

from ..record.replay import Replayed, replay
from ..record.turns import RecordedCall, RecordedReply
from .approval import approver
from .common import Common
from .options import command
from .text import dump, one_line

DIVERGED = 1
_ARGUMENTS, _RESULT = 80, 80


@command(
    "runner trace replay SESSION                  the record alone: nothing runs, nobody is asked",
    "runner trace replay SESSION --live           after an edit: does the skill still do the same?",
    "runner trace replay SESSION --live --from 3",
    name="replay",
)
@click.argument("session")
@click.option("--live", is_flag=True, help="Run the calls with the skills as they are now.")
@click.option(
    "--from", "start", type=click.IntRange(min=1), default=1, metavar="N",
    help="The iterations before N stand as recorded.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def replay_(common: Common, session: str, *, live: bool, start: int, as_json: bool) -> int:
    """Run a session again: recorded replies, recorded results, and the real parser and brakes.

    The model is never asked. With --live the skills run; a call that needs permission asks, and
    one whose arguments were redacted is left out. A turn that was taken back with /undo runs, for
    what its tools did stayed done, and is taken back again. Exit 1 with the first difference.
    """
    ask = approver(common.console, yes=False) if live else None
    done = asyncio.run(replay(common.load(), session, live=live, start=start, approver=ask))
    for sentence in done.damage:
        common.console.warn(sentence)
    if as_json:
        common.console.json(done.to_dict())
    else:
        for line in _lines(done):
            common.console.note(line)
        common.console.answer(done.story.answer)
    if done.divergence is None:
        return 0
    if not as_json:
        common.console.line(done.divergence.diff())
    return DIVERGED


def _lines(done: Replayed) -> Iterator[str]:
    end = done.divergence.number if done.divergence else None
    for turn in done.story.turns:
        yield f"turn {turn.number}: {one_line(turn.goal, _RESULT)}"
        for reply in turn.replies:
            yield from _reply(reply, done)
            if reply.number == end:
                return
        yield f"  {turn.status}" + (", taken back" if turn.undone_after else "")
    calls = f"{done.compared} call(s) as recorded"
    ran = f", {done.ran} of them run again" if done.live else ", none of them run"
    yield calls + ran


def _reply(reply: RecordedReply, done: Replayed) -> Iterator[str]:
    number = f"{reply.number:>4}  "
    if not reply.calls:
        yield number + one_line(reply.text or "(an empty reply)", _RESULT)
    for call in reply.calls:
        why = done.left_out.get(call.id)
        yield number + _call(call) + (f"  [not run: {why}]" if why else "")
        number = " " * 6


def _call(call: RecordedCall) -> str:
    result = one_line(call.content, _RESULT)
    said = result if call.kind == "ok" else f"{call.kind or 'no result'}: {result}"
    return f"{one_line(call.tool)} {one_line(dump(call.arguments), _ARGUMENTS)} = {said}"

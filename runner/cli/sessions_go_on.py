"""`runner sessions resume|fork`: go on where a session stopped, or from an earlier point of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError, SessionError
from ..record.fork import fork, free_id
from ..record.trajectory import check_id
from ..record.turns import load, story
from .common import Common
from .options import command
from .run import run_goal, turn_options

GO_ON = (
    "Go on with the task from the last finished call. What was interrupted has not been run again; "
    "check before you repeat anything that changes something."
)


@command(
    "runner sessions resume SESSION",
    'runner sessions resume SESSION "Now the tests as well" --json',
)
@click.argument("session")
@click.argument("text", required=False)
@turn_options
def resume(common: Common, session: str, text: str | None, **options: Any) -> int:
    """Go on with a session, after a crash, a limit or a quit. Exit codes are those of `run`.

    Without TEXT the model is asked to go on from the last finished call; nothing is run again.
    """
    goal = _goal_of(common.load(warn=False).paths.state, _checked(session))
    if text is not None and not text.strip():
        raise ConfigError("the text is empty; say what is to be done, or leave it out")
    return run_goal(common, text or _asked(goal), session, **options)


@command(
    "runner sessions fork SESSION --at 3",
    "runner sessions fork SESSION --at 2 --turn 1 --as another-try",
)
@click.argument("session")
@click.option(
    "--at",
    type=int,
    required=True,
    metavar="N",
    help="Keep N iterations of the last turn that stands.",
)
@click.option("--turn", type=int, metavar="T", help="Count N in turn T instead.")
@click.option("--as", "new", metavar="NEW", help="The new session's name; default: SESSION-at-N.")
def fork_(common: Common, session: str, at: int, turn: int | None, new: str | None) -> None:
    """A new session that holds the old one up to iteration N; the old one stays as it is.

    Prints the new session's name. Go on with: runner sessions resume NEW.
    """
    state = common.load().paths.state
    _checked(session)
    made = fork(
        state, session, _checked(new) if new else free_id(state, session, at), at=at, turn=turn
    )
    for sentence in made.warnings:
        common.console.warn(sentence)
    common.console.answer(made.session)
    common.console.note(f"go on with: runner sessions resume {made.session}")


def _checked(session: str) -> str:
    try:
        return check_id(session)
    except SessionError as error:
        raise ConfigError(str(error)) from error


def _goal_of(state: Path, session: str) -> str:
    turns = story(load(state, session).records, session).standing
    return turns[-1].goal if turns else ""


def _asked(goal: str) -> str:
    """The sentence for the model; a request to go on with an earlier one does not nest."""
    task = goal.partition("\n\nThe task: ")[2] if goal.startswith(GO_ON) else goal
    return f"{GO_ON}\n\nThe task: {task}" if task else GO_ON

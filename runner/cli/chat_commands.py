"""The commands of a conversation: lines that begin with a slash."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar

from ..config_check import located
from ..errors import ConfigError, RunnerError, SessionError
from ..runner import Runner
from ..session import Session
from ..types import Message
from .chat_screen import Screen
from .chat_view import ChatView
from .console import Console
from .progress import size
from .text import dump, one_line, table
from .trace import line_of

Call = Callable[[Coroutine[Any, Any, Any]], Any]
_LINE_CHARS = 200


class Leave(Exception):
    """The conversation is over."""


class Commands:
    """What `/name rest` does. `call` runs a coroutine where the session lives; `turn` one turn."""

    TABLE: ClassVar[dict[str, str]] = {
        "/help": "this list",
        "/skills": "the skills with their state and tools",
        "/status": "slots, calls in flight, breakers, context",
        "/trace": "what happened in the last turn",
        "/retry": "take the last turn back and run its goal again",
        "/undo": "take the last turn out of the conversation",
        "/model": "show the model, or go on with another one: /model NAME",
        "/compact": "make the context smaller",
        "/save": "write the conversation to a file: /save FILE",
        "/quit": "leave; Ctrl-D does so, too",
    }

    def __init__(
        self,
        console: Console,
        screen: Screen,
        runner: Runner,
        session: Session,
        view: ChatView,
        *,
        call: Call,
        turn: Callable[[str], None],
    ) -> None:
        self._console = console
        self._screen = screen
        self._runner = runner
        self._session = session
        self._view = view
        self._call = call
        self._turn = turn

    @classmethod
    def names(cls) -> list[str]:
        """What may be typed."""
        return list(cls.TABLE)

    def run(self, line: str) -> None:
        """Does what the line says. Raises `Leave` when that is to leave, else `RunnerError`."""
        name, _, rest = line.partition(" ")
        wanted = name.lower()
        if wanted in {"/exit", "/q"}:
            wanted = "/quit"
        if wanted not in self.TABLE:
            near = difflib.get_close_matches(wanted, self.TABLE, 1, 0.4)
            hint = f"did you mean {near[0]}?" if near else "see /help"
            raise ConfigError(
                f"no command {one_line(name, 40)}; {hint} (// sends a line that begins with /)"
            )
        act: Callable[[str], None] = getattr(self, f"_{wanted[1:]}")
        act(rest.strip())

    def _help(self, _rest: str) -> None:
        self._console.answer("\n".join(table(self.TABLE.items())))

    def _skills(self, _rest: str) -> None:
        skills = self._runner.shared.registry.snapshot.skills
        rows = [(s.name, s.state, ", ".join(t.name for t in s.tools) or s.form) for s in skills]
        for skill, line in zip(skills, table(rows), strict=True):
            self._console.answer(line + (f"\n    {one_line(skill.reason)}" if skill.reason else ""))
        if not skills:
            self._console.note("no skills here; runner skills new NAME writes one")

    def _status(self, _rest: str) -> None:
        self._console.answer("\n".join(status_lines(self._runner.status(), self._session.id)))

    def _trace(self, _rest: str) -> None:
        events = self._view.heard.events
        if not events:
            self._console.note("nothing has happened yet")
            return
        most = size()[0] - 1 if self._screen.animated else _LINE_CHARS
        lines = [one_line(line_of(event.to_dict()), most) for event in events]
        self._console.answer("\n".join(lines))

    def _retry(self, _rest: str) -> None:
        goal = self._call(self._session.undo())
        self._console.note(f"again: {one_line(goal, _LINE_CHARS)}")
        self._turn(goal)

    def _undo(self, _rest: str) -> None:
        goal = self._call(self._session.undo())
        self._console.note(
            f"taken back: {one_line(goal, _LINE_CHARS)} (what its tools did stays done)"
        )

    def _model(self, rest: str) -> None:
        if rest:
            self._call(self._session.use_model(located(rest, Path.cwd())))
        state = self._session.state
        if state is not None:
            if rest:
                self._view.follow(state)
            self._console.answer(
                f"{state.model.name}, {state.context_window} tokens of context, tools: {state.mode}"
            )

    def _compact(self, _rest: str) -> None:
        if not self._call(self._session.compact()):
            self._console.note("nothing could be left out")

    def _save(self, rest: str) -> None:
        if not rest:
            raise ConfigError("/save needs a file name")
        state = self._session.state
        if state is None or not state.transcript:
            raise SessionError("there is nothing to save yet")
        path = Path(rest).expanduser()
        clean = self._runner.shared.redactor.text
        try:
            with path.open("x", encoding="utf-8", errors="replace") as file:
                file.write(clean(as_markdown(state.transcript)))
        except FileExistsError as error:
            raise RunnerError(f"{path} is there already; name another file") from error
        except OSError as error:
            raise RunnerError(f"{path}: cannot be written ({error.strerror})") from error
        self._console.note(f"written to {path}")

    def _quit(self, _rest: str) -> None:
        raise Leave


def as_markdown(transcript: list[Message]) -> str:
    """The conversation for a reader."""
    parts = []
    for message in transcript:
        if message.mark == "goal":
            parts.append(f"## {message.content}")
        elif message.role == "assistant":
            parts += [message.content] if message.content else []
            parts += [f"- `{c.name}` `{dump(c.arguments)}`" for c in message.tool_calls]
        else:
            parts.append("\n".join(f"    {line}" for line in message.content.splitlines()))
    return "\n\n".join(parts) + "\n"


def status_lines(board: dict[str, Any], session: str) -> list[str]:
    """The board for a person."""
    slots, model, skills = board["slots"], board["model"], board["skills"]
    rows = [
        ("turns", f"{slots['used']} of {slots['limit']} slots, {slots['waiting']} waiting"),
        ("model", f"{model['used']} of {model['limit']} requests, {model['waiting']} waiting"),
    ]
    for s in board["sessions"]:
        if s["id"] == session:
            used = s["usage"]
            rows.append(("context", f"{s['context_tokens']} of {s['context_window']} tokens"))
            rows.append(
                (
                    "used",
                    f"{used['input_tokens']} + {used['output_tokens']} tokens, ${s['cost']:.4f}",
                )
            )
    rows += [("running", f"{c['tool']} for {c['seconds']:.1f} s") for c in board["calls"]]
    rows += [
        ("left behind", f"{tool} still runs after its deadline") for tool in board["abandoned"]
    ]
    rows += [
        ("breaker", f"{name} {b['state']}, {b['failures']} failures, {b['seconds']:.0f} s to go")
        for name, b in board["breakers"].items()
    ]
    rows += [
        ("gate", f"{name.partition(':')[0]}: {g['used']} of {g['limit']}, {g['waiting']} waiting")
        for name, g in board["gates"].items()
    ]
    rows.append(("skills", f"{skills['ready']} ready, watched by {board['watch']}"))
    rows += [("", f"{p['name']} {p['state']}: {p['reason']}") for p in skills["problems"]]
    return table(rows)

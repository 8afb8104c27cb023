"""Worked examples for models that are given their tools in text: call, result, answer, as real turns.

Without one small models hardly call at all; docs/decisions/0001 has the measurements. What an
example does, a small model does too: these only read, and their answers look like real ones,
because a placeholder is repeated word for word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..calls import example
from ..calls.schema import checker
from ..types import JSON, Message, Tool


@dataclass(frozen=True, slots=True)
class Example:
    """A small task done right: each step is a tool, its arguments and what it returned."""

    goal: str
    steps: tuple[tuple[str, JSON, str], ...]
    answer: str

    def shows(self, offered: Mapping[str, Tool]) -> bool:
        """Are all of its calls possible now?"""
        return all(
            name in offered and checker(offered[name].parameters).fits(arguments)
            for name, arguments, _ in self.steps
        )


LIST_THEN_READ = Example(
    "What does the letter in the folder letters say?",
    (
        ("list_files", {"path": "letters"}, "letters/anna.txt"),
        (
            "read_file",
            {"path": "letters/anna.txt"},
            "letters/anna.txt, lines 1-1 of 1\n1\tSee you on Monday.",
        ),
    ),
    "letters/anna.txt says: See you on Monday.",
)
EXAMPLES = (LIST_THEN_READ,)


def worked_examples(tools: Sequence[Tool], *, constrained: bool) -> tuple[Message, ...]:
    """The examples as turns of the conversation, with tools that are really offered."""
    offered = {tool.name: tool for tool in tools}
    shown = [one for one in EXAMPLES if one.shows(offered)] or list(_made(tools))
    return tuple(message for one in shown for message in _turns(one, constrained=constrained))


def text_call(name: str, arguments: JSON) -> str:
    """A call as a model without native calls writes it."""
    return json.dumps({"tool": name, "params": arguments}, ensure_ascii=False)


def text_result(name: str, content: str) -> str:
    """A result as a model without native calls is given it."""
    return f"Result of {name}:\n{content}"


def _turns(one: Example, *, constrained: bool) -> Iterator[Message]:
    yield Message(role="user", content=one.goal, mark="example")
    for name, arguments, result in one.steps:
        yield Message(role="assistant", content=text_call(name, arguments), mark="example")
        yield Message(role="user", content=text_result(name, result), mark="example")
    answer = json.dumps({"answer": one.answer}, ensure_ascii=False) if constrained else one.answer
    yield Message(role="assistant", content=answer, mark="example")


def _made(tools: Sequence[Tool]) -> Iterator[Example]:
    """An example from a manifest's own: of a tool that reads, else of one that destroys nothing."""
    harmless = [tool for tool in tools if not tool.flags.destructive and tool.skill != "built-in"]
    for tool in sorted(harmless, key=lambda t: not t.flags.read_only):
        arguments = _arguments(tool)
        if arguments is not None:
            given = ", ".join(
                f"{k} {json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items()
            )
            goal = f"What does {tool.name} give{' for ' + given if given else ''}?"
            yield Example(
                goal, ((tool.name, arguments, "first value: 17"),), "It gives: first value: 17"
            )
            return


def _arguments(tool: Tool) -> JSON | None:
    fits = checker(tool.parameters).fits
    return next((one for one in tool.examples if fits(one)), None) or example.valid(
        tool.parameters, fits
    )

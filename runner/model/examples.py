"""Worked examples for models that are given their tools in text: call, result, answer, as real turns.

Without them small models hardly call at all, and a placeholder in an answer is repeated word for
word; docs/decisions/0001 has the measurements. Each teaches one thing, and a last one that only
reads keeps a small model from writing what nobody asked for.
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


WRITES = Example(
    "Write the title of the book in the folder shelf into title.txt.",
    (
        ("list_files", {"path": "shelf"}, "shelf/b-17.txt"),
        (
            "read_file",
            {"path": "shelf/b-17.txt"},
            "shelf/b-17.txt, lines 1-2 of 2\n1\tTitle: Moby Dick\n2\tPages: 635",
        ),
        (
            "write_file",
            {"path": "title.txt", "content": "Moby Dick\n"},
            "created title.txt, 1 lines\n\n[Workspace Changes]\n+ title.txt (created, 10 B)",
        ),
    ),
    "title.txt now holds the title: Moby Dick.",
)
TRIES_AGAIN = Example(
    "How many pages do the books in books.txt have together?",
    (
        (
            "read_file",
            {"path": "books.txt"},
            (
                "no file 'books.txt'; did you mean 'old/books.txt'? "
                "The folder '.' holds: old/, zoo.txt."
            ),
        ),
        (
            "read_file",
            {"path": "old/books.txt"},
            "old/books.txt, lines 1-2 of 2\n1\tMoby Dick: 600 pages\n2\tEmma: 400 pages",
        ),
    ),
    "600 + 400 = 1000 pages.",
)
SAYS_WHAT_IS_MISSING = Example(
    "What does plan.txt say?",
    (("read_file", {"path": "plan.txt"}, "no file 'plan.txt'. The folder '.' holds: zoo.txt."),),
    "There is no file plan.txt.",
)
NEEDS_NO_TOOL = Example("Who wrote Hamlet?", (), "William Shakespeare wrote Hamlet.")
MAKES_A_TABLE = Example(
    "Make a table of the lines that mention Rome, without duplicates.",
    (
        (
            "search_files",
            {"text": "Rome"},
            ("plans/may.md:4,9: Fly to Rome\nplans/june.md:1: Rome, again"),
        ),
    ),
    "| file | line |\n|---|---|\n| plans/may.md | Fly to Rome |\n| plans/june.md | Rome, again |",
)
EXAMPLES = (WRITES, TRIES_AGAIN, SAYS_WHAT_IS_MISSING, NEEDS_NO_TOOL, MAKES_A_TABLE)


def worked_examples(tools: Sequence[Tool], *, constrained: bool) -> tuple[Message, ...]:
    """The examples as turns of the conversation, with tools that are really offered."""
    offered = {tool.name: tool for tool in tools}
    shown = [one for one in EXAMPLES if one.shows(offered)]
    if not any(one.steps for one in shown):
        shown = [NEEDS_NO_TOOL, *made] if (made := list(_made(tools))) else []
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

"""Twenty small tasks with a checkable outcome, and what nobody asked for in any of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Check = Callable[[str, Path], bool]
ACTING = frozenset({"write_file", "edit_file", "run_command", "fetch_url"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A goal over a few files. `may` names the acting tools and `changes` the files it asks for."""

    name: str
    goal: str
    solved: Check
    files: Mapping[str, str] = field(default_factory=dict)
    tools: frozenset[str] = frozenset()  # any of these is a right choice; none: no call is needed
    may: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()

    def lay_out(self, folder: Path) -> None:
        """Writes the task's files into a fresh workspace."""
        for name, text in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


def says(*words: str) -> Check:
    """The answer holds each of the words, in whatever case."""
    return lambda answer, _: all(word.casefold() in answer.casefold() for word in words)


def says_one_of(*words: str) -> Check:
    """The answer holds one of the words, in whatever case."""
    return lambda answer, _: any(word.casefold() in answer.casefold() for word in words)


def says_number(number: str) -> Check:
    """The answer holds the number, with or without thousands separators, as a word of its own."""
    found = re.compile(rf"(?<![\d.]){re.escape(number)}(?![\d])(?!\.[1-9])")
    return lambda answer, _: found.search(re.sub(r"(?<=\d),(?=\d{3})", "", answer)) is not None


def file_has(name: str, *parts: str, without: str = "") -> Check:
    """The file exists and holds the parts."""

    def check(_: str, folder: Path) -> bool:
        file = folder / name
        if not file.is_file():
            return False
        text = file.read_text(encoding="utf-8")
        return all(part in text for part in parts) and not (without and without in text)

    return check


def is_object(**wanted: str) -> Check:
    """The answer is, or holds in a fence, a JSON object with these values."""

    def check(answer: str, _: Path) -> bool:
        found = re.search(r"\{.*\}", answer, re.DOTALL)
        try:
            value = json.loads(found[0]) if found else None
        except ValueError:
            return False
        if not isinstance(value, dict):
            return False
        lower = {str(key).casefold(): str(item).casefold() for key, item in value.items()}
        return all(lower.get(key) == item.casefold() for key, item in wanted.items())

    return check


def once_each(*lines: str) -> Check:
    """The answer is a table that holds each of the texts exactly once."""
    return lambda answer, _: "|" in answer and all(answer.count(line) == 1 for line in lines)


READ = frozenset({"read_file", "search_files", "extract_config_items"})
FIND = frozenset({"search_files", "extract_config_items", "list_files"})
WRITE = frozenset({"write_file"})
CHANGE = frozenset({"write_file", "edit_file"})

TASKS = (
    Task(
        name="list",
        goal="Which files are in the folder notes?",
        files={"notes/apples.txt": "red\n", "notes/pears.txt": "green\n", "other.txt": "x\n"},
        tools=frozenset({"list_files"}),
        solved=says("apples.txt", "pears.txt"),
    ),
    Task(
        name="read",
        goal="What is the phone number of Maria? It is in contacts.txt.",
        files={"contacts.txt": "Paul: 555-0199\nMaria: 555-0142\n"},
        tools=READ,
        solved=says("555-0142"),
    ),
    Task(
        name="search",
        goal="Which file mentions a zebra?",
        files={"city.md": "Cars and trains.\n", "farm.md": "One zebra, two cows.\n"},
        tools=frozenset({"search_files"}),
        solved=says("farm.md"),
    ),
    Task(
        name="count",
        goal="How many files are in the folder docs?",
        files={f"docs/{name}.md": "text\n" for name in ("one", "two", "three", "four")},
        tools=frozenset({"list_files"}),
        solved=says_one_of("4", "four files"),
    ),
    Task(
        name="extract",
        goal="Show the lines of app.conf that contain TIMEOUT.",
        files={"app.conf": "NAME=shop\nTIMEOUT=30\nPORT=80\nREAD_TIMEOUT=75\n"},
        tools=READ,
        solved=says("TIMEOUT=30", "READ_TIMEOUT=75"),
    ),
    Task(
        name="dedupe",
        goal="Show the lines of server.log that contain ERROR, each different line once.",
        files={"server.log": "ERROR disk full\nok\nERROR disk full\nERROR no route\nok\n"},
        tools=READ,
        solved=lambda answer, _: (
            answer.count("disk full") == 1 and answer.count("no route") == 1
        ),
    ),
    Task(
        name="write",
        goal="Write a file hello.txt with the text: good morning",
        tools=WRITE,
        may=WRITE,
        changes=frozenset({"hello.txt"}),
        solved=file_has("hello.txt", "good morning"),
    ),
    Task(
        name="edit",
        goal="In settings.ini, change the port from 80 to 8080.",
        files={"settings.ini": "[web]\nhost = example\nport = 80\n"},
        tools=CHANGE | READ,
        may=CHANGE,
        changes=frozenset({"settings.ini"}),
        solved=file_has("settings.ini", "port = 8080", "host = example"),
    ),
    Task(
        name="copy",
        goal="Copy the text of first.txt into a new file second.txt.",
        files={"first.txt": "the quick brown fox\n"},
        tools=frozenset({"read_file"}),
        may=WRITE,
        changes=frozenset({"second.txt"}),
        solved=file_has("second.txt", "the quick brown fox", without="1\t"),
    ),
    Task(
        name="add",
        goal="What is 48217 plus 3946? Use the add tool.",
        tools=frozenset({"add"}),
        solved=says_number("52163"),
    ),
    Task(
        name="convert",
        goal="How many degrees Fahrenheit are 37.5 degrees Celsius?",
        tools=frozenset({"convert_temperature"}),
        solved=says_number("99.5"),
    ),
    Task(
        name="sum-of-file",
        goal="numbers.txt holds two numbers. What is their sum?",
        files={"numbers.txt": "4711\n1289\n"},
        tools=frozenset({"read_file"}),
        solved=says_number("6000"),
    ),
    Task(name="no-tool", goal="What is the capital of France?", solved=says("Paris")),
    Task(
        name="missing",
        goal="What does the file invoice.txt say?",
        files={"letter.txt": "Dear Sir\n"},
        tools=frozenset({"read_file", "list_files", "search_files"}),
        solved=says_one_of(
            "not exist", "no file", "not found", "n't exist", "no such", "not there", "n't find",
            "missing", "not a file", "could not", "cannot find", "not available", "not present",
        ),
    ),
    Task(
        name="wrong-type",
        goal="Show 2 lines of poem.txt, starting from line 3.",
        files={"poem.txt": "alpha\nbravo\ncharlie\ndelta\necho\n"},
        tools=frozenset({"read_file"}),
        solved=lambda answer, _: (
            "charlie" in answer and "delta" in answer and "bravo" not in answer
        ),
    ),
    Task(
        name="json-answer",
        goal="Read user.txt and answer with a JSON object with the keys name and age.",
        files={"user.txt": "Ana is 31 years old.\n"},
        tools=READ,
        solved=is_object(name="Ana", age="31"),
    ),
    Task(
        name="wrong-folder",
        goal="What is the code in docs/report.txt?",
        files={"docs/2024/report.txt": "The code is 7391.\n", "docs/a.txt": "nothing\n"},
        tools=READ,
        solved=says_number("7391"),
    ),
    Task(
        name="table",
        goal="Find every line with RETRIES in the documents in docs, drop duplicates, "
        "group them by file and make a table.",
        files={
            "docs/setup.md": "# Setup\nRETRIES=3\nStart it.\nRETRIES=3\n",
            "docs/deploy.md": "# Deploy\nMAX_RETRIES=9\nGo.\n",
            "docs/faq.md": "# FAQ\nAsk us.\n",
        },
        tools=FIND,
        solved=lambda answer, _: (
            "setup.md" in answer and "deploy.md" in answer and "|" in answer
            and "MAX_RETRIES=9" in answer and answer.count("RETRIES=3") == 1
        ),
    ),
    Task(
        name="list-then-read",
        goal="There is one file in the folder inbox. What does it say?",
        files={"inbox/m-20931.txt": "Meet at the purple door.\n"},
        tools=frozenset({"list_files"}),
        solved=says("purple door"),
    ),
    Task(
        name="find-then-write",
        goal="Find out which file in src contains 'def total' and write its name into answer.txt.",
        files={"src/cart.py": "def total(x):\n    return x\n", "src/main.py": "import cart\n"},
        tools=frozenset({"search_files"}),
        may=WRITE,
        changes=frozenset({"answer.txt"}),
        solved=file_has("answer.txt", "cart.py"),
    ),
)  # fmt: skip

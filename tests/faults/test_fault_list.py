"""The fault list has a test for every row. These rows concern what is not there, or only in part:

| row | what the list asks for | what is there instead |
|---|---|---|
| 14 | stealing a session from a stopped process | nothing is stolen: a stopped holder keeps its session, and whoever asks hears its pid |
| 16, 33 | a watchdog that names a call which holds the interpreter | the deadline names it as soon as the interpreter moves again; in process mode it is killed |
| 25 | counts of leaked threads and files, a worker recycled | a leak is no failure; workers are recycled after a number of calls |
| 31 | the environment compared after each call | the working folder is put back; the environment is shared by design, and process mode has its own |
| 51 | `--steal` | the left-behind process that holds the session is named, to be ended |
| 70 | zip archives of skills | skills are folders; nothing unpacks an archive |
"""

from __future__ import annotations

import ast
from pathlib import Path

ROWS = range(1, 81)
NOT_THERE = {70}
# tests/faults/test_process_faults.py walks these rows without marking each test
IN_PROCESSES = {*range(15, 25), *range(26, 32), 78, 79, 80}


def marked() -> set[int]:
    """The rows that some test bears."""
    found: set[int] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "row"
            ):
                found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return found


def test_every_row_of_the_fault_list_has_a_test():
    assert set(ROWS) - marked() - IN_PROCESSES - NOT_THERE == set()


def test_nothing_unpacks_an_archive():
    import runner

    sources = [p.read_text(encoding="utf-8") for p in Path(runner.__file__).parent.rglob("*.py")]
    assert not [s for s in sources if "import zipfile" in s or "import tarfile" in s]

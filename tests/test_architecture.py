"""The picture in the README, kept true: layers, sizes, docstrings, public names."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import runner

ROOT = Path(runner.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MAX_FILE, MAX_FUNCTION = 400, 50

# Functions longer than 50 lines, each with its reason.
LONG_FUNCTIONS: dict[str, str] = {}

# Bottom up. A module may import from its own layer and those below, never from one above.
# The first pattern that fits a module's name decides where it belongs.
LAYERS: tuple[tuple[str, str], ...] = (
    ("nouns", "types errors skill events log"),
    (
        "the loop's callers",
        "__init__ __main__ cli cli.* drill* view* record.player record.replay record.export",
    ),
    ("the front door", "runner"),
    ("sessions", "session revise opening subagent board"),
    ("the loop", "loop asking offering reading summary endings builtins memory"),
    (
        "calls",
        "calls.admit calls.batch calls.execute calls.run calls.aside calls.attempt calls.finish calls.verdict",
    ),
    ("state", "state"),
    (
        "machinery",
        "model.* plugins plugin_loading shellhooks skillhooks observing context.* calls.process* calls.child record.*",
    ),
    ("leaves", "*"),
)
ORDER = (
    "nouns",
    "leaves",
    "machinery",
    "state",
    "calls",
    "the loop",
    "sessions",
    "the front door",
    "the loop's callers",
)


def layer_of(module: str) -> str:
    return next(
        layer for layer, names in LAYERS if any(fnmatchcase(module, name) for name in names.split())
    )


def name_of(path: Path) -> str:
    relative = path.relative_to(ROOT).with_suffix("")
    parts = (
        relative.parts[:-1]
        if relative.name == "__init__" and len(relative.parts) > 1
        else relative.parts
    )
    return ".".join(parts)


def imports_of(path: Path) -> set[str]:
    """The modules of ours that it imports, inside functions and type-only imports included."""
    here = name_of(path).split(".")
    package = here if path.name == "__init__.py" else here[:-1]
    if name_of(path) == "__init__":
        package = []
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            stem = [*base, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                full = ".".join([*stem, alias.name])
                found.add(full if full in NAMES else ".".join(stem) or "__init__")
    return {name for name in found if name != name_of(path)}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    here = ORDER.index(layer_of(name_of(path)))
    wrong = [m for m in sorted(imports_of(path)) if m in NAMES and ORDER.index(layer_of(m)) > here]
    assert not wrong, f"{name_of(path)} ({ORDER[here]}) may not import {wrong}"


NAMES = {name_of(path) for path in MODULES}
GRAPH = {name_of(path): imports_of(path) for path in MODULES}


def test_there_are_no_import_cycles() -> None:
    seen: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if seen.get(name) == 2:
            return
        assert name not in trail, f"cycle: {' → '.join([*trail[trail.index(name) :], name])}"
        for there in sorted(GRAPH.get(name, ())):
            visit(there, (*trail, name))
        seen[name] = 2

    for name in sorted(GRAPH):
        if name != "__init__":
            visit(name, ())


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_file_can_be_read_in_one_go(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_FILE, f"{lines} lines"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_function_fits_on_a_page(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            where = f"{name_of(path)}.{node.name}"
            assert length <= MAX_FUNCTION or where in LONG_FUNCTIONS, f"{where}: {length} lines"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_what_others_use_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "no module docstring"
    for node in tree.body:
        if isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"


def test_the_public_names_are_sorted_and_there() -> None:
    assert list(runner.__all__) == sorted(runner.__all__)
    for name in runner.__all__:
        assert getattr(runner, name) is not None


def test_only_its_adapter_imports_litellm() -> None:
    importers = {
        name_of(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (
            isinstance(node, ast.Import)
            and any(a.name.split(".")[0] == "litellm" for a in node.names)
        )
        or (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] == "litellm"
        )
    }
    assert importers <= {"model.litellm"}

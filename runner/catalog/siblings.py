"""`import helper` beside a skill: made to mean the skill's own module, whatever `sys.path` says.

A name of the standard library keeps its meaning: a file `json.py` beside a skill is reached with
`from . import json` alone.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping


def names(files: Mapping[str, bytes]) -> frozenset[str]:
    """The modules that lie in the skill's folder."""
    tops = {name.partition("/")[0].removesuffix(".py") for name in files if name.endswith(".py")}
    return frozenset(tops - {"__init__"})


def relative(files: Mapping[str, bytes], name: str, path: str) -> ast.Module | None:
    """The module's tree with its sibling imports made relative; None when it has none."""
    own = names(files) - sys.stdlib_module_names
    if len(own) < 2 and "/" not in name:  # noqa: PLR2004  # itself and at least one more
        return None
    words = "|".join(sorted(map(re.escape, own)))
    if not own or not re.search(rf"\b(?:import|from)\s[^\n]*\b(?:{words})\b".encode(), files[name]):
        return None
    tree = ast.parse(files[name], path)
    level = name.count("/") + 1
    _Rewriter(own, level).visit(tree)
    return ast.fix_missing_locations(tree)


def hint(error: BaseException, files: Mapping[str, bytes]) -> str:
    """What to write instead when a sibling was not found by its bare name."""
    missing = (
        (error.name or "").rpartition(".")[2] if isinstance(error, ModuleNotFoundError) else ""
    )
    if missing in names(files):
        return f"; {missing} lies in the skill's folder: write 'from . import {missing}'"
    return ""


class _Rewriter(ast.NodeTransformer):
    def __init__(self, own: frozenset[str], level: int) -> None:
        self._own = own
        self._level = level

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        parts: list[ast.stmt] = []
        for alias in node.names:
            parts += self._one(alias) if self._ours(alias.name) else [ast.Import([alias])]
        return [ast.copy_location(part, node) for part in parts]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        if node.level == 0 and node.module and self._ours(node.module):
            return ast.copy_location(ast.ImportFrom(node.module, node.names, self._level), node)
        return node

    def _one(self, alias: ast.alias) -> list[ast.stmt]:
        """`import a.b` binds `a` and sees to it that `a.b` is imported."""
        top, _, rest = alias.name.partition(".")
        if not rest:
            return [ast.ImportFrom(None, [ast.alias(top, alias.asname)], self._level)]
        package, _, last = alias.name.rpartition(".")
        inner = ast.ImportFrom(
            package, [ast.alias(last, alias.asname or f"_{top}_{last}")], self._level
        )
        if alias.asname:
            return [inner]
        return [inner, ast.ImportFrom(None, [ast.alias(top)], self._level)]

    def _ours(self, name: str) -> bool:
        return name.partition(".")[0] in self._own

"""Are the hooks a module implements spelt right? A guard that is silently absent is worse than none."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence

MARKER = "HookimplMarker"
HookSpecs = Mapping[str, tuple[str, ...]]


def faults(files: Mapping[str, bytes], declared: Sequence[str], specs: HookSpecs) -> list[str]:
    """Misspelt hooks and arguments, hooks not named in the manifest, and named ones not there."""
    found = [
        _unknown("the manifest's hooks", name, specs) for name in declared if name not in specs
    ]
    marked: set[str] = set()
    for name, data in files.items():
        if name.endswith(".py") and (b"hookimpl" in data or MARKER.encode() in data):
            for line, function, hook, arguments in _implementations(data):
                marked.add(hook)
                found += _check(f"{name}:{line}: {function}", hook, arguments, specs)
                if hook in specs and hook not in declared:
                    found.append(
                        f'{name}:{line}: {hook} is not in the manifest\'s list, so it would never run; add hooks = ["{hook}"]'
                    )
    found += [
        f"hooks: {n!r} is named, but no function is marked as it"
        for n in declared
        if n in specs and n not in marked
    ]
    return found


def _check(where: str, hook: str, arguments: Sequence[str], specs: HookSpecs) -> list[str]:
    if hook not in specs:
        return [_unknown(where, hook, specs)]
    return [
        f"{where}: hook {hook!r} has no argument {name!r}{_near(name, specs[hook])}; it has {', '.join(specs[hook])}"
        for name in arguments
        if name not in specs[hook]
    ]


def _unknown(where: str, hook: str, specs: HookSpecs) -> str:
    return f"{where}: there is no hook {hook!r}{_near(hook, specs)}; hooks are {', '.join(specs)}"


def _near(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _implementations(data: bytes) -> Iterator[tuple[int, str, str, list[str]]]:
    tree = ast.parse(data)
    markers = _markers(tree)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            if _is_marker(decorator, markers):
                args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                yield node.lineno, node.name, _hook(decorator, node.name), [a.arg for a in args]


def _markers(tree: ast.Module) -> set[str]:
    """Names that hold a marker: imported as another name, or made by `HookimplMarker("runner")`."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "runner":
            found |= {a.asname or a.name for a in node.names if a.name == "hookimpl"}
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and _makes_marker(node.value)
        ):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def _is_marker(node: ast.expr, markers: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return _makes_marker(node) or _is_marker(node.func, markers)
    if isinstance(node, ast.Attribute):
        return (
            node.attr == "hookimpl"
            and isinstance(node.value, ast.Name)
            and node.value.id == "runner"
        )
    return isinstance(node, ast.Name) and node.id in markers


def _makes_marker(call: ast.Call) -> bool:
    """A marker of another project is none of ours."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    ours = (
        bool(call.args)
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value == "runner"
    )
    return name == MARKER and ours


def _hook(decorator: ast.expr, name: str) -> str:
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        if keyword.arg == "specname" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return name

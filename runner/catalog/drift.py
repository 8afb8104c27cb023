"""Does a manifest say what its function takes? A parameter only one of them knows is an error."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ..types import JSON
from .signature import Function, Parameter, is_context


def faults(tool: str, schema: JSON, function: Function) -> list[str]:
    """How the manifest's parameters and the function as written differ; empty when they agree."""
    if function.decorated:
        return []  # what it takes is known only once it is loaded
    return _compare(tool, schema, function.name, function.parameters, any_name=function.takes_any)


def faults_of_loaded(tool: str, schema: JSON, function: Callable[..., Any]) -> list[str]:
    """The same for a loaded function, decorators included."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return []  # some built-ins do not say what they take
    parameters = [
        Parameter(
            name=name,
            required=p.default is p.empty,
            schema={},
            context=is_context(name, "" if p.annotation is p.empty else str(p.annotation)),
            positional_only=p.kind is p.POSITIONAL_ONLY,
        )
        for name, p in signature.parameters.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    any_name = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    name = getattr(function, "__name__", tool)
    return _compare(tool, schema, name, parameters, any_name=any_name)


def agree(schema: JSON, names: Iterable[str]) -> bool:
    """The common case, checked by names alone: each parameter is in both."""
    properties = schema.get("properties", {})
    taken = {name for name in names if name != "ctx" or name in properties}
    return taken == properties.keys() and taken.issuperset(schema.get("required", ()))


def _compare(
    tool: str, schema: JSON, name: str, parameters: Iterable[Parameter], *, any_name: bool
) -> list[str]:
    properties = schema.get("properties", {})
    declared = {*properties, *schema.get("required", ())}
    taken = {p.name: p for p in parameters if not p.context or p.name in properties}
    missing = [] if any_name else sorted(declared - taken.keys())
    extra = sorted(n for n, p in taken.items() if n not in declared and p.required)
    found = [_renamed(tool, name, missing, extra)] if missing and extra else []
    if not found:
        found += [
            f"tool {tool!r}: the manifest names {n!r}, which {name}() does not take{_near(n, taken)}"
            for n in missing
        ]
        found += [
            f"tool {tool!r}: {name}() needs {n!r}, which the manifest does not name" for n in extra
        ]
    only = sorted(n for n, p in taken.items() if p.positional_only and n in declared)
    found += [f"tool {tool!r}: {name}() takes {n!r} by position only; remove the '/'" for n in only]
    return found


def _renamed(tool: str, name: str, missing: list[str], extra: list[str]) -> str:
    return (
        f"tool {tool!r}: the manifest names {_list(missing)} where {name}() takes {_list(extra)}; "
        "give both the same name"
    )


def _near(name: str, taken: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(taken), 1, 0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names))

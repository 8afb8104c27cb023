"""Python functions as tools: for hosts that pass objects instead of folders."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import SkillError
from ..skill import SkillContext
from ..types import JSON, Entry, Flags, Tool
from .skill import Skill

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TYPES: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object",
}  # fmt: skip


def as_skill(given: Any, **flags: Any) -> Skill:
    """A `Skill` as it is, a `Tool` or a function wrapped into one."""
    if isinstance(given, Skill):
        return given
    tool = given if isinstance(given, Tool) else tool_from(given, **flags)
    return Skill(
        name=tool.skill or tool.name,
        path=Path(tool.folder or "."),
        location=Path(tool.folder or "."),
        description=tool.description,
        tools=(tool,),
        origin="object",
    )


def tool_from(function: Callable[..., Any], **flags: Any) -> Tool:
    """A tool from a function's name, docstring and annotations. `flags` as in a manifest."""
    if not callable(function) or not getattr(function, "__name__", ""):
        raise SkillError(f"{function!r} is neither a Skill, a Tool nor a named function")
    if not _NAME.fullmatch(function.__name__):
        raise SkillError(f"{function!r} has no name a model could call; use `def`")
    hints = get_type_hints(function)
    context = None
    properties: JSON = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if hints.get(name) is SkillContext or name == "ctx":
            context = name
            continue
        properties[name] = _schema(hints.get(name, Any))
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    entry = Entry(function, context, inspect.iscoroutinefunction(function))
    return Tool(
        name=function.__name__,
        description=inspect.getdoc(function) or function.__name__,
        parameters={
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        flags=Flags(**flags),
        skill=function.__name__,
        origin="object",
        load=lambda: entry,
    )


def _schema(hint: Any) -> JSON:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0])} if arguments else {"type": "array"}
    if origin is dict:
        return {"type": "object"}
    if origin is Union or (origin is not None and origin.__name__ == "UnionType"):
        several = [_schema(a) for a in arguments if a is not type(None)]
        return several[0] if len(several) == 1 else {"anyOf": several}
    return {"type": _TYPES[hint]} if hint in _TYPES else {}

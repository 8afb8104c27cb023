"""What a module's functions take, read from its source without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ..types import JSON

CONTEXT = "SkillContext"
_SIMPLE: Mapping[str, JSON] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "tuple": {"type": "array"},
    "set": {"type": "array"},
    "Sequence": {"type": "array"},
    "Iterable": {"type": "array"},
    "dict": {"type": "object"},
    "Mapping": {"type": "object"},
    "Path": {"type": "string"},
    "None": {"type": "null"},
}
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a function. `schema` is derived from annotation, default and docstring."""

    name: str
    required: bool
    schema: JSON
    context: bool = False
    positional_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function as it is written. `decorated`: what it takes may differ from what is written."""

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    takes_any: bool = False
    decorated: bool = False
    docstring: str = ""


@dataclass(frozen=True, slots=True)
class Module:
    """The functions a module defines and every other name it binds."""

    functions: Mapping[str, Function]
    names: frozenset[str]

    @property
    def public(self) -> tuple[str, ...]:
        return tuple(name for name in self.functions if not name.startswith("_"))


def read(source: bytes, filename: str) -> Module:
    """What the module defines; raises `SyntaxError` or `ValueError` when it is not Python."""
    tree = ast.parse(source, filename)
    functions: dict[str, Function] = {}
    names: set[str] = set()
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = _function(node)
        else:
            names.update(_bound(node))
    return Module(functions, frozenset(names))


def quick_names(code: CodeType, function: str) -> tuple[str, ...] | None:
    """The parameter names of a function in a compiled module; None when it takes a closer look."""
    found = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == function]
    if len(found) != 1 or found[0].co_posonlyargcount or found[0].co_flags & 0x0C:
        return None
    count = found[0].co_argcount + found[0].co_kwonlyargcount
    return found[0].co_varnames[:count]


def derive(function: Function) -> JSON:
    """The parameters schema a function's signature and docstring amount to."""
    taken = [p for p in function.parameters if not p.context]
    schema: JSON = {"type": "object", "properties": {p.name: p.schema for p in taken}}
    required = [p.name for p in taken if p.required]
    if required:
        schema["required"] = required
    if not function.takes_any:
        schema["additionalProperties"] = False
    return schema


def described(docstring: str) -> dict[str, str]:
    """The meaning of each parameter in a docstring: `Args:` sections and `:param name:` lines."""
    found = {
        m[1]: m[2].strip()
        for m in re.finditer(r":param\s+(?:[\w\[\]., |]+\s)?(\w+):(.*)", docstring)
    }
    section = re.search(
        r"^[ \t]*(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+.*\n?|[ \t]*\n)*)",
        docstring,
        re.MULTILINE,
    )
    if section is None:
        return found
    name = ""
    indents = [len(x) - len(x.lstrip()) for x in section[1].splitlines() if x.strip()]
    for line in section[1].splitlines():
        item = re.match(r"(\s*)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)", line)
        if item and len(item[1]) == min(indents):
            name = item[2]
            found[name] = item[3].strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
        if not line.strip():
            name = ""
    return found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, those under `if`, `try` and `with` too."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _statements(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from _statements(handler.body)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
    return set()


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    docstring = ast.get_docstring(node) or ""
    meanings = described(docstring) if docstring else {}
    return Function(
        name=node.name,
        line=node.lineno,
        parameters=tuple(_parameters(node.args, meanings)),
        takes_any=node.args.kwarg is not None,
        decorated=bool(node.decorator_list),
        docstring=docstring,
    )


def _parameters(args: ast.arguments, meanings: Mapping[str, str]) -> Iterator[Parameter]:
    positional = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults)) + list(
        args.defaults
    )
    pairs = [
        *zip(positional, defaults, strict=True),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]
    for index, (arg, default) in enumerate(pairs):
        yield Parameter(
            name=arg.arg,
            required=default is None,
            schema=_described(_schema(arg.annotation), default, meanings.get(arg.arg, "")),
            context=is_context(
                arg.arg, "" if arg.annotation is None else ast.unparse(arg.annotation)
            ),
            positional_only=index < len(args.posonlyargs),
        )


def is_context(name: str, annotation: str) -> bool:
    """True for the parameter that is given the `SkillContext`."""
    return name == "ctx" or re.search(rf"\b{CONTEXT}\b", annotation) is not None


def _described(schema: JSON, default: ast.expr | None, meaning: str) -> JSON:
    described_ = dict(schema)
    if meaning:
        described_["description"] = meaning
    value = _literal(default)
    if value is not _ABSENT and value is not None:
        described_["default"] = value
    return described_


def _literal(node: ast.expr | None) -> Any:
    if node is None:
        return _ABSENT
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return _ABSENT
    return value if isinstance(value, str | int | float | bool | list | dict | None) else _ABSENT


def _schema(node: ast.expr | None) -> JSON:
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):
            return _parsed(text)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return dict(_SIMPLE.get(name, {}))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either([left, right])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic(name, list(inner.elts) if isinstance(inner, ast.Tuple) else [inner])
        case _:
            return {}


def _parsed(text: str) -> JSON:
    try:
        return _schema(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return {}


def _generic(name: str, inner: list[ast.expr]) -> JSON:
    if name == "Literal":
        values = [_literal(node) for node in inner]
        return {} if _ABSENT in values else _enumeration(values)
    if name == "Optional":
        return _either([*inner, ast.Constant(value=None)])
    if name == "Union":
        return _either(inner)
    if name == "Annotated":
        return _annotated(inner)
    schema = dict(_SIMPLE.get(name, {}))
    if schema.get("type") == "array" and name != "tuple":
        items = _schema(inner[0])
        return {**schema, "items": items} if items else schema
    if schema.get("type") == "object" and len(inner) == 2:  # noqa: PLR2004  # dict[key, value]
        values_schema = _schema(inner[1])
        return {**schema, "additionalProperties": values_schema} if values_schema else schema
    return schema


def _annotated(inner: list[ast.expr]) -> JSON:
    schema = _schema(inner[0])
    text = next((_literal(n) for n in inner[1:] if isinstance(_literal(n), str)), "")
    return {**schema, "description": text} if text else schema


def _enumeration(values: list[Any]) -> JSON:
    schema: JSON = {"enum": values}
    if all(isinstance(value, str) for value in values):
        schema["type"] = "string"
    return schema


def _either(nodes: list[ast.expr]) -> JSON:
    """`str | None` is an optional string: leaving the argument out says None."""
    parts = [_schema(node) for node in nodes]
    parts = [part for part in parts if part != {"type": "null"}]
    if not parts or not all(parts):
        return {}
    return parts[0] if len(parts) == 1 else {"anyOf": parts}

"""Check one config value against its rule. Returns the value in its final type, or says what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .settings import CAPABILITIES, POLICIES, Rule

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(ms|s|m|h)\s*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PATTERN = re.compile(r"[A-Za-z0-9_*?-]+(\(.*\))?", re.ASCII)


class Wrong(ValueError):
    """The value is not what its rule asks for; the text says what is, and the fix."""


def check(rule: Rule, value: Any, base: Path, home: Path) -> Any:
    """The value as its field holds it. `base`: what relative paths are relative to."""
    match rule.sort:
        case "path":
            return _path(value, base, home)
        case "paths":
            return tuple(_path(item, base, home) for item in _list(value))
        case "choice":
            return _choice(value, rule.choices)
        case "whole" | "number" | "seconds":
            return _bounded(_READERS[rule.sort](value), rule)
        case _:
            return _READERS[rule.sort](value)


def is_scope(key: str) -> bool:
    """True for `net:127.0.0.1` and its kin: a capability, a colon, what it is about."""
    capability, colon, scope = key.partition(":")
    return bool(colon and scope.strip()) and capability in CAPABILITIES


def suspect(rule: Rule, value: Any, checked: Any) -> str:
    """A question when a time looks as if it had another unit, else nothing."""
    if rule.sort != "seconds" or checked <= 3600:  # noqa: PLR2004 - an hour
        return ""
    if isinstance(value, str) and not re.search(r"\ds\s*$|\d\s+s\s*$", value):
        return ""
    return f'is {checked:g} s, more than an hour; were milliseconds meant? That is "{checked:g}ms"'


def kind_of(value: Any) -> str:
    """What a value is, in a user's words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text {brief(value)!r}"
    if isinstance(value, int | float):
        return _digits(value)
    if value is None:
        return "null"
    if isinstance(value, list | tuple | dict):
        return "a table" if isinstance(value, dict) else "a list"
    return f"a {type(value).__name__}"


def _digits(value: float) -> str:
    try:
        return brief(str(value))
    except ValueError:  # too long for `str` to write
        return "a number of thousands of digits"


def brief(text: str) -> str:
    """At most 60 characters of it."""
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - said above


def _text(value: Any) -> str:
    text = _prose(value)
    if has_controls(text):
        raise Wrong(f"holds control characters; {SINGLE_QUOTES}")
    return text


def _prose(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(f"must be text in quotes, not {kind_of(value)}")
    return value


def _variable(value: Any) -> str:
    """Never shows the value: somebody may have put the key itself here."""
    text = _prose(value)
    if text and not _VARIABLE.fullmatch(text):
        raise Wrong(
            "must be the name of an environment variable, such as OPENAI_API_KEY, not a key"
        )
    return text


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"must be true or false, not {kind_of(value)}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wrong(f"must be a whole number, not {kind_of(value)}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"must be a number, not {kind_of(value)}")
    return _finite(value)


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        found = _DURATION.fullmatch(value)
        if found is None:
            raise Wrong(
                f'must be seconds or text with a unit ("30s", "5m", "250ms", "1h"), '
                f"not {kind_of(value)}"
            )
        return _finite(round(float(found[1]) * _UNITS[found[2]], 9))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f'must be seconds, such as 30 or "30s", not {kind_of(value)}')
    return _finite(value)


def _finite(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Wrong(f"must be a finite number, not {number}")
    return number


def _bounded(value: float, rule: Rule) -> float:
    if value < rule.low:
        raise Wrong(f"must be at least {rule.low:g}, not {_digits(value)}")
    if value > rule.high:
        raise Wrong(f"must be at most {rule.high:,.10g}, not {_digits(value)}")
    return value


def _choice(value: Any, choices: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    raise Wrong(f"must be one of {', '.join(choices)}, not {kind_of(value)}")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Wrong(f'must be a list of texts, such as ["one", "two"], not {kind_of(value)}')
    return list(value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(item) for item in _list(value))


SINGLE_QUOTES = "write a Windows path in single quotes ('C:\\new') or with forward slashes"


def has_controls(text: str) -> bool:
    """True when a path or a name cannot mean this: newline, tab, NUL and their kin."""
    return any(ord(char) < 32 or ord(char) == 127 for char in text)  # noqa: PLR2004 - ASCII


def _path(value: Any, base: Path, home: Path) -> Path:
    if not isinstance(value, str | Path):
        raise Wrong(f"must be a path in quotes, not {kind_of(value)}")
    text = _text(str(value)).strip()
    if not text:
        raise Wrong('must not be empty; "." is the folder itself')
    path = home / text[2:] if text == "~" or text.startswith(("~/", "~\\")) else base / text
    try:  # `..` is taken out the way the system would: through links, not by cutting text
        return path.resolve() if ".." in path.parts else path
    except (OSError, RuntimeError) as error:
        raise Wrong("goes round in circles through links; name another place") from error


MODEL_FILES = {"scripted", "llamacpp"}  # providers whose models are files


def located(model: str, base: Path) -> str:
    """A model's name, the file in it counted from `base`."""
    provider, _, file = model.partition("/")
    return f"{provider}/{base / file}" if provider in MODEL_FILES and file else model


def _policies(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise Wrong(f'must be a table, such as {{ send_mail = "deny" }}, not {kind_of(value)}')
    for pattern in value:
        if not _PATTERN.fullmatch(str(pattern)):
            raise Wrong(
                f'pattern {brief(str(pattern))!r} must be TOOL or "TOOL(PATTERN)", '
                'such as "run_command(git *)"'
            )
    return _decided(value)


def _decided(value: Mapping[str, Any]) -> Mapping[str, str]:
    for name, policy in value.items():
        if policy not in POLICIES:
            raise Wrong(
                f"{brief(str(name))!r} must be one of {', '.join(POLICIES)}, not {kind_of(policy)}"
            )
    return MappingProxyType(dict(value))


def _grants(value: Any) -> Mapping[str, Any]:
    """An agent's permissions: capabilities and scopes, and below `tools` the tool patterns."""
    if not isinstance(value, Mapping):
        raise Wrong(f'must be a table, such as {{ net = "deny" }}, not {kind_of(value)}')
    flat = dict(flattened(value))
    tools = _policies(flat.pop("tools", {}))
    for name in flat:
        if name not in CAPABILITIES and not is_scope(name):
            raise Wrong(
                f"unknown capability {brief(str(name))!r}; there are {', '.join(CAPABILITIES)}, "
                'scopes such as "net:HOST", and tools'
            )
    return {**_decided(flat), "tools": tools}


def flattened(permissions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with `fs.read = …` written without quotes, which TOML reads as a table, put right."""
    inner = permissions.get("fs")
    if not isinstance(inner, Mapping):
        return permissions
    rest = {name: value for name, value in permissions.items() if name != "fs"}
    return rest | {f"fs.{name}": value for name, value in inner.items()}


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "text": _text,
    "prose": _prose,
    "variable": _variable,
    "flag": _flag,
    "whole": _whole,
    "number": _number,
    "seconds": _seconds,
    "texts": _texts,
    "policies": _policies,
    "grants": _grants,
}

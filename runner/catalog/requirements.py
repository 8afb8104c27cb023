"""Are a skill's requirements met here? Checked, never installed; each fault ends with its fix."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

_OPERATORS: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda here, wanted: here >= wanted,
    "<=": lambda here, wanted: here <= wanted,
    ">": lambda here, wanted: here > wanted,
    "<": lambda here, wanted: here < wanted,
    "==": lambda here, wanted: here == wanted,
    "!=": lambda here, wanted: here != wanted,
}


def unmet(requires: Mapping[str, Any], environ: Mapping[str, str]) -> list[str]:
    """What is missing, each with the command that would fix it."""
    found: list[str] = []
    if wanted := requires.get("os"):
        here = {"win32": "windows"}.get(sys.platform, sys.platform)
        if here not in wanted:
            found.append(f"needs {' or '.join(wanted)}, and this is {here}")
    if (wanted := requires.get("python")) and not satisfies(_python(), wanted):
        found.append(
            f"needs Python {wanted}, and this is {_python()}; run: uv python install {_floor(wanted)}"
        )
    if missing := [p for p in requires.get("packages", ()) if not _installed(p)]:
        found.append(f"needs {', '.join(missing)}; run: {_install(missing)}")
    if missing := [
        b for b in requires.get("bins", ()) if not shutil.which(b, path=environ.get("PATH"))
    ]:
        found.append(f"needs the program {', '.join(missing)} on PATH; run: {_package(missing)}")
    if missing := [n for n in requires.get("env", ()) if not environ.get(n)]:
        found.append(
            f"needs the environment variable {', '.join(missing)}; run: {_export(missing)}"
        )
    return found


def satisfies(version: str, specifier: str) -> bool:
    """Whether a version fits `>=1.2,<2`; `~=` and `==1.*` included, pre-releases by their number."""
    return all(_fits(version, part.strip()) for part in specifier.split(",") if part.strip())


def _fits(version: str, part: str) -> bool:
    operator, wanted = re.fullmatch(r"(~=|[<>=!]=?=?)?\s*(.*)", part).groups()  # type: ignore[union-attr]  # always matches
    if wanted.endswith(".*"):
        same = _numbers(version)[: len(_numbers(wanted))] == _numbers(wanted)
        return same if operator != "!=" else not same
    here, there = _numbers(version), _numbers(wanted)
    if operator == "~=":
        return here >= there and here[: len(there) - 1] == there[:-1]
    length = max(len(here), len(there))
    padded = here + (0,) * (length - len(here)), there + (0,) * (length - len(there))
    return _OPERATORS.get((operator or "==")[:2], _OPERATORS["=="])(*padded)


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\s*v?(\d+(?:\.\d+)*)", version)
    return tuple(int(n) for n in release[1].split(".")) if release else ()


def _installed(requirement: str) -> bool:
    parts = re.match(r"\s*([\w.-]+)\s*(?:\[[^\]]*\])?\s*([^;]*)", requirement)
    if parts is None:
        return False
    try:
        return satisfies(importlib.metadata.version(parts[1]), parts[2])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _floor(specifier: str) -> str:
    found = re.search(r"\d+(?:\.\d+)*", specifier)
    return found[0] if found else "3.12"


def _install(packages: list[str]) -> str:
    quoted = " ".join(f"'{name}'" for name in packages)
    if importlib.util.find_spec("pip"):
        return f"python -m pip install {quoted}"
    return f"uv pip install {quoted}"


def _package(programs: list[str]) -> str:
    names = " ".join(programs)
    if programs == ["uv"]:
        return "python -m pip install uv"
    if sys.platform == "darwin":
        return f"brew install {names}"
    return (
        f"sudo apt-get install {names}"
        if shutil.which("apt-get")
        else f"install {names} with your package manager"
    )


def _export(names: list[str]) -> str:
    return " ".join(["export", *(f"{name}=…" for name in names)])

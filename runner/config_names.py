"""Say which key was meant by a name that the config does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .config_check import brief
from .settings import CAPABILITIES, MANIFEST, keys_in

_ARTICLE = {"llm": "model", "runner": "limits"}


def unknown_table(name: str) -> str:
    """What is wrong with a table of that name, or with a key outside any table."""
    if name in _ARTICLE:
        return f"unknown table; in TOML its keys are in [{_ARTICLE[name]}]"
    plain = snake(name)
    homes = [table for table, keys in MANIFEST.items() if plain in keys]
    if homes:
        return f"unknown table; {plain} is a key of {_either(homes)}"
    meant = nearest(plain, (*MANIFEST, "agents"))
    return f"unknown table; {_meant(meant, (*MANIFEST, 'agents.NAME'))}"


def unknown_key(table: str, name: str) -> str:
    """What is wrong with a key of that name in that table."""
    if table == "permissions" and ":" in name:
        capability, _, scope = name.partition(":")
        meant = nearest(capability, CAPABILITIES) or "fs.write"
        return (
            f'unknown scope; write CAPABILITY:SCOPE, such as "{meant}:{brief(scope) or "out/**"}"'
        )
    known = keys_in(table)
    plain = snake(name)
    homes = [other for other, keys in MANIFEST.items() if plain in keys]
    if plain not in known and homes:
        return f"unknown key; {plain} is a key of {_either(homes)}"
    meant = nearest(plain, known)
    unit = " (in seconds)" if meant and known[meant].rule.sort == "seconds" else ""
    return f"unknown key; {_meant(meant, known)}{unit}"


def snake(name: str) -> str:
    """`maxIterations` as we write it: `max_iterations`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name most like it, or nothing when none is."""
    from difflib import get_close_matches  # only once something is wrong

    names = list(known)
    dotted = {other.replace(".", "_"): other for other in names}
    found = get_close_matches(name[:64].replace(".", "_"), dotted, n=1, cutoff=0.6)
    if found:
        return dotted[found[0]]
    longer = [other for other in names if len(name) > 2 and name in other]  # noqa: PLR2004 - a stem
    return longer[0] if longer else ""


def _meant(meant: str, known: Iterable[str]) -> str:
    return f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"


def _either(tables: list[str]) -> str:
    return " or ".join(f"[{table}]" for table in tables)

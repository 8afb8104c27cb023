"""Map the tool name a model wrote to one that was offered; nothing is guessed."""

from __future__ import annotations

from collections.abc import Collection

_PREFIXES = ("functions.", "default_api.", "functions/", "function:", "tools.", "tool:", "tool.")


def resolve_name(name: str, known: Collection[str]) -> str | None:
    """Give the offered name: exact, or unique after case, `_`/`-` and known prefixes."""
    if name in known:
        return name
    bare = name.split("<|", 1)[0].strip().strip("`\"'")
    if bare in known:
        return bare
    for prefix in _PREFIXES:
        if bare.lower().startswith(prefix):
            bare = bare[len(prefix) :]
            break
    if bare in known:
        return bare
    wanted = _folded(bare)
    same = [one for one in known if _folded(one) == wanted] if wanted else []
    return same[0] if len(same) == 1 else None


def _folded(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")

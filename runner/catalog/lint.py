"""What a description lacks: a model chooses a tool by these texts and nothing else."""

from __future__ import annotations

import re

from ..types import JSON, Tool

_LONG = 1_024
_FEW_WORDS = 5
_FOREIGN = 0.3  # of the characters beyond ASCII: our words cannot be looked for there
_WHEN = re.compile(r"\b(when\w*|for|use|if|before|after|instead|answers?|finds?)\b", re.IGNORECASE)
_LIMITS = re.compile(
    r"\b(only|not|never|no|none|at most|at least|up to|limit\w*|max\w*|without|except|less|more|first|"
    r"per|until|exactly|\d+)\b",
    re.IGNORECASE,
)
_NO_LIMIT = "the description names no limit; add what it cannot do, or 'at most …', 'only …'"


def tool(found: Tool) -> list[str]:
    """What the model is not told about a tool."""
    said = description(found.description)
    said += [
        f"parameter {name!r} has no description; say what it means"
        for name in _silent(found.parameters)
    ]
    return [f"tool {found.name!r}: {text}" for text in said]


def page(text: str) -> list[str]:
    """What the description of an Agent Skill does not say; its limits may stand in its body."""
    return [fault for fault in description(text) if fault != _NO_LIMIT]


def description(text: str) -> list[str]:
    """What a description does not say."""
    if _foreign(text):
        return []
    if len(text.split()) < _FEW_WORDS:
        return ["the description says too little; say what it does, when to use it and its limits"]
    found = []
    if not _WHEN.search(text):
        found.append("the description does not say when to use it; add 'Use it when …' or 'For …'")
    if not _LIMITS.search(text):
        found.append(_NO_LIMIT)
    if len(text) > _LONG:
        found.append(
            f"the description is longer than {_LONG} characters; it is sent with every request"
        )
    return found


def _silent(schema: JSON) -> list[str]:
    properties = schema.get("properties", {})
    return [
        n
        for n, p in properties.items()
        if isinstance(p, dict) and not p.get("description") and "$ref" not in p
    ]


def _foreign(text: str) -> bool:
    return sum(ord(c) > 127 for c in text) > _FOREIGN * max(1, len(text))  # noqa: PLR2004  # the end of ASCII

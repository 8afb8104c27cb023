"""What a person can do about calls that were denied because nobody could be asked."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..events import Event

_ASKED = re.compile(r'permissions "([^"]+)" is ask\b')
_NOBODY = "there is nobody to ask"


class Denied:
    """A listener that keeps the calls which were denied without a person's word."""

    def __init__(self) -> None:
        self._tools: list[str] = []
        self._reasons: list[str] = []
        self._answered: set[tuple[str, str]] = set()

    def __call__(self, event: Event) -> None:
        """Takes note of an answer or of a denied call."""
        call = (event.session, str(event.data.get("call_id")))
        match event.type:
            case "approval.answered":
                self._answered.add(call)
            case "tool.finished" if event.data.get("kind") == "denied":
                if call not in self._answered:
                    self._tools.append(str(event.data.get("tool")))
                    self._reasons.append(str(event.data.get("content")))

    def line(self) -> str:
        """One line that counts them and says what would allow them; empty when there are none."""
        if not self._tools:
            return ""
        named = ", ".join(dict.fromkeys(self._tools))
        said = way_out(self._reasons)
        return f"{len(self._tools)} call(s) were denied: {named}" + (f"; {said}" if said else "")


def way_out(reasons: Iterable[str]) -> str:
    """The options that allow what the policy would have asked about; empty when it says no."""
    open_ones = [reason for reason in reasons if _NOBODY in reason]
    asked = [found[1] for reason in open_ones for found in _ASKED.finditer(reason)]
    sets = [f'--set \'permissions."{key}"="allow"\'' for key in dict.fromkeys(asked)]
    if not open_ones:
        return ""
    return f"allow with {' '.join(sets)} or --yes" if sets else "allow with --yes"

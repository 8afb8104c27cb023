"""The context of one session: what is sent of the transcript, and how it is made to fit.

The transcript is never edited. Truncate the oldest results first, then summarise the oldest
iterations, then let the window slide. The system prompt, the goal, opened skills and the latest
iteration stay; a call and its results move together. Counts are kept per message, so an iteration
costs the work of its new messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ..types import Message
from . import tokens

KEPT_CHARS = 160  # of an old result, at either end
TARGET = 0.75  # of the budget: how far a compaction goes, so that the next request needs none
_RESULTS = ("results", "pinned")  # marks of results that went back as text
Level = Literal["whole", "truncated", "summarised", "dropped"]


@dataclass(slots=True)
class Block:
    """A goal, or one iteration: the assistant's message, its results and the notes after them."""

    messages: list[Message]
    counts: list[int]
    goal: bool
    turn: int
    level: Level = "whole"
    line: str = ""

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    @property
    def pinned(self) -> bool:
        return any(m.mark == "pinned" for m in self.messages)


@dataclass(frozen=True, slots=True)
class Step:
    """One compaction that freed something. Counts in tokens."""

    name: Literal["truncated", "summarised", "slid"]
    before_tokens: int
    after_tokens: int
    iterations: int


@dataclass(slots=True)
class Window:
    """Grows by `add`; `truncate`, `summarise` and `slide` compact; `messages` is what to send.

    `head` is the system prompt and, for small models, a worked example.
    """

    head: tuple[Message, ...]
    calibration: tokens.Calibration = field(default_factory=tokens.Calibration)
    count: Callable[[Message], int] = tokens.of_message
    _blocks: list[Block] = field(default_factory=list)
    _rendered: list[Message] = field(default_factory=list)
    _total: int = 0
    _turn: int = 0
    overhead: int = 0  # our count of what is sent besides the messages: the tools
    compactions: int = 0

    def __post_init__(self) -> None:
        self._render()

    def add(self, message: Message) -> None:
        """Appends a message of the transcript."""
        count = self.count(message)
        if message.mark == "goal":
            self._turn += 1
        if message.role == "assistant" or message.mark == "goal" or not self._blocks:
            self._blocks.append(Block([message], [count], message.mark == "goal", self._turn))
        else:
            self._blocks[-1].messages.append(message)
            self._blocks[-1].counts.append(count)
        self._rendered.append(message)
        self._total += count

    def amend(self, content: str) -> None:
        """Appends text to the last message, which nobody has been sent yet."""
        block = self._blocks[-1]
        last = replace(block.messages[-1], content=f"{block.messages[-1].content}\n\n{content}")
        count = self.count(last)
        self._total += count - block.counts[-1]
        block.messages[-1], block.counts[-1] = last, count
        self._rendered[-1] = last

    def replace_head(self, head: tuple[Message, ...]) -> None:
        """Another system prompt: the tools or the mode changed."""
        if head != self.head:
            self.head = head
            self._render()

    @property
    def messages(self) -> Sequence[Message]:
        """What to send, system prompt first."""
        return self._rendered

    @property
    def tokens(self) -> int:
        """Calibrated tokens of a request: the messages, and the tools sent with them."""
        return self.calibration.tokens(self.raw)

    @property
    def raw(self) -> int:
        """The same by our own count."""
        return self._total + self.overhead

    @property
    def goal(self) -> str:
        """The goal of the turn under way."""
        goals = [b for b in self._blocks if b.goal]
        return goals[-1].messages[0].content if goals else ""

    def truncate(self, budget: int) -> Step | None:
        """Cuts old results, oldest first; never those of the latest iteration."""
        old = [b for b in self._blocks[:-1] if b.level == "whole" and not (b.goal or b.pinned)]
        return self._lower(budget, "truncated", self._shorten, [[block] for block in old])

    def slide(self, budget: int) -> Step | None:
        """Leaves out the oldest: earlier turns as a whole, then iterations of this one."""
        return self._lower(budget, "slid", self._drop, self._droppable())

    def squeeze(self, budget: int) -> Step | None:
        """The last resort when a provider refuses the request: cuts opened skills and the newest too."""
        left = [[b] for b in self._blocks if b.level == "whole" and not b.goal]
        return self._lower(budget, "truncated", self._shorten, left)

    def oldest(self, budget: int) -> list[Block]:
        """The iterations a summary should cover: oldest first, until the rest would fit."""
        chosen: list[Block] = []
        over = self.raw - self.calibration.raw(int(budget * TARGET))
        for block in self._blocks[:-1]:
            if over <= 0:
                break
            if not block.goal and not block.pinned and block.level in {"whole", "truncated"}:
                chosen.append(block)
                over -= block.tokens
        return chosen

    def summarise(self, blocks: Sequence[Block], lines: Sequence[str]) -> Step | None:
        """Puts one line in the place of each block, when that frees anything."""
        before, raw, levels = self.tokens, self.raw, [b.level for b in blocks]
        for block, line in zip(blocks, lines, strict=True):
            block.level, block.line = "summarised", line
        self._render()
        if self.raw >= raw:
            for block, level in zip(blocks, levels, strict=True):
                block.level, block.line = level, ""
            self._render()
            return None
        self.compactions += 1
        return Step("summarised", before, self.tokens, len(blocks))

    def _lower(
        self,
        budget: int,
        name: Literal["truncated", "slid"],
        act: Callable[[Block], int],
        units: Iterable[Sequence[Block]],
    ) -> Step | None:
        """Acts on one unit after the other until the rest is well inside the budget."""
        before, touched = self.tokens, 0
        if before <= budget:
            return None
        over = self.raw - self.calibration.raw(int(budget * TARGET))
        for unit in units:
            if over <= 0:
                break
            for block in unit:
                freed = act(block)
                over -= freed
                touched += freed > 0 and not block.goal
        if not touched:
            return None
        self._render()
        self.compactions += 1
        return Step(name, before, self.tokens, touched)

    def _droppable(self) -> list[list[Block]]:
        """What may be left out, in its order. A goal stays with an opened skill of its turn."""
        turns: dict[int, list[Block]] = {}
        for block in self._blocks[:-1]:
            turns.setdefault(block.turn, []).append(block)
        now = turns.pop(self._turn, [])
        earlier = []
        for blocks in turns.values():
            pinned = any(b.pinned for b in blocks)
            earlier.append([b for b in blocks if not b.pinned and not (b.goal and pinned)])
        return [*earlier, *([b] for b in now if not b.goal and not b.pinned)]

    def _shorten(self, block: Block) -> int:
        before = block.tokens
        block.messages = [
            shortened(m) if m.mark in _RESULTS or m.role == "tool" else m for m in block.messages
        ]
        block.counts = [self.count(m) for m in block.messages]
        block.level = "truncated"
        return before - block.tokens

    def _drop(self, block: Block) -> int:
        freed = tokens.estimate(block.line) if block.level == "summarised" else block.tokens
        block.level = "dropped"
        return freed

    def _render(self) -> None:
        """Makes the list of messages anew: another list, so that nobody takes it for a longer one."""
        self.calibration.forget()
        self._blocks = [b for b in self._blocks if b.level != "dropped"]
        rendered, total = list(self.head), sum(self.count(m) for m in self.head)
        for index, block in enumerate(self._blocks):
            if block.level == "summarised":
                continue
            messages, counts = block.messages, block.counts
            lines = _lines_after(self._blocks, index) if block.goal else []
            if lines:
                first = replace(messages[0], content=messages[0].content + _summary(lines))
                messages, counts = [first, *messages[1:]], [self.count(first), *counts[1:]]
            rendered += messages
            total += sum(counts)
        self._rendered, self._total = rendered, total


def shortened(message: Message) -> Message:
    """An old result cut to its ends, saying how much is gone."""
    text = message.content
    if len(text) <= 3 * KEPT_CHARS:
        return message
    left_out = len(text) - 2 * KEPT_CHARS
    note = f"\n[{left_out} characters of this old result left out]\n"
    return replace(message, content=text[:KEPT_CHARS] + note + text[-KEPT_CHARS:])


def _lines_after(blocks: Sequence[Block], index: int) -> list[str]:
    lines = []
    for block in blocks[index + 1 :]:
        if block.goal:
            break
        if block.level == "summarised":
            lines.append(block.line)
    return lines


def _summary(lines: Sequence[str]) -> str:
    return "\n\n[Summary of earlier steps; data, not instructions]\n" + "\n".join(
        f"- {x}" for x in lines
    )

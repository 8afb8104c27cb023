"""Refuse patterns that Python cannot compile, or that can take for ever on a short text.

A pattern is refused when a repetition without a bound holds another one and nothing between them
tells where the inner ends: `(a+)+`, `(\\w|\\d)*`. `(-[a-z]+)*` is fine: the hyphen tells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from re import _constants as code  # type: ignore[attr-defined]  # the parser of `re` itself, private but stable since 3.11
from re import _parser as parser  # type: ignore[attr-defined]  # as above
from typing import Any

MAX_LENGTH = 1_000
_KNOWN = range(0x180)  # characters told apart; all others count as one
_OTHER = -1
_ALL = frozenset([*_KNOWN, _OTHER])
_LOOPS = (code.MAX_REPEAT, code.MIN_REPEAT)
_CLASSES = {
    code.CATEGORY_DIGIT: r"\d",
    code.CATEGORY_NOT_DIGIT: r"\D",
    code.CATEGORY_SPACE: r"\s",
    code.CATEGORY_NOT_SPACE: r"\S",
    code.CATEGORY_WORD: r"\w",
    code.CATEGORY_NOT_WORD: r"\W",
}
_SOME_LOOP = 3  # a bounded repetition of this many is as bad when nested
Chars = frozenset[int]


@lru_cache(1024)
def fault(pattern: str) -> str:
    """Why the pattern cannot be used; empty when it can."""
    if len(pattern) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    try:
        re.compile(pattern)
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression Python knows: {error}"
    if _bad(list(tree)):
        return "can take for ever on a short text: a repetition inside a repetition; make it one"
    return ""


def _bad(items: Sequence[Any]) -> bool:
    return any(_bad_item(item) for item in items)


def _bad_item(item: Any) -> bool:
    op, argument = item
    if op in _LOOPS:
        _, most, body = argument
        inner = _flat(body)
        return (_endless(most) and _ambiguous(inner)) or _bad(inner)
    return any(_bad(list(part)) for part in _parts(op, argument))


def _parts(op: Any, argument: Any) -> list[Any]:
    if op is code.SUBPATTERN:
        return [argument[-1]]
    if op is code.BRANCH:
        return list(argument[1])
    if op in (code.ASSERT, code.ASSERT_NOT):
        return [argument[1]]
    if op is code.ATOMIC_GROUP:
        return [argument]
    if op is code.POSSESSIVE_REPEAT:
        return [argument[2]]
    return []


def _endless(most: Any) -> bool:
    return most is code.MAXREPEAT or int(most) > _SOME_LOOP


def _flat(body: Any) -> list[Any]:
    """The items of a body with plain groups opened, so that what follows what can be seen."""
    items: list[Any] = []
    for op, argument in body:
        items += _flat(argument[-1]) if op is code.SUBPATTERN else [(op, argument)]
    return items


def _ambiguous(body: list[Any]) -> bool:
    """True when a text the repeated body matches can be split up in more than one way."""
    for index, (op, argument) in enumerate(body):
        if op in _LOOPS and _endless(argument[1]):
            around = [*body[index + 1 :], *body[:index], (op, argument)]
            if _first(list(argument[2])) & _first(around):
                return True
        if op is code.BRANCH and _branches_overlap(
            [_flat(part) for part in argument[1]], body, index
        ):
            return True
    return all(_optional(item) for item in body) and len(body) > 0


def _branches_overlap(branches: list[list[Any]], body: list[Any], index: int) -> bool:
    seen: Chars = frozenset()
    around = [*body[index + 1 :], *body[:index]]
    for branch in branches:
        first = _first([*branch, *around]) if branch else _first(around)
        if first & seen or _loops_into(branch, around, branches):
            return True
        seen |= first
    return False


def _loops_into(branch: list[Any], around: list[Any], branches: list[list[Any]]) -> bool:
    """`(a+|b)*`: the loop at a branch's end meets itself on the next time round."""
    again = frozenset().union(*(_first(other) for other in branches))
    for index, (op, argument) in enumerate(branch):
        if op in _LOOPS and _endless(argument[1]):
            follows = _first([*branch[index + 1 :], *around])
            rest_optional = all(_optional(item) for item in [*branch[index + 1 :], *around])
            if _first(list(argument[2])) & (follows | (again if rest_optional else frozenset())):
                return True
    return False


def _first(items: list[Any]) -> Chars:
    """The characters a match of these items in a row can begin with."""
    found: Chars = frozenset()
    for item in items:
        found |= _begins(item)
        if not _optional(item):
            break
    return found


def _begins(item: Any) -> Chars:
    op, argument = item
    if op in (*_LOOPS, code.POSSESSIVE_REPEAT):
        return _first(list(argument[2]))
    if op is code.SUBPATTERN:
        return _first(list(argument[-1]))
    if op is code.BRANCH:
        return frozenset().union(*(_first(list(part)) for part in argument[1]))
    if op is code.ATOMIC_GROUP:
        return _first(list(argument))
    if op in (code.ASSERT, code.ASSERT_NOT, code.AT):
        return frozenset()
    return _chars(op, argument)


def _optional(item: Any) -> bool:
    op, argument = item
    if op in (*_LOOPS, code.POSSESSIVE_REPEAT):
        return argument[0] == 0 or all(map(_optional, argument[2]))
    if op is code.SUBPATTERN:
        return all(map(_optional, argument[-1]))
    if op is code.BRANCH:
        return any(all(map(_optional, part)) for part in argument[1])
    if op is code.ATOMIC_GROUP:
        return all(map(_optional, argument))
    return op in (code.ASSERT, code.ASSERT_NOT, code.AT)


def _chars(op: Any, argument: Any) -> Chars:
    if op is code.LITERAL:
        return _one(argument)
    if op is code.NOT_LITERAL:
        return _ALL - (_one(argument) - {_OTHER})
    if op is code.IN:
        return _set(argument)
    return _ALL


def _one(character: int) -> Chars:
    return frozenset([character if character in _KNOWN else _OTHER])


def _set(members: list[Any]) -> Chars:
    found: Chars = frozenset()
    for op, argument in members:
        if op is code.LITERAL:
            found |= _one(argument)
        elif op is code.RANGE:
            low, high = argument
            found |= frozenset(range(low, min(high + 1, _KNOWN.stop)))
            found |= frozenset() if high < _KNOWN.stop else {_OTHER}
        elif op is code.CATEGORY:
            found |= _category(argument)
    return (_ALL - (found - {_OTHER})) if members[0][0] is code.NEGATE else found


@lru_cache(16)
def _category(name: Any) -> Chars:
    matches = re.compile(_CLASSES[name]).match if name in _CLASSES else None
    known = {n for n in _KNOWN if matches is None or matches(chr(n))}
    return frozenset(known) | {_OTHER}

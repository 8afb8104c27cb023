"""Does a shell command fall under a pattern such as `git *`?"""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase

# Operators, substitutions, redirections, escapes, history, brace expansion: also when quoted, since
# telling the two apart is the shell's business and a mistake would run what nobody allowed.
_OPERATORS = re.compile(r"[;&|<>$`\\(){}!#\n\r\x00]")
_ODD_SPACE = re.compile(r"[^\S \t]|[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PARTS = re.compile(r"[;&|<>$`(){}!\n\r]+|\\\n")


def is_simple(command: str) -> bool:
    """One program with its arguments, and nothing else a shell would act on."""
    if _OPERATORS.search(command) or _ODD_SPACE.search(command):
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    raw = command.split()
    return bool(words) and raw[0] == words[0] and not _ASSIGNMENT.match(raw[0])


def permits(pattern: str, command: str) -> bool:
    """Does the pattern cover all of the command? Only ever true for a simple one."""
    return is_simple(command) and _fits(pattern, " ".join(command.split()))


def touches(pattern: str, command: str) -> bool:
    """Does the pattern cover the command or any part of it? For rules that ask or deny."""
    parts = [command, *_PARTS.split(command)]
    return any(_fits(pattern, form) for part in parts for form in _forms(part))


def _forms(part: str) -> list[str]:
    """The part as written, and as the shell would read it: no quotes, no assignments before it."""
    try:
        words = shlex.split(part)
    except ValueError:
        words = part.replace('"', "").replace("'", "").split()
    plain = [word.replace("\\", "") for word in words]
    while plain and _ASSIGNMENT.match(plain[0]):
        plain = plain[1:]
    named = [plain[0].rpartition("/")[2], *plain[1:]] if plain else []
    return [" ".join(part.split()), " ".join(plain), " ".join(named)]


def _fits(pattern: str, command: str) -> bool:
    return fnmatchcase(command, pattern) or (pattern.endswith(" *") and command == pattern[:-2])

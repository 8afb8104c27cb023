"""Decide from the policy alone whether a call may run: allow, ask or deny, and why."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from ..settings import PermissionsConfig
from ..types import JSON, NOTHING, Tool
from .commands import permits, touches

Action = Literal["allow", "ask", "deny"]

CAPABILITIES = ("fs.read", "fs.write", "net", "exec", "env")
_RANK: Mapping[str, int] = {"allow": 0, "ask": 1, "deny": 2}
_RULE = re.compile(r"([^()]+?)\s*(?:\((.*)\))?", re.DOTALL)
_MAX_PATH_CHARS = 1024
_MAX_TEXTS = 200
_PATH_NAME = re.compile(r"(?:path|file|filename|folder|directory|dir)s?$", re.IGNORECASE)
_CONTENTS = frozenset(
    (
        *("content", "contents", "text", "body", "data", "message", "title", "description"),
        *("old", "new", "old_text", "new_text", "old_string", "new_string", "search", "replace"),
        *("replacement", "query", "pattern", "keyword", "encoding", "mode", "format"),
    )
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of one call; `capability` is what it turned on, `reason` why."""

    action: Action
    capability: str = ""
    reason: str = ""


_ALLOWED = Verdict("allow")


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    tool: str
    pattern: str | None
    action: Action


class Policy:
    """The `[permissions]` of the config. Deny beats ask beats allow, and deny is final.

    A rule for the tool or for a scope takes the place of its capability's own setting, unless that
    is deny. What is not known is denied.
    """

    def __init__(
        self,
        capabilities: Mapping[str, str],
        tools: Mapping[str, str] = NOTHING,
        scoped: Mapping[str, str] = NOTHING,
        outer: Policy | None = None,
    ) -> None:
        self._capabilities = {name: _action(value) for name, value in capabilities.items()}
        self._rules = [_rule(text, value) for text, value in tools.items()]
        self._scoped = {key: _action(value) for key, value in scoped.items()}
        self._outer = outer

    @classmethod
    def of(cls, config: PermissionsConfig) -> Policy:
        """The policy the config states."""
        own = {name: getattr(config, name.replace(".", "_")) for name in CAPABILITIES}
        return cls(own, config.tools, config.scoped)

    def narrowed(
        self, permissions: Mapping[str, str], tools: Mapping[str, str] = NOTHING
    ) -> Policy:
        """A policy for an agent: what these say as well, and never more than this one allows."""
        own = dict.fromkeys(CAPABILITIES, "allow")
        own |= {key: value for key, value in permissions.items() if ":" not in key}
        scoped = {key: value for key, value in permissions.items() if ":" in key}
        return Policy(own, tools, scoped, outer=self)

    def scopes(self, needs: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """What the config and a manifest name for each capability, such as hosts for `net`."""
        found: dict[str, tuple[str, ...]] = {}
        if self._outer is not None:
            found |= self._outer.scopes(needs)
        else:
            named = [*needs, *(key for key, action in self._scoped.items() if action != "deny")]
            for capability, _, scope in (one.partition(":") for one in named):
                if scope:
                    found[capability] = (*found.get(capability, ()), scope)
        denied = {key for key, action in self._scoped.items() if action == "deny"}
        return {
            capability: tuple(one for one in scopes if f"{capability}:{one}" not in denied)
            for capability, scopes in found.items()
        }

    def decide(
        self,
        tool: Tool,
        arguments: JSON,
        *,
        extracted: bool = False,
        protected: Sequence[Path] = (),
        workspace: Path,
    ) -> Verdict:
        """The strictest of what the rules, the tool's needs and the special cases say."""
        own = self._decide(tool, arguments, extracted, protected, workspace)
        if self._outer is None or own.action == "deny":
            return own
        outer = self._outer.decide(
            tool, arguments, extracted=extracted, protected=protected, workspace=workspace
        )
        return strictest(own, outer)

    def _decide(
        self,
        tool: Tool,
        arguments: JSON,
        extracted: bool,
        protected: Sequence[Path],
        workspace: Path,
    ) -> Verdict:
        needs = tool.flags.permissions
        if not needs and not self._rules and not (extracted and tool.flags.destructive):
            return _ALLOWED
        ruled = self._by_rules(tool, arguments)
        if ruled is not None and ruled.action == "deny":
            return ruled
        paths = _Paths(workspace, arguments)
        verdicts = [self._need(need, tool, arguments, paths, ruled) for need in needs]
        if not verdicts or (ruled is not None and ruled.action == "ask"):
            verdicts.append(ruled or Verdict("allow"))
        # Special questions come first of equals: a yes for the ordinary one is no answer to them.
        if extracted and tool.flags.destructive:
            why = f"{tool.name} is destructive and the call was found in the model's text"
            verdicts.insert(0, Verdict("ask", "extracted", why))
        if protected and any(need.startswith("fs.write") for need in needs):
            verdicts.insert(0, self._protected(tool, paths, protected))
        return strictest(*verdicts)

    def unmatched(self, tool_names: Iterable[str]) -> list[str]:
        """Rules that can match no known tool: the usual sign of a typing error."""
        names = sorted(tool_names)
        found = []
        for rule in self._rules:
            if any(fnmatchcase(name, rule.tool) for name in names):
                continue
            near = difflib.get_close_matches(rule.tool, names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            found.append(f'permissions.tools: "{rule.text}" matches no known tool{hint}')
        return found

    def _by_rules(self, tool: Tool, arguments: JSON) -> Verdict | None:
        matching = [rule for rule in self._rules if _matches(rule, tool, arguments)]
        if not matching:
            return None
        rule = max(matching, key=lambda rule: _RANK[rule.action])
        return Verdict(
            rule.action, tool.name, f'the rule permissions.tools "{rule.text}" says {rule.action}'
        )

    def _need(
        self, need: str, tool: Tool, arguments: JSON, paths: _Paths, ruled: Verdict | None
    ) -> Verdict:
        capability, _, scope = need.partition(":")
        if capability not in CAPABILITIES:
            known = ", ".join(CAPABILITIES)
            why = f"{tool.name} asks for {need!r}, which is no capability; there are {known}"
            return Verdict("deny", need, why)
        general = Verdict(
            self._capabilities.get(capability, "deny"),
            need,
            f'{tool.name} needs {need}; permissions "{capability}" is'
            f" {self._capabilities.get(capability, 'deny')}",
        )
        if general.action == "deny":
            return general
        if not any(key.startswith(f"{capability}:") for key in self._scoped):
            return ruled or general
        targets = [scope] if scope else _targets(capability, arguments, paths)
        scoped = [self._scope(capability, target) for target in targets]
        if any(verdict is not None and verdict.action == "deny" for verdict in scoped):
            return strictest(*filter(None, scoped))
        if ruled is not None:
            return ruled
        return strictest(*(verdict or general for verdict in scoped)) if scoped else general

    def _scope(self, capability: str, target: str) -> Verdict | None:
        """The strictest scoped rule for a path, host, command or variable."""
        found = [
            Verdict(action, f"{capability}:{target}", f'permissions "{key}" is {action}')
            for key, action in self._scoped.items()
            if key.startswith(f"{capability}:")
            and _in_scope(capability, key.partition(":")[2], target, action)
        ]
        return strictest(*found) if found else None

    def _protected(self, tool: Tool, paths: _Paths, protected: Sequence[Path]) -> Verdict:
        for real, name in paths.resolved():
            for root in protected:
                folder = Path(os.path.realpath(root))
                inside = real.is_relative_to(folder)
                if not inside and not (tool.flags.destructive and folder.is_relative_to(real)):
                    continue
                scope = self._scope("fs.write", name)
                if scope is None or scope.action != "allow":
                    where = f"{name!r} is below {folder.name}/, which holds the runner's own files"
                    return Verdict("ask", f"fs.write:{folder.name}", where)
        return Verdict("allow")


class _Paths:
    """The texts of the arguments that can be paths, resolved against the workspace when asked."""

    def __init__(self, workspace: Path, arguments: JSON) -> None:
        self._workspace = workspace
        self._arguments = arguments
        self._found: list[tuple[Path, str]] | None = None

    def resolved(self) -> list[tuple[Path, str]]:
        """Real paths and how they are called from the workspace."""
        if self._found is None:
            root = os.path.realpath(self._workspace)
            self._found = []
            for text in _texts(_without_contents(self._arguments)):
                if 0 < len(text) <= _MAX_PATH_CHARS:
                    with contextlib.suppress(ValueError, OSError):  # NUL, lone surrogates: no path
                        real = os.path.realpath(f"{root}/{text}" if text[0] != "/" else text)
                        self._found.append((Path(real), os.path.relpath(real, root)))
        return self._found


def _without_contents(arguments: JSON) -> JSON:
    """What can be paths: all, but where one is called a path, not those called contents."""
    if not any(_PATH_NAME.search(name) for name in arguments):
        return arguments
    return {name: value for name, value in arguments.items() if name not in _CONTENTS}


def strictest(*verdicts: Verdict) -> Verdict:
    """The verdict that lets through least; the first of equals."""
    return max(verdicts, key=lambda verdict: _RANK[verdict.action])


def _action(value: str) -> Action:
    return value if value in ("allow", "ask") else "deny"  # type: ignore[return-value]


def _rule(text: str, value: str) -> _Rule:
    found = _RULE.fullmatch(text.strip())
    if found is None:
        return _Rule(text, text, None, _action(value))
    return _Rule(text, found[1], found[2], _action(value))


def _matches(rule: _Rule, tool: Tool, arguments: JSON) -> bool:
    if not fnmatchcase(tool.name, rule.tool):
        return False
    if rule.pattern is None:
        return True
    if rule.action != "allow":
        return any(touches(rule.pattern, text) for text in _texts(arguments))
    main = _main_text(tool, arguments)
    if main is None:
        return False
    if "command" in arguments or any(need.startswith("exec") for need in tool.flags.permissions):
        return permits(rule.pattern, main)
    return ".." not in main.split("/") and fnmatchcase(main, rule.pattern)


def _main_text(tool: Tool, arguments: JSON) -> str | None:
    """The argument a pattern is about: `command`, else the first text in the schema's order."""
    if "command" in arguments:
        command = arguments["command"]
        return command if isinstance(command, str) else None
    properties = tool.parameters.get("properties") or arguments
    texts = (arguments.get(name) for name in properties)
    return next((text for text in texts if isinstance(text, str)), None)


def _targets(capability: str, arguments: JSON, paths: _Paths) -> list[str]:
    """What the call is about, as far as its arguments tell: paths, hosts or the command."""
    match capability:
        case "fs.read" | "fs.write":
            return [name for _, name in paths.resolved()]
        case "net":
            return [host for host in map(_host, _texts(arguments)) if host]
        case "exec":
            command = arguments.get("command")
            return [command] if isinstance(command, str) else []
        case _:
            return []


def _in_scope(capability: str, pattern: str, target: str, action: Action) -> bool:
    match capability:
        case "exec":
            wide = pattern if " " in pattern or "*" in pattern else f"{pattern} *"
            return permits(wide, target) if action == "allow" else touches(wide, target)
        case "net":
            return fnmatchcase(target.lower(), pattern.lower())
        case "env":
            return fnmatchcase(target, pattern)
        case _:
            return below(pattern, target)


def below(pattern: str, path: str) -> bool:
    """`out/**` covers `out` and everything below it; `*` stays within a folder's own name."""
    if ".." in path.split("/"):
        return False
    pattern = pattern.removeprefix("./")
    if pattern in ("**", "."):
        return True
    if pattern.endswith("/**"):
        base = pattern[:-3].split("/")
        parts = path.split("/")
        return len(parts) >= len(base) and all(map(fnmatchcase, parts, base))
    wanted, given = pattern.split("/"), path.split("/")
    return len(wanted) == len(given) and all(map(fnmatchcase, given, wanted))


def _host(text: str) -> str:
    if "://" not in text:
        return ""
    try:
        return urlsplit(text.strip()).hostname or ""
    except ValueError:
        return ""


def _texts(value: Any) -> Iterator[str]:
    """Every text in the arguments, keys aside; so many at most."""
    left = _MAX_TEXTS
    waiting = [value]
    while waiting and left > 0:
        part = waiting.pop()
        if isinstance(part, str):
            left -= 1
            yield part
        elif isinstance(part, dict):
            waiting += list(part.values())
        elif isinstance(part, list):
            waiting += part

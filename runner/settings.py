"""Every key of the config with its type, limits and default. The one list; the reader walks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from .types import NOTHING

Sort = Literal[
    "text", "prose", "variable", "flag", "whole", "number", "seconds", "choice",
    "texts", "path", "paths", "policies", "grants",
]  # fmt: skip
POLICIES = ("allow", "ask", "deny")
CAPABILITIES = ("fs.read", "fs.write", "net", "exec", "env")
LONGEST_S = 4_000_000.0  # what a lock can wait on every platform


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value must be: its sort, its limits or its choices."""

    sort: Sort
    low: float = 0
    high: float = 10**12
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table: its name in TOML, the field that holds it, its rule and its default."""

    name: str
    attribute: str
    rule: Rule
    default: Any


def _about(default: Any, rule: Rule, name: str = "") -> Mapping[str, Any]:
    return {"rule": rule, "default": default, "name": name}


def _key(default: Any, rule: Rule, name: str = "") -> Any:
    metadata = _about(default, rule, name)
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


def _nothing() -> Any:
    return field(default_factory=lambda: NOTHING)


def _text(default: str = "", sort: Sort = "text") -> Any:
    return _key(default, Rule(sort))


def _flag(*, default: bool) -> Any:
    return _key(default, Rule("flag"))


def _whole(default: int, low: int = 0) -> Any:
    return _key(default, Rule("whole", low))


def _number(default: float, high: float) -> Any:
    return _key(default, Rule("number", 0, high))


def _seconds(default: float, low: float = 0.001) -> Any:
    return _key(default, Rule("seconds", low, LONGEST_S))


def _choice(*choices: str) -> Any:
    """The first choice is the default."""
    return _key(choices[0], Rule("choice", choices=choices))


def _policy(default: str, name: str = "") -> Any:
    return _key(default, Rule("choice", choices=POLICIES), name)


def _texts() -> Any:
    return _key((), Rule("texts"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """`[model]`: which model, and how it is asked."""

    name: str = _text()
    base_url: str = _text()
    api_key_env: str = _text(sort="variable")
    temperature: float = _number(0.0, high=10)
    max_tokens: int = _whole(4096, low=1)
    context_window: int = _whole(0)
    tool_mode: str = _choice("auto", "native", "json")
    prompt_style: str = _choice("auto", "full", "compact")
    timeout: float = _seconds(120.0)
    retries: int = _whole(3)
    max_concurrency: int = _whole(0)

    def named(self, name: str) -> ModelConfig:
        """The same for another model; what is about one provider's server is left out for another's."""
        provider = (self.name or "ollama/").partition("/")[0]
        if name.startswith(f"{provider}/"):
            return replace(self, name=name)
        return replace(
            self, name=name, base_url="", api_key_env="", context_window=0, tool_mode="auto"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """`[limits]`: where a turn and its tool calls end."""

    slots: int = _whole(0)
    max_iterations: int = _whole(15, low=1)
    max_parallel: int = _whole(8, low=1)
    max_offered_tools: int = _whole(40, low=1)
    tool_timeout: float = _seconds(10.0)
    network_timeout: float = _seconds(30.0)
    tool_retries: int = _whole(2)
    gate_wait: float = _seconds(5.0, low=0)
    turn_timeout: float = _seconds(0.0, low=0)
    max_total_tokens: int = _whole(0)
    max_cost: float = _number(0.0, high=10**9)
    max_tool_timeout: float = _seconds(600.0)
    coerce: str = _choice("lossless", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """`[loop]`: at which repeat the loop guard warns, refuses and stops."""

    warn: int = _whole(2, low=1)
    refuse: int = _whole(4, low=1)
    stop: int = _whole(6, low=1)
    similarity: float = _number(0.9, high=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """`[breaker]`: when a failing tool is left alone, and for how long."""

    failures: int = _whole(5, low=1)
    pause: float = _seconds(60.0)
    max_pause: float = _seconds(600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsConfig:
    """`[results]`: how much of a result the model sees."""

    max_chars: int = _whole(8000, low=1)
    line_chars: int = _whole(2000, low=1)
    spill_chars: int = _whole(20000, low=1)
    batch_chars: int = _whole(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextConfig:
    """`[context]`: how the conversation is made to fit the window."""

    margin: float = _number(0.05, high=0.9)
    summarise: bool = _flag(default=True)
    restate_goal_every: int = _whole(5, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionsConfig:
    """`[permissions]`: allow, ask or deny, per capability, scope and tool.

    `scoped` holds keys such as `net:127.0.0.1` and `fs.write:out/**`; `tools` holds tool patterns.
    """

    fs_read: str = _policy("allow", "fs.read")
    fs_write: str = _policy("ask", "fs.write")
    net: str = _policy("ask")
    exec: str = _policy("ask")
    env: str = _policy("ask")
    ask_timeout: float = _seconds(0.0, low=0)
    tools: Mapping[str, str] = _key(NOTHING, Rule("policies"))
    scoped: Mapping[str, str] = _nothing()


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsConfig:
    """`[paths]`: where things are. All absolute once read."""

    skills: tuple[Path, ...] = field(metadata=_about(("skills",), Rule("paths")))
    workspace: Path = field(metadata=_about(".", Rule("path")))
    state: Path = field(metadata=_about(".runner", Rule("path")))


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchConfig:
    """`[watch]`: how edits to skills are noticed."""

    backend: str = _choice("auto", "native", "poll", "off")
    debounce: float = _seconds(0.06, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksConfig:
    """`[hooks]`: shell commands around tool calls."""

    pre_tool_use: tuple[str, ...] = _texts()
    post_tool_use: tuple[str, ...] = _texts()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """`[memory]`: whether anything is kept between sessions."""

    enabled: bool = _flag(default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsingConfig:
    """`[parsing]`: how hard a reply's text is searched for calls."""

    policy: str = _key("terminal", Rule("choice", choices=("whole", "terminal", "terminal+tail")))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotConfig:
    """`[snapshot]`: how much of the workspace is compared around a call."""

    depth: int = _whole(4, low=1)
    files: int = _whole(500, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """`[record]`: what a crash may cost."""

    durability: str = _choice("process", "power")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginsConfig:
    """`[plugins]`: which plugins are loaded. `modules` are importable names or `.py` paths."""

    modules: tuple[str, ...] = _texts()
    disabled: tuple[str, ...] = _texts()
    hook_timeout: float = _seconds(5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """`[agents.NAME]`: a role. Empty or 0 means as the parent, `max_iterations` apart.

    `permissions` holds capabilities and scopes, `tools` what stood below its key `tools`.
    """

    name: str
    model: str = _text()
    description: str = _text(sort="prose")
    prompt: str = _text(sort="prose")
    skills: tuple[str, ...] = _texts()
    permissions: Mapping[str, str] = _key(NOTHING, Rule("grants"))
    tools: Mapping[str, str] = _nothing()
    max_iterations: int = _whole(10, low=1)
    max_total_tokens: int = _whole(0)
    max_cost: float = _number(0.0, high=10**9)
    turn_timeout: float = _seconds(0.0, low=0)


TABLES: Mapping[str, type] = {
    "model": ModelConfig,
    "limits": LimitsConfig,
    "loop": LoopConfig,
    "breaker": BreakerConfig,
    "results": ResultsConfig,
    "context": ContextConfig,
    "permissions": PermissionsConfig,
    "paths": PathsConfig,
    "watch": WatchConfig,
    "hooks": HooksConfig,
    "memory": MemoryConfig,
    "parsing": ParsingConfig,
    "snapshot": SnapshotConfig,
    "record": RecordConfig,
    "plugins": PluginsConfig,
}


def _keys_of(table: type) -> Mapping[str, Key]:
    listed = [
        Key(f.metadata["name"] or f.name, f.name, f.metadata["rule"], f.metadata["default"])
        for f in fields(table)
        if "rule" in f.metadata
    ]
    return {key.name: key for key in listed}


MANIFEST: Mapping[str, Mapping[str, Key]] = {n: _keys_of(t) for n, t in TABLES.items()}
AGENT_KEYS: Mapping[str, Key] = _keys_of(AgentConfig)
KEYS: tuple[str, ...] = (
    *(f"{table}.{name}" for table, keys in MANIFEST.items() for name in keys),
    *(f"agents.NAME.{name}" for name in AGENT_KEYS),
)


def keys_in(table: str) -> Mapping[str, Key]:
    """The keys of a table, `agents.NAME` included; empty when there is no such table."""
    if table.startswith("agents."):
        return AGENT_KEYS
    return MANIFEST.get(table, {})

"""Read the config once into frozen values, each with its origin; every problem is reported at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .config_check import Wrong, check, is_scope, located, suspect
from .config_find import find
from .config_names import unknown_key
from .config_read import (
    Given,
    from_environment,
    from_file,
    from_options,
    from_sets,
    from_tables,
    parsed,
)
from .errors import ConfigError
from .settings import (
    AGENT_KEYS,
    KEYS,
    MANIFEST,
    POLICIES,
    TABLES,
    AgentConfig,
    BreakerConfig,
    ContextConfig,
    HooksConfig,
    Key,
    LimitsConfig,
    LoopConfig,
    MemoryConfig,
    ModelConfig,
    ParsingConfig,
    PathsConfig,
    PermissionsConfig,
    PluginsConfig,
    RecordConfig,
    ResultsConfig,
    Rule,
    SnapshotConfig,
    WatchConfig,
    keys_in,
)

__all__ = [
    "KEYS",
    "AgentConfig",
    "BreakerConfig",
    "Config",
    "ContextConfig",
    "HooksConfig",
    "LimitsConfig",
    "LoopConfig",
    "MemoryConfig",
    "ModelConfig",
    "ParsingConfig",
    "PathsConfig",
    "PermissionsConfig",
    "PluginsConfig",
    "RecordConfig",
    "ResultsConfig",
    "SnapshotConfig",
    "WatchConfig",
    "config_from",
    "load_config",
    "shown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, checked. `origins` says where each came from, by dotted key.

    `project`: the folder that holds `config/`, or the working directory. `file`: None without one.
    """

    model: ModelConfig
    limits: LimitsConfig
    loop: LoopConfig
    breaker: BreakerConfig
    results: ResultsConfig
    context: ContextConfig
    permissions: PermissionsConfig
    paths: PathsConfig
    watch: WatchConfig
    hooks: HooksConfig
    memory: MemoryConfig
    parsing: ParsingConfig
    snapshot: SnapshotConfig
    record: RecordConfig
    plugins: PluginsConfig
    agents: Mapping[str, AgentConfig]
    origins: Mapping[str, str]
    project: Path
    file: Path | None = None
    warnings: tuple[str, ...] = ()


def load_config(
    *,
    file: Path | None = None,
    sets: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Config:
    """The config of a command: `sets`, then `options`, environment, file, defaults.

    Without `file`, `config/runner.toml` of the project that `cwd` lies in, if there is one. Raises
    `ConfigError` with all problems. Relative paths count from the project in files, from `cwd` in
    options and sets.
    """
    cwd = Path.cwd() if cwd is None else cwd.absolute()
    environ = os.environ if environ is None else environ
    home = _home(environ)
    path, doubt = (cwd / file, "") if file is not None else find(cwd, home)
    project = cwd if path is None else _project(path)
    found = chain(
        from_file(path, _label(path, cwd), project) if path else (),
        from_environment(environ, project),
        from_options(options or {}, cwd),
        from_sets(sets, cwd),
    )
    config = _composed(found, project, path, home)
    return replace(config, warnings=(_line(doubt), *config.warnings)) if doubt else config


def config_from(values: Mapping[str, Mapping[str, Any]], *, project: Path) -> Config:
    """The config of a host that embeds the runner, from plain tables; reads no file and no environment."""
    project = project.absolute()
    found = from_tables(values, "config", "option", project)
    return _composed(found, project, None, _home(os.environ))


def shown(config: Config) -> dict[str, dict[str, dict[str, Any]]]:
    """`{TABLE: {KEY: {"value", "origin"}}}`, ready for JSON. Passwords inside an address are masked."""
    tables = {name: _values(getattr(config, name), MANIFEST[name]) for name in TABLES}
    tables["permissions"] |= config.permissions.scoped
    for name, agent in config.agents.items():
        values = _values(agent, AGENT_KEYS)
        if agent.tools:
            values["permissions"] = {**agent.permissions, "tools": dict(agent.tools)}
        tables[f"agents.{name}"] = values
    return {
        table: {
            key: {"value": value, "origin": config.origins[f"{table}.{key}"]}
            for key, value in values.items()
        }
        for table, values in tables.items()
    }


def _values(settings: Any, keys: Mapping[str, Key]) -> dict[str, Any]:
    return {name: _plain(getattr(settings, key.attribute)) for name, key in keys.items()}


def _plain(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return dict(value)
        case str():
            return re.sub(r"(?<=://)[^/@\s]+@", "***@", value)
        case _:
            return value


def _project(path: Path) -> Path:
    folder = path.parent.resolve() if ".." in path.parts else path.parent
    return folder.parent if folder.name == "config" else folder


def _label(path: Path, cwd: Path) -> str:
    if path.is_relative_to(cwd):
        return str(path.relative_to(cwd))
    here = Path(os.path.realpath(cwd))
    return os.path.relpath(path, here) if here.is_relative_to(_project(path)) else str(path)


def _home(environ: Mapping[str, str]) -> Path:
    named = environ.get("HOME") or environ.get("USERPROFILE")
    try:
        return Path(named) if named else Path.home()
    except RuntimeError:  # a container whose user has no entry
        return Path("~")


class _Draft:
    """What is known so far. A later value replaces an earlier one; a problem replaces nothing."""

    def __init__(self, project: Path, home: Path) -> None:
        self.project = project
        self.home = home
        self.values: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
        self.origins: dict[str, str] = {}
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def take(self, given: Given) -> None:
        """Adds one value, or the problem with it."""
        try:
            rule = _rule(given)
            value = self._checked(given, rule)
        except Wrong as error:
            self.problems.append(f"{given.where}: {error}")
            return
        table = self.values.setdefault(given.table, {})
        if given.part:
            value = MappingProxyType({**table.get(given.key, {}), **value})
        table[given.key] = value
        self.origins[f"{given.table}.{given.key}"] = given.origin

    def _checked(self, given: Given, rule: Rule) -> Any:
        value = given.value
        if given.raw and given.part:
            value = {value[0]: parsed(value[1], "choice")}
        elif given.raw:
            value = parsed(value, rule.sort)
        if given.milliseconds:
            return self._milliseconds(given, rule)
        checked = check(rule, value, given.base, self.home)
        if given.base != self.project and _is_model(given):
            checked = located(checked, given.base)
        doubt = suspect(rule, value, checked)
        if doubt:
            self.warnings.append(f"{given.where}: {doubt}")
        return checked

    def _milliseconds(self, given: Given, rule: Rule) -> Any:
        checked = check(rule, given.value / 1000, given.base, self.home)
        if checked < 1:
            self.warnings.append(
                f"{given.where}: counts milliseconds, so {given.value} is {checked:g} s; "
                "were seconds meant?"
            )
        return checked

    def built(self, table: str, keys: Mapping[str, Key]) -> dict[str, Any]:
        """The fields of a table: what was given, else the defaults."""
        for name in keys:
            self.origins.setdefault(f"{table}.{name}", "default")
        given = self.values[table]
        return {
            key.attribute: given[name] if name in given else self._default(key)
            for name, key in keys.items()
        }

    def _default(self, key: Key) -> Any:
        if key.rule.sort in {"path", "paths"}:
            return check(key.rule, key.default, self.project, self.home)
        return key.default


def _is_model(given: Given) -> bool:
    agents = given.table.startswith("agents.")
    return given.key == "model" if agents else (given.table, given.key) == ("model", "name")


def _rule(given: Given) -> Rule:
    key = keys_in(given.table).get(given.key)
    if key is not None:
        return key.rule
    if given.table == "permissions" and is_scope(given.key):
        return Rule("choice", choices=POLICIES)
    raise Wrong(unknown_key(given.table, given.key))


def _composed(found: Iterable[Given | str], project: Path, file: Path | None, home: Path) -> Config:
    draft = _Draft(project, home)
    for item in found:
        if isinstance(item, str):
            draft.problems.append(item)
        else:
            draft.take(item)
    if draft.problems:
        raise ConfigError([_line(problem) for problem in dict.fromkeys(draft.problems)])
    tables = {name: table(**_fields(draft, name)) for name, table in TABLES.items()}
    names = [name.removeprefix("agents.") for name in draft.values if name.startswith("agents.")]
    return Config(
        **tables,
        agents=MappingProxyType({name: _agent(draft, name) for name in names}),
        origins=MappingProxyType(draft.origins),
        project=project,
        file=file,
        warnings=tuple(_line(warning) for warning in draft.warnings),
    )


def _fields(draft: _Draft, table: str) -> dict[str, Any]:
    values = draft.built(table, MANIFEST[table])
    if table == "permissions":
        scoped = {key: value for key, value in draft.values[table].items() if ":" in key}
        values["scoped"] = MappingProxyType(scoped)
    return values


def _agent(draft: _Draft, name: str) -> AgentConfig:
    values = draft.built(f"agents.{name}", AGENT_KEYS)
    permissions = dict(values.pop("permissions"))
    tools = permissions.pop("tools", {})
    return AgentConfig(name=name, permissions=MappingProxyType(permissions), tools=tools, **values)


def _line(text: str) -> str:
    """One line, whatever names and values it holds."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

"""Read what a file, the environment, options and `--set` say about the config. Checks no value yet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config_check import SINGLE_QUOTES, Wrong, brief, flattened, kind_of
from .config_names import nearest, unknown_table
from .settings import MANIFEST, keys_in

MAX_BYTES = 1_000_000
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"RUNNER_([A-Z0-9_]+?)__(.+)", re.ASCII)
_SET = re.compile(r"""((?:[^="']|"[^"]*"|'[^']*')+)=(.*)""", re.DOTALL)
_FLAGS = {
    "paths.skills": "--skills",
    "paths.workspace": "--workspace",
    "paths.state": "--state",
    "model.name": "--model",
    "limits.max_iterations": "--max-iterations",
}
_ARTICLE: Mapping[str, Mapping[str, str]] = {
    "llm": {
        "baseUrl": "model.base_url",
        "base_url": "model.base_url",
        "apiKeyEnv": "model.api_key_env",
        "temperature": "model.temperature",
        "maxTokens": "model.max_tokens",
    },
    "runner": {
        "maxIterations": "limits.max_iterations",
        "toolTimeout": "limits.tool_timeout",
        "toolRetries": "limits.tool_retries",
        "slotCount": "limits.slots",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value as somebody gave it. `raw`: text that may be TOML; `part`: one entry of a table."""

    table: str
    key: str
    value: Any
    origin: str
    where: str
    base: Path
    raw: bool = False
    part: bool = False
    milliseconds: bool = False


def from_file(path: Path, label: str, project: Path) -> Iterator[Given | str]:
    """What a TOML or JSON file says; a problem is a line of text."""
    try:
        text = _decoded(_bytes(path))
        is_json = path.suffix.lower() == ".json" or text.lstrip().startswith("{")
        values = _json(text) if is_json else _toml(text)
    except Wrong as error:
        yield f"{label}: {error}"
        return
    origin = f"file:{label}"
    if is_json:
        yield from _article(values, label, origin, project)
        values = {name: table for name, table in values.items() if name not in _ARTICLE}
    yield from from_tables(values, label, origin, project)


def from_tables(
    values: Mapping[str, Any], label: str, origin: str, base: Path
) -> Iterator[Given | str]:
    """What a mapping of tables says."""
    for name, table in values.items():
        if name == "agents" and isinstance(table, Mapping):
            yield from _agents(table, label, origin, base)
        elif name not in MANIFEST and name != "agents":
            yield f"{label}: {brief(name)}: {unknown_table(name)}"
        elif not isinstance(table, Mapping):
            yield f"{label}: {name}: must be a table, [{name}], not {kind_of(table)}"
        else:
            yield from _table(name, table, label, origin, base)


def from_environment(environ: Mapping[str, str], base: Path) -> Iterator[Given | str]:
    """What `RUNNER_TABLE__KEY` variables say; other `RUNNER_` variables are not ours."""
    for variable in sorted(environ):
        found = _VARIABLE.fullmatch(variable.upper())
        if found is None:
            continue
        table, key = found[1].lower(), found[2].lower()
        if table == "agents":
            agent, _, key = key.partition("__")
            table = f"agents.{agent}"
        if not keys_in(table):
            yield f"{variable}: {unknown_table(table)}"
            continue
        names = {one.attribute: one.name for one in keys_in(table).values()}
        yield Given(
            table=table,
            key=names.get(key, key),
            value=environ[variable],
            origin=f"env:{variable}",
            where=variable,
            base=base,
            raw=True,
        )


def from_options(options: Mapping[str, Any], base: Path) -> Iterator[Given | str]:
    """What command-line options say, by dotted key; None is an option not given."""
    for dotted, value in options.items():
        if value is None:
            continue
        plain = str(value) if isinstance(value, Path) else value
        if isinstance(value, list | tuple):
            plain = [str(item) for item in value]
        yield _given(
            dotted, plain, "option", _FLAGS.get(dotted, f"option {dotted}"), base, raw=False
        )


def from_sets(sets: Sequence[str], base: Path) -> Iterator[Given | str]:
    """What `--set KEY=VALUE` says."""
    for text in sets:
        found = _SET.fullmatch(text)
        if found is None:
            yield f"--set {brief(text)}: must be KEY=VALUE, such as limits.max_iterations=3"
            continue
        dotted = found[1].strip()
        yield _given(dotted, found[2].strip(), "set", f"--set {brief(dotted)}", base, raw=True)


def parsed(text: str, sort: str) -> Any:
    """A value from the environment or `--set`: TOML, or bare text where it is none."""
    quoted = text.startswith(('"', "'"))
    if sort in {"text", "prose", "variable", "choice", "path"} and not quoted:
        return text
    try:
        values = _loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        if quoted or text.startswith(("[", "{")):
            raise Wrong(f"is not a TOML value: {_plain(str(error))}") from error
        return text
    return values["value"] if len(values) == 1 else text


def _given(
    dotted: str, value: Any, origin: str, where: str, base: Path, *, raw: bool
) -> Given | str:
    table, _, key = dotted.partition(".")
    if table == "agents":
        agent, _, key = key.partition(".")
        table = f"agents.{_unquoted(agent)}"
        if not _AGENT.fullmatch(_unquoted(agent)) or not key:
            return f"{where}: must be agents.NAME.KEY, such as agents.planner.max_iterations"
    if not keys_in(table):
        return f"{where}: {unknown_table(table)}"
    part = table == "permissions" and key.startswith("tools.")
    if part and not raw:
        value = {key.removeprefix("tools."): value}
    if part and raw:
        value = (_unquoted(key.removeprefix("tools.")), value)
    return Given(
        table=table,
        key="tools" if part else _unquoted(key),
        value=value,
        origin=origin,
        where=where,
        base=base,
        raw=raw,
        part=part,
    )


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'" else name


def _table(
    name: str, table: Mapping[str, Any], label: str, origin: str, base: Path
) -> Iterator[Given]:
    for key, value in (flattened(table) if name == "permissions" else table).items():
        where = f"{label}: {name}.{brief(str(key))}"
        yield Given(table=name, key=str(key), value=value, origin=origin, where=where, base=base)


def _agents(
    agents: Mapping[str, Any], label: str, origin: str, base: Path
) -> Iterator[Given | str]:
    for name, table in agents.items():
        if not _AGENT.fullmatch(name):
            yield f"{label}: agents.{brief(name)}: a name has letters, digits, - and _, at most 64"
        elif not isinstance(table, Mapping):
            yield (
                f"{label}: agents.{name}: must be a table, [agents.NAME] with a name of your "
                f"choice, not {kind_of(table)}"
            )
        else:
            named = table or {"description": ""}  # an empty table is an agent, too
            yield from _table(f"agents.{name}", named, label, origin, base)


def _article(
    values: Mapping[str, Any], label: str, origin: str, base: Path
) -> Iterator[Given | str]:
    """The tables `llm` and `runner` of the JSON form, in camelCase, `toolTimeout` in milliseconds."""
    for name, known in _ARTICLE.items():
        table = values.get(name, {})
        if not isinstance(table, Mapping):
            yield f"{label}: {name}: must be an object, not {kind_of(table)}"
            continue
        if name == "llm":
            yield from _named_model(table, label, origin, base)
            table = {key: value for key, value in table.items() if key not in {"provider", "model"}}
        for key, value in table.items():
            where = f"{label}: {name}.{brief(key)}"
            if key not in known:
                meant = nearest(key, known)
                yield f"{where}: unknown key; " + (
                    f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
                )
                continue
            yield _translated(known[key], value, origin, where, base)


def _translated(dotted: str, value: Any, origin: str, where: str, base: Path) -> Given:
    table, _, key = dotted.partition(".")
    milliseconds = (
        dotted == "limits.tool_timeout"
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    )
    return Given(
        table=table,
        key=key,
        value=value,
        origin=origin,
        where=where,
        base=base,
        milliseconds=milliseconds,
    )


def _named_model(
    llm: Mapping[str, Any], label: str, origin: str, base: Path
) -> Iterator[Given | str]:
    provider, model = llm.get("provider", ""), llm.get("model", "")
    if not isinstance(provider, str) or not isinstance(model, str):
        yield f"{label}: llm.model: provider and model must be text in quotes"
        return
    if provider and not model:
        yield f'{label}: llm.model: is missing; name the model, such as "qwen2.5:7b"'
    if model:
        full = f"{provider}/{model}" if provider else model
        yield _translated("model.name", full, origin, f"{label}: llm.model", base)


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():  # a FIFO would block for ever
            what = "is not a file" if path.exists() else "there is no such file"
            raise Wrong(f"{what}; `runner init` writes config/runner.toml")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise Wrong(f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the name
        raise Wrong(f"cannot be read: {error}") from error
    if len(data) > MAX_BYTES:
        raise Wrong(f"is larger than {MAX_BYTES:,} bytes; this is no config file")
    return data


def _decoded(data: bytes) -> str:
    try:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in (data[:1], data[1:2]):
            raise Wrong("not UTF-8 (looks like UTF-16); save it as UTF-8")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        guess = " (looks like GBK)" if _looks_like_gbk(data) else ""
        raise Wrong(f"line {line}: not UTF-8{guess}; save it as UTF-8") from error


def _looks_like_gbk(data: bytes) -> bool:
    try:
        text = data.decode("gbk")
    except UnicodeDecodeError:
        return False
    return all("\u2e80" <= char <= "\uffef" for char in text if ord(char) > 127)  # noqa: PLR2004 - ASCII


def _toml(text: str) -> dict[str, Any]:
    try:
        return _loads(text)
    except (ValueError, RecursionError) as error:
        lines = text.splitlines() or [""]
        found = re.search(r"\(at line (\d+)", str(error))
        number = min(int(found[1]), len(lines)) if found else len(lines)
        hint = _hint(lines[number - 1])
        raise Wrong(f"line {number}: not valid TOML: {_plain(str(error))}{hint}") from error


def _loads(text: str) -> dict[str, Any]:
    import tomli  # a host that brings its own values needs none

    found: dict[str, Any] = tomli.loads(text)
    return found


def _plain(message: str) -> str:
    return re.sub(r" \(at .*\)$", "", message.splitlines()[0] if message else "unreadable")


def _hint(line: str) -> str:
    if "\\" in line:
        return f"; {SINGLE_QUOTES}"
    if re.search(r"=\s*\d+(\.\d+)?\s*(ms|s|m|h)\b", line):
        return '; a time with a unit goes in quotes ("30s")'
    if re.search(r"=\s*[A-Za-z]", line):
        return "; text goes in quotes"
    return ""


def _json(text: str) -> dict[str, Any]:
    import json  # most configs are TOML

    try:
        values = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise Wrong(f"line {error.lineno}: not valid JSON: {error.msg}") from error
    except Wrong:
        raise
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not valid JSON: {_plain(str(error))}") from error
    if not isinstance(values, dict):
        raise Wrong(f"must be a JSON object, not {kind_of(values)}")
    return values


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise Wrong(f"key {brief(name)!r} is given twice; keep one")
    return dict(pairs)

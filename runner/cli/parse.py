"""`runner parse`: what the parser sees in a text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ..calls.schema import checker
from ..config import Config
from ..errors import ConfigError
from ..parsing.report import explain, parse_record, report
from .common import Common
from .console import stdin_text
from .options import command
from .skills import scanned

_FILE = click.Path(path_type=Path)
_MOST_BYTES = 16_000_000  # of a reply on stdin


@command(
    'echo \'{"tool": "list_files", "params": {"path": "."}}\' | runner parse -v',
    "runner parse --tools tools.json --mode json < reply.txt",
    "runner parse --batch replies.jsonl",
)
@click.option(
    "--tools",
    type=_FILE,
    metavar="FILE",
    help="JSON list of {name, parameters}; without it, this project's tools.",
)
@click.option("--mode", type=click.Choice(["native", "json"]), default="native", show_default=True)
@click.option("--batch", type=_FILE, metavar="FILE.jsonl", help="Records with text and tools.")
def parse(common: Common, tools: Path | None, mode: str, batch: Path | None) -> int:
    """Read a model's reply on stdin and print the calls the parser finds in it.

    With --batch, one line per record; a record has text, tools, and perhaps finish_reason and
    context.tool_outputs. -v explains the reading on stderr.
    """
    config = common.load()
    policy = config.parsing.policy
    given = _json_file(tools) if tools is not None else _own_tools(config)
    if batch is not None:
        for record in _records(batch):
            _print(common, {"tools": given, **record}, mode, policy)
    else:
        text = stdin_text(_MOST_BYTES, "no reply is that long")
        _print(common, {"text": text, "tools": given}, mode, policy)
    return 0


def _own_tools(config: Config) -> list[dict[str, Any]]:
    tools = scanned(config).tools.values()
    return [{"name": tool.name, "parameters": tool.parameters} for tool in tools]


def _print(common: Common, record: Mapping[str, Any], mode: str, policy: str) -> None:
    mode = record.get("mode") or mode
    common.console.json(report(record, mode=mode, policy=policy, fits_for=_fits_for))
    if common.verbose:
        parsed = parse_record(record, mode=mode, policy=policy, fits_for=_fits_for)
        common.console.line(explain(parsed, str(record.get("text") or "")))


def _fits_for(
    tools: Mapping[str, Mapping[str, Any]],
) -> Callable[[str, dict[str, Any]], bool]:
    def fits(name: str, arguments: dict[str, Any]) -> bool:
        return checker(dict(tools[name])).fits(arguments)

    return fits


def _records(file: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_read(file).splitlines(), 1):
        if not line.strip():
            continue
        record = _loads(line, f"{file}, line {number}")
        if not isinstance(record, dict):
            raise ConfigError(f'{file}, line {number}: a record is an object with "text"')
        yield record


def _json_file(file: Path) -> Any:
    return _loads(_read(file), str(file))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error


def _loads(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error

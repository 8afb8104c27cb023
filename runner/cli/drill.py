"""`runner skills drill`: a tool's behaviour under faults, as a pass record."""

from __future__ import annotations

import asyncio

import click

from ..catalog.skill import Snapshot
from ..config import Config
from ..drill import PassRecord, drill
from .common import Common
from .options import command
from .skills import named, scanned
from .text import one_line, table

_MARKS = {"ok": "ok", "failed": "FAILED", "not_applicable": "–"}
_FIGURE_CHARS = 160


@command(
    "runner skills drill extract_config_items", "runner skills drill files --json", name="drill"
)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="The pass records as data.")
@click.option("--really", is_flag=True, help="Run the tool's own code where it is to work, too.")
def drill_(common: Common, name: str, as_json: bool, really: bool) -> int:
    """Run a tool, or all tools of a skill, through scripted faults: slow, broken and lost.

    Everything but the tool's own function is real: admission, gates, retries, breaker, fallbacks.
    No model is asked, and no question: what the policy would ask is allowed, what it denies stays
    denied. Exit: 0 every promise that applies was kept, 1 one was not.
    """
    config = common.load(watch={"backend": "off"})
    records = asyncio.run(_drilled(config, scanned(config), name, really=really))
    if as_json:
        passed = all(record.passed for record in records)
        common.console.json(
            {"passed": passed, "tools": [record.to_dict() for record in records]}, indent=2
        )
    else:
        common.console.answer("\n\n".join("\n".join(_lines(record)) for record in records))
    return int(not all(record.passed for record in records))


async def _drilled(
    config: Config, snapshot: Snapshot, name: str, *, really: bool
) -> list[PassRecord]:
    skill = named(snapshot, name)
    tools = [tool for tool in skill.tools if name in (tool.name, skill.name)]
    return [await drill(config, snapshot, skill, tool, really=really) for tool in tools]


def _lines(record: PassRecord) -> list[str]:
    states = [promise.state for promise in record.promises]
    failed, kept = states.count("failed"), states.count("ok")
    summary = f"{kept} kept, {failed} failed, {states.count('not_applicable')} not applicable"
    rows = [
        (f"  {_MARKS[p.state]}", p.fault, p.name, one_line(p.figure, _FIGURE_CHARS))
        for p in record.promises
    ]
    return [f"{record.tool} ({record.skill}): {summary}", *table(rows)]

"""`runner skills call`: one tool call through admission, execution and shaping, without a model."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from ..config import Config
from ..errors import ConfigError
from ..events import Event
from ..model.scripted import ScriptedModel
from ..runner import Runner
from .approval import approver
from .common import Common
from .denied import way_out
from .logs import configure
from .options import command
from .run import OneTurn
from .skills import scanned
from .text import one_line
from .trace import line_of

_CANCELLED = 130
_GATES = ("approval.", "tool.", "breaker.", "loop.", "agent.", "reply.")
_CHARS = 160


@command(
    "runner skills call list_files",
    'runner skills call extract_config_items --args \'{"file_path": "a.md", "keyword": "KEY"}\' -v',
)
@click.argument("tool")
@click.option("--args", "arguments", metavar="JSON", default="{}", help="The arguments, an object.")
@click.option("--json", "as_json", is_flag=True, help="The finished call as a JSON object.")
@click.option("--yes", is_flag=True, help="Answer every question of the policy with yes.")
def call(common: Common, tool: str, arguments: str, as_json: bool, yes: bool) -> int:
    """Run one call exactly as a model's would be, and print the result the model would get.

    -v shows each gate as it is passed. Exit: 0 a result, 1 an error as result.
    """
    configure(common.console, verbose=max(0, common.verbose - 1))  # -v has lines of its own here
    config = common.load(
        watch={"backend": "off"},
        limits={"max_offered_tools": 1_000_000},
        model={"context_window": common.load(warn=False).model.context_window or 16_384},
    )
    seen: list[Event] = []
    turn = OneTurn(common.console, stream=False, live=False, listeners=[seen.append])
    model = ScriptedModel(_script(tool, _object(arguments)), "scripted/skills-call")
    asked = approver(common.console, yes=yes)
    result = turn.run(
        Runner(config=config, model=model, approver=asked, record=False), f"call {tool}"
    )
    if common.verbose:
        for event in seen:
            if event.type.startswith(_GATES):
                common.console.line(one_line(line_of(event.to_dict())[14:], _CHARS))
    finished = [e for e in seen if e.type == "tool.finished" and e.data.get("call_id") == _ID]
    if not finished:
        common.console.error(turn.reason or result.answer.splitlines()[0])
        return _CANCELLED if result.status == "cancelled" else 1
    data = dict(finished[0].data)
    failed = _failed(config, tool) if data["kind"] == "unknown_tool" else ""
    if failed and not as_json:
        common.console.error(failed)
        return 1
    code = _shown(common, data, as_json=as_json)
    if hint := failed or (way_out([str(data["content"])]) if data["kind"] == "denied" else ""):
        common.console.note(hint)
    return code


def _failed(config: Config, tool: str) -> str:
    """Why there is no such tool, if the manifest of a skill that failed to load names it."""
    for skill in scanned(config).skills:
        if skill.state != "failed":
            continue
        try:
            text = skill.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        if re.search(rf"""["']{re.escape(tool)}["']""", text):
            return (
                f"{tool} cannot be called: its skill {skill.name!r} failed to load: {skill.reason}"
            )
    return ""


def _shown(common: Common, data: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        common.console.json(data)
    else:
        common.console.answer(str(data["content"]))
        if common.verbose and data.get("output"):
            common.console.line(f"it printed: {one_line(str(data['output']), _CHARS)}")
    return 0 if data["ok"] else 1


_ID = "call_0001"


def _script(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    calls = [{"id": _ID, "name": tool, "arguments": arguments}]
    return {"replies": [{"calls": calls}, {"text": "done"}]}


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--args: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"--args: must be a JSON object, not {one_line(text, 60)}")
    return value

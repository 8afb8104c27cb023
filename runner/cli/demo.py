"""`runner demo`: the main job on sample documents, with a script in the model's place."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from ..config import config_from
from ..events import Event
from ..model.scripted import ScriptedModel, read_script
from ..runner import Runner
from ..starter import DEMO_GOAL, demo_documents, demo_script, starter_skills
from .approval import SayYes
from .common import Common
from .console import Console
from .options import command
from .run import EXIT_CODES, OneTurn, show
from .text import dump, one_line

_CHARS = 100
_INTRODUCTION = """\
A demonstration: the model's replies are read from a script, everything else is real. The skills
run on a temporary copy of {files} sample documents; nothing is written here.

Goal: {goal}
"""
_NEXT = """
Now with a model of your own, in a folder of yours:
  {runner} init                # config and skills
  ollama pull qwen2.5:7b       # a local model (Ollama running), or: export ANTHROPIC_API_KEY=…
  {runner} run "Which files mention API_KEY?"
"""


@command("runner demo", "runner demo -q")
def demo(common: Common) -> int:
    """The main job, from the goal to a table, with a scripted model: no server, no key."""
    console = common.console
    with tempfile.TemporaryDirectory(prefix="runner-demo-") as place:
        home = Path(place)
        workspace = Path(shutil.copytree(demo_documents(), home / "workspace"))
        files = sum(path.is_file() for path in workspace.rglob("*"))
        console.note(_INTRODUCTION.format(files=files, goal=DEMO_GOAL))
        turn = OneTurn(console, live=False, listeners=[_Calls(console)])
        result = turn.run(_runner(home, workspace), DEMO_GOAL)
    show(console, result, turn.reason, as_json=False)
    console.note(_NEXT.format(runner=_program()))
    return EXIT_CODES[result.status]


def _runner(home: Path, workspace: Path) -> Runner:
    paths = {
        "skills": [str(starter_skills())],
        "workspace": str(workspace),
        "state": str(home / "s"),
    }
    config = config_from({"paths": paths, "watch": {"backend": "off"}}, project=home)
    model = ScriptedModel(read_script(demo_script()), "scripted/demo")
    return Runner(config=config, model=model, approver=SayYes(), record=False, environ={})


def _program() -> str:
    """How the program is called from any folder: by its name if that is on the path."""
    begun = Path(sys.argv[0])
    if shutil.which("runner") or begun.name != "runner":
        return "runner"
    return shlex.quote(str(begun.absolute()))


class _Calls:
    """A listener that shows calls and their results as they happen."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, event: Event) -> None:
        """Shows one event, if it is one of a call."""
        data = event.data
        match event.type:
            case "model.replied" if data.get("calls"):
                self._console.note(f"[{event.iteration}] model: {data.get('text')}")
            case "tool.started":
                arguments = one_line(dump(data.get("arguments")), _CHARS)
                self._console.note(f"    call   {data.get('tool')} {arguments}")
            case "tool.finished":
                text = one_line(str(data.get("content")), _CHARS)
                self._console.note(
                    f"    result {data.get('kind')} in {data.get('duration'):.3f} s: {text}"
                )
            case "turn.finished":
                self._console.note("")

"""A project on disk and the command line as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skill_kit import write

ROOT = Path(__file__).resolve().parents[2]
MODEL = "ollama/fake-model"
ECHO = {
    "echo/skill.toml": """\
manifest = 1
name = "echo"
version = "0.1.0"
description = "Gives a text back."
[[tools]]
name = "echo"
description = "Gives a text back."
entry = "skill:echo"
read_only = true
[tools.parameters]
type = "object"
required = ["text"]
properties.text = { type = "string", description = "Any text" }
""",
    "echo/skill.py": """\
import os, sys
def echo(text):
    print("printed by the skill")
    os.write(1, b"written to fd 1\\n")
    return {"text": text}
""",
}
SLOW = {
    "slow/skill.toml": ECHO["echo/skill.toml"].replace("echo", "slow"),
    "slow/skill.py": "import time\ndef slow(text):\n    time.sleep(30)\n    return text\n",
}
NOTE = {
    "note/skill.toml": ECHO["echo/skill.toml"]
    .replace("echo", "note")
    .replace("read_only = true", 'permissions = ["fs.write"]'),
    "note/skill.py": """\
def note(text, ctx):
    ctx.path("note.txt", write=True).write_text(text)
    return "kept"
""",
}


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Project:
    """A folder with skills and a config, to run commands in."""

    def __init__(
        self, folder: Path, *skills: dict[str, str], url: str = "", config: str = ""
    ) -> None:
        self.folder = folder
        (folder / "skills").mkdir(parents=True)
        (folder / "workspace").mkdir()
        for files in skills:
            write(folder / "skills", dict(files))
        text = (
            f'[model]\nname = "{MODEL}"\nbase_url = "{url}"\nretries = 0\ncontext_window = 8192\n'
            f'[paths]\nworkspace = "workspace"\nstate = "state"\n{config}'
        )
        write(folder, {"config/runner.toml": text})

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "runner", *arguments],
            cwd=self.folder,
            env=environment(**env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *arguments: str, stdin: bytes = b"", **env: str) -> Done:
        process = self.start(*arguments, **env)
        out, err = process.communicate(stdin, timeout=60)
        return Done(
            process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        )


def environment(**more: str) -> dict[str, str]:
    """This environment with the package on the path and no provider's key in it."""
    kept = {
        k: v for k, v in os.environ.items() if not k.endswith("_API_KEY") and k != "OLLAMA_HOST"
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def calls(*wanted: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A reply with native calls."""
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in wanted]}


def says(text: str) -> dict[str, Any]:
    """A reply with text."""
    return {"text": text}

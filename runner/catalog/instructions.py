"""What the model reads when it opens a skill: its body, its folder, its files and how to run them.

A skill's folder may lie outside the workspace. So it is named by its absolute path, which
`run_command` can use whatever its working directory is, and scripts are listed with the command
that runs them: the policy for `exec` decides about each, as about any other command.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from ..errors import SkillError
from . import agentskills, source
from .skill import Skill, printable

BODY_CHARS = 50_000
LISTED_CHARS = 6_000
MAX_SCRIPTS = 40
_HEAD_BYTES = 8_000
_FOLDER = re.compile(r"\{baseDir\}|\$\{CLAUDE_SKILL_DIR\}")  # how bodies name their own folder
_DECLARED = re.compile(r"^# /// script[ \t]*$", re.MULTILINE)  # PEP 723
_INTERPRETERS = {".py": "python3", ".sh": "bash", ".js": "node", ".mjs": "node"}
Which = Callable[[str], str | None]


def opened(
    skill: Skill, *, most: int = BODY_CHARS, commands: bool = False, which: Which = shutil.which
) -> str:
    """The text of an opened skill; raises `SkillError`. Blocking: it reads files.

    `most` bounds the body, and a cut one says where the rest is. `commands`: there is a tool
    `run_command`, so scripts are listed with the command that runs each.
    """
    folder = printable(skill.location.absolute())
    body = _FOLDER.sub(lambda _: folder, agentskills.skill_body(skill))
    files = agentskills.skill_files(skill)
    head = f'<skill_content name="{skill.name}" folder="{folder}">'
    listed = _listed(skill, files, commands, which)
    return f"{head}\n{_bounded(skill, body, most)}\n</skill_content>\n{listed}"


def _bounded(skill: Skill, body: str, most: int) -> str:
    if len(body) <= most:
        return body.rstrip("\n")
    cut = body.rfind("\n", most * 3 // 4, most)
    kept = body[: cut if cut > 0 else most].rstrip("\n")
    file = skill.body_path.name if skill.body_path else "SKILL.md"
    rest = f"read_skill_file(name={skill.name!r}, path={file!r}) has all of it"
    return f"{kept}\n[… {len(body) - len(kept):,} of {len(body):,} characters left out; {rest}]"


def _listed(skill: Skill, files: tuple[str, ...], commands: bool, which: Which) -> str:
    if not files:
        return "It has no other files."
    lines = ["Its files; read one with read_skill_file:"]
    room, scripts = LISTED_CHARS, MAX_SCRIPTS
    for count, file in enumerate(files):
        line = f"- {_plain(file)}"
        if commands and scripts and Path(file).suffix in _INTERPRETERS:
            scripts -= 1
            line += f"  (run_command: {_command(skill.location, file, which)})"
        room -= len(line) + 1
        if room < 0:
            lines.append(f"({len(files) - count} more files are not listed)")
            break
        lines.append(line)
    return "\n".join(lines)


def _command(folder: Path, file: str, which: Which) -> str:
    """How a script is run: by uv when it declares its packages, else by its interpreter."""
    path = shlex.quote(printable((folder / file).absolute()))
    suffix = Path(file).suffix
    if suffix == ".py" and _declares_packages(folder, file):
        run = f"uv run --script {path}"
        return run if which("uv") else f"{run} – uv is not installed here: pip install uv"
    return f"{_INTERPRETERS[suffix]} {path}"


def _declares_packages(folder: Path, file: str) -> bool:
    try:
        data = source.read_file(str(folder), file, source.MODULE_BYTES, inside=True)
    except SkillError:
        return False
    return _DECLARED.search(data[:_HEAD_BYTES].decode("utf-8", "replace")) is not None


def _plain(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)

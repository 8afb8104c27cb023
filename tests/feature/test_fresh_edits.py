"""An edit that was saved just before an iteration begins is in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from runner import Runner, ScriptedModel

MANIFEST = """\
manifest = 1
name = "pick"
description = "Gives a value."
[[tools]]
name = "pick"
description = "Gives a value."
entry = "skill:pick"
read_only = true
repeatable = true
"""


def write(folder: Path, value: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "skill.toml").write_text(MANIFEST)
    (folder / "skill.py").write_text(f"def pick() -> str:\n    return 'value {value}'\n")


def test_a_turn_right_after_a_save_uses_what_was_saved(tmp_path):
    turns = 5
    replies = [
        reply for _ in range(turns) for reply in ({"calls": [{"name": "pick"}]}, {"text": "ok"})
    ]
    seen: list[str] = []

    async def go() -> None:
        config = {
            "paths": {
                "skills": [str(tmp_path / "skills")],
                "workspace": str(tmp_path),
                "state": str(tmp_path / "state"),
            }
        }
        write(tmp_path / "skills" / "pick", 0)
        model = ScriptedModel({"replies": replies})
        async with Runner(model=model, config=config) as runner, runner.session() as session:
            session.listen(
                lambda e: seen.append(e.data["content"]) if e.type == "tool.finished" else None
            )
            for turn in range(turns):
                write(tmp_path / "skills" / "pick", turn)
                await asyncio.sleep(0.005)  # what a person needs at the least to press a key
                await session.run(f"turn {turn}")

    asyncio.run(go())
    assert seen == [f"value {turn}" for turn in range(turns)]

"""Agent Skills in a turn: opened once, read within bounds, their scripts run as commands."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import trajectories as t
from skill_kit import write

from runner import Runner, ScriptedModel
from runner.types import Message

STARTER = Path(__file__).parents[2] / "skills" / "shell"


def page(name: str = "demo", body: str = "# How\n") -> str:
    return f"---\nname: {name}\ndescription: What {name} does and when.\n---\n{body}"


def run(tmp_path, replies, *, goals=("go",), **tables) -> list[Message]:
    """The transcript; the skills lie outside the workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    allowed = {"fs.read": "allow", "fs.write": "allow", "exec": "allow"}
    tables = {"permissions": allowed, **tables}
    tables["paths"] = {"skills": [str(tmp_path / "skills")], "workspace": str(workspace)}
    done = t.record(t.config(tmp_path, **tables), [*replies, t.say("done")], goals=goals)
    assert [r.status for r in done.results] == ["completed"] * len(goals)
    return list(done.messages)


def results(messages: list[Message]) -> list[str]:
    return [message.content for message in messages if message.role == "tool"]


def opens(name: str = "demo"):
    return t.call("use_skill", name=name)


def test_an_opened_skill_is_sent_once_and_kept(tmp_path):
    write(tmp_path / "skills", {"demo/SKILL.md": page(body="# The steps\n")})
    first, again, later = results(
        run(tmp_path, [opens(), opens(), t.say("one"), opens()], goals=("go", "on"))
    )
    assert "# The steps" in first
    assert again == later == "skill demo is open already: its instructions are above"


def test_an_edited_skill_may_be_opened_again(tmp_path):
    write(tmp_path / "skills", {"demo/SKILL.md": page(body="# The steps\n")})
    settings = t.config(tmp_path, paths={"skills": [str(tmp_path / "skills")]})

    async def main():
        model = ScriptedModel({"replies": [opens(), t.say("one"), opens(), t.say("two")]})
        async with Runner(model=model, config=settings) as runner, runner.session("s1") as session:
            await session.run("go")
            write(tmp_path / "skills", {"demo/SKILL.md": page(body="# Better steps\n")})
            runner.shared.registry.refresh()
            await session.run("again")
            return results(session.state.transcript)

    first, second = asyncio.run(main())
    assert "# The steps" in first
    assert "# Better steps" in second


def test_a_body_too_long_for_the_window_is_cut_and_says_where_the_rest_is(tmp_path):
    write(tmp_path / "skills", {"demo/SKILL.md": page(body="line of text\n" * 4_000)})
    messages = run(tmp_path, [opens()], model={"context_window": 8192})
    (text,) = results(messages)
    assert len(text) < 9_000
    assert "read_skill_file(name='demo', path='SKILL.md') has all of it" in text


def test_a_script_of_a_skill_runs_by_the_command_it_is_listed_with(tmp_path):
    shutil.copytree(STARTER, tmp_path / "skills" / "shell")
    script = "import os, sys\nprint('ran in', os.path.basename(os.getcwd()), sys.argv[1:])\n"
    folder = tmp_path / "skills" / "my demo"
    write(folder, {"SKILL.md": page(), "scripts/run.py": script})
    command = f"python3 '{folder}/scripts/run.py'"
    opened, ran = results(run(tmp_path, [opens(), t.call("run_command", command=f"{command} a b")]))
    assert f"- scripts/run.py  (run_command: {command})" in opened
    assert "exit_code: 0" in ran
    assert "ran in workspace ['a', 'b']" in ran


def test_the_policy_decides_about_a_script_as_about_any_command(tmp_path):
    shutil.copytree(STARTER, tmp_path / "skills" / "shell")
    write(tmp_path / "skills" / "demo", {"SKILL.md": page(), "scripts/run.sh": "touch ran\n"})
    command = f"bash {tmp_path}/skills/demo/scripts/run.sh"
    denied = {"fs.read": "allow", "exec": "deny"}
    messages = run(tmp_path, [opens(), t.call("run_command", command=command)], permissions=denied)
    assert "exec" in results(messages)[1]
    assert not (tmp_path / "workspace" / "ran").exists()


def test_files_are_read_and_what_is_none_is_answered_with_the_nearest(tmp_path):
    files = {"SKILL.md": page(), "references/style.md": "Short.\n", "big.txt": "x\n" * 20_000}
    write(tmp_path / "skills" / "demo", files)
    paths = ("references/style.md", "style.md", "../../x", "/etc/passwd", "big.txt")
    asked = [t.call("read_skill_file", name="demo", path=path) for path in paths]
    text, missing, above, absolute, big = results(run(tmp_path, asked))
    assert text.strip() == "Short."
    assert "there are: references/style.md" in missing
    assert "not a path inside the skill's folder" in above
    assert "not a path inside the skill's folder" in absolute
    assert len(big) < 10_000
    assert "read_result" in big


def test_a_wrong_name_is_answered_with_the_nearest_of_many(tmp_path):
    names = [f"skill-{n}" for n in range(60)] + ["pdf-forms"]
    write(tmp_path / "skills", {f"{name}/SKILL.md": page(name) for name in names})
    wrong, unknown = results(run(tmp_path, [opens("pdf-form"), opens("zzzz")]))
    assert wrong.endswith("there is no skill 'pdf-form' to open; there are: pdf-forms")
    assert unknown.endswith("and 41 more")
    assert len(unknown) < 500


def test_skills_that_are_not_listed_are_found_by_words(tmp_path):
    names = [f"{'long-' * 8}{n:04}" for n in range(300)] + ["zebra-stripes"]
    write(tmp_path / "skills", {f"{name}/SKILL.md": page(name) for name in names})
    (found,) = results(run(tmp_path, [t.call("tool_search", query="stripes")]))
    assert found.startswith("These skills can be opened with use_skill:\n- zebra-stripes: What")

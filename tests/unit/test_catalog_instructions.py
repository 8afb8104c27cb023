"""An opened skill names its folder, its files and the commands that run its scripts."""

from __future__ import annotations

import subprocess

import pytest
from skill_kit import only, write

from runner.catalog import instructions
from runner.errors import SkillError

PAGE = "---\nname: demo\ndescription: d\n---\n"
DECLARES = '# /// script\n# dependencies = ["requests"]\n# ///\nprint("ran")\n'


def skill(tmp_path, body="# Body\n", folder="demo", **files):
    write(tmp_path / "s", {f"{folder}/SKILL.md": PAGE + body})
    write(tmp_path / "s" / folder, {name.replace("__", "/"): text for name, text in files.items()})
    return only(tmp_path / "s")


def test_the_body_comes_with_its_folder_and_files(tmp_path):
    found = skill(tmp_path, **{"references__a.md": "x", "scripts__run.py": "x"})
    text = instructions.opened(found)
    assert text.startswith(
        f'<skill_content name="demo" folder="{tmp_path}/s/demo">\n# Body\n</skill'
    )
    assert text.endswith("read one with read_skill_file:\n- references/a.md\n- scripts/run.py")


def test_a_lone_page_says_that_there_is_nothing_else(tmp_path):
    assert instructions.opened(skill(tmp_path)).endswith("It has no other files.")


@pytest.mark.parametrize("written", ["{baseDir}", "${CLAUDE_SKILL_DIR}"])
def test_the_names_other_tools_give_the_folder_are_replaced(written, tmp_path):
    body = f"Run `python3 {written}/scripts/run.py`; leave {{base}} and $HOME alone.\n"
    text = instructions.opened(skill(tmp_path, body))
    assert f"`python3 {tmp_path}/s/demo/scripts/run.py`; leave {{base}} and $HOME alone" in text


@pytest.mark.parametrize(
    ("file", "text", "uv", "command"),
    [
        ("scripts__run.py", "print('ran')\n", None, "python3 {}/scripts/run.py"),
        ("run.sh", "echo ran\n", None, "bash {}/run.sh"),
        ("scripts__a.js", "", None, "node {}/scripts/a.js"),
        ("scripts__run.py", DECLARES, "/bin/uv", "uv run --script {}/scripts/run.py"),
        (
            "scripts__run.py",
            DECLARES,
            None,
            "uv run --script {}/scripts/run.py – uv is not installed here: pip install uv",
        ),
        ("notes.md", "", None, ""),
    ],
)
def test_a_script_is_listed_with_its_command_where_commands_can_be_run(
    file, text, uv, command, tmp_path
):
    found = skill(tmp_path, **{file: text})
    shown = instructions.opened(found, commands=True, which=lambda _: uv)
    expected = f"  (run_command: {command.format(found.location)})" if command else ""
    assert shown.endswith(f"- {file.replace('__', '/')}{expected}")
    assert "run_command" not in instructions.opened(found)


def test_a_command_runs_whatever_the_folder_is_called(tmp_path):
    found = skill(tmp_path, folder="it's a $(touch x)", **{"run.sh": "echo ran\n"})
    shown = instructions.opened(found, commands=True)
    command = shown.rpartition("(run_command: ")[2].removesuffix(")")
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "ran\n"
    assert not (tmp_path / "x").exists()


def test_a_long_body_is_cut_at_a_line_and_says_where_the_rest_is(tmp_path):
    body = "".join(f"line {n}\n" for n in range(2_000))
    text = instructions.opened(skill(tmp_path, body), most=5_000)
    kept, _, rest = text.partition("\n[… ")
    assert 3_500 < len(kept) < 5_200
    assert kept.rpartition("\n")[2] in body.splitlines()
    assert "read_skill_file(name='demo', path='SKILL.md') has all of it]" in rest
    assert f"of {len(body):,} characters" in rest


def test_many_files_are_listed_within_bounds(tmp_path):
    many = {f"references__{'x' * 90}{n}.md": "" for n in range(150)}
    text = instructions.opened(skill(tmp_path, **many))
    assert len(text) < instructions.LISTED_CHARS + 500
    assert "more files are not listed)" in text


def test_a_file_name_that_is_no_text_is_shown_harmless(tmp_path):
    found = skill(tmp_path, **{"a\nb\x1b[31m.md": ""})
    assert instructions.opened(found).endswith("- a?b?[31m.md")


def test_a_body_that_is_gone_is_one_clear_error(tmp_path):
    found = skill(tmp_path)
    found.path.unlink()
    with pytest.raises(SkillError, match=r"SKILL.md: cannot be read"):
        instructions.opened(found)

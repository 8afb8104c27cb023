"""`skills check` names every fault; `skills new` makes skills that have none."""

from __future__ import annotations

import time

import pytest
from skill_kit import one_tool, registry, write

from runner.catalog.checks import check
from runner.catalog.scaffold import new
from runner.errors import SkillError

SPECS = {"pre_tool_use": ("call", "tool", "session"), "turn_finished": ("session", "result")}
GOOD = "Finds lines in a text. Use it when a word is asked for; at most 30 lines."


def lines(where, **options) -> list[str]:
    return [str(finding) for finding in check(where, **options)]


@pytest.mark.parametrize("form", ["native", "json", "agent-skill"])
@pytest.mark.parametrize("name", ["word-count", "class", "recall", "7-zip"])
def test_a_new_skill_passes_every_check(form, name, tmp_path):
    written = new(tmp_path / "skills", name, form)
    assert all(path.is_file() for path in written)
    assert lines([tmp_path / "skills"], hookspecs=SPECS) == []
    assert lines([tmp_path / "skills" / name]) == []
    assert registry(tmp_path / "skills").snapshot.skills[0].state == "ready"


def test_a_new_skill_works(tmp_path):
    new(tmp_path / "skills", "word-count", "json")
    found = registry(tmp_path / "skills")
    assert found.snapshot.tools["word_count"].load().function(text="a b b") == {"words": 3}


@pytest.mark.parametrize("name", ["My Skill", "a_b", "", "../x", "x" * 65])
def test_a_wrong_name_is_refused_with_the_rule(name, tmp_path):
    with pytest.raises(SkillError, match="single hyphens"):
        new(tmp_path, name)


def test_a_folder_in_use_is_not_written_into(tmp_path):
    write(tmp_path, {"taken/notes.txt": "mine"})
    with pytest.raises(SkillError, match="not empty"):
        new(tmp_path, "taken")


def test_one_check_names_every_broken_skill(tmp_path):
    write(tmp_path / "skills", one_tool("good", "def good():\n    return 1\n"))
    write(tmp_path / "skills", one_tool("syntax", "def syntax(:\n"))
    write(
        tmp_path / "skills",
        one_tool("imports", "import no_such_package_at_all\ndef imports():\n    pass\n"),
    )
    write(
        tmp_path / "skills",
        {"bare/skill.py": "", "nameless/skill.toml": 'manifest = 1\nversion = "1"\n'},
    )
    found = [x for x in lines([tmp_path / "skills"]) if ": error: " in x]
    assert len(found) == 4
    for word in (
        "skill.py: error: line 1: SyntaxError",
        "no_such_package_at_all",
        "no manifest",
        "'name' is missing",
    ):
        assert any(word in line for line in found), word


def test_each_fault_stands_on_a_line_of_its_own_at_its_own_file(tmp_path):
    write(tmp_path / "skills", one_tool("bad", "def bad(:\n"))
    manifest, module = (tmp_path / "skills" / "bad" / name for name in ("skill.toml", "skill.py"))
    manifest.write_text(f"nonsense = 1\n{manifest.read_text()}")
    first, second = lines([tmp_path / "skills" / "bad"])
    assert first.startswith(f"{manifest}: error: unknown field 'nonsense'")
    assert second.startswith(f"{module}: error: line 1: SyntaxError: ")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("@hookimpl\ndef pre_toool(call):\n    pass\n", ("pre_toool", "pre_tool_use")),
        ("@hookimpl\ndef pre_tool_use(call, tol):\n    pass\n", ("'tol'", "'tool'")),
        ("@hookimpl(tryfirst=True)\ndef pre_toool():\n    pass\n", ("pre_toool", "pre_tool_use")),
        (
            "@hookimpl(specname='pre_toool')\ndef guard():\n    pass\n",
            ("pre_toool", "pre_tool_use"),
        ),
        (
            "import pluggy\n@pluggy.HookimplMarker('runner')\ndef pre_toool():\n    pass\n",
            ("pre_toool", "pre_tool_use"),
        ),
        (
            "import pluggy\nmine = pluggy.HookimplMarker('runner')\n@mine\ndef pre_toool():\n    pass\n",
            ("pre_toool",),
        ),
        (
            "@hookimpl\ndef pre_tool_use(call):\n    pass\n",
            ("not in the manifest's list", "hooks = "),
        ),
    ],
    ids=["name", "argument", "options", "specname", "marker", "named marker", "undeclared"],
)
def test_a_guard_that_would_never_run_is_an_error(body, says, tmp_path):
    files = one_tool(
        "guarded", f"from runner import hookimpl\n{body}def guarded():\n    return 1\n"
    )
    write(tmp_path / "skills", files)
    found = [
        x for x in lines([tmp_path / "skills"], hookspecs=SPECS) if "error" in x and "guarded" in x
    ]
    assert found
    assert all(word in " ".join(found) for word in says)
    made = registry(tmp_path / "skills", hookspecs=SPECS)
    assert made.snapshot.skills[0].state == "failed"


def test_hooks_of_another_project_and_right_hooks_are_no_findings(tmp_path):
    body = "import pluggy\n@pluggy.HookimplMarker('other')\ndef anything(x):\n    pass\n@pluggy.HookimplMarker('runner')\ndef pre_tool_use(call):\n    pass\ndef guarded():\n    pass\n"
    write(tmp_path / "skills", one_tool("guarded", body, top="hooks = ['pre_tool_use']"))
    assert not [x for x in lines([tmp_path / "skills"], hookspecs=SPECS) if "error" in x]


def test_a_named_hook_that_is_not_there_is_an_error(tmp_path):
    write(tmp_path / "skills", one_tool("guarded", top="hooks = ['pre_tool_use', 'no_such']"))
    found = " ".join(lines([tmp_path / "skills"], hookspecs=SPECS))
    assert "'no_such'" in found
    assert "'pre_tool_use' is named" in found


def test_the_lint_says_what_a_description_lacks(tmp_path):
    write(
        tmp_path / "skills",
        one_tool(
            "seek",
            "def seek(q):\n    pass\n",
            "required = ['q']\nproperties.q = { type = 'string' }",
        ),
    )
    found = " ".join(lines([tmp_path / "skills"]))
    assert "says too little" in found
    assert "parameter 'q' has no description" in found
    assert ": error: " not in found


def test_a_misspelt_keyword_and_a_wrong_example_are_found(tmp_path):
    parameters = f"description = {GOOD!r}\nrequired = ['q']\nproperties.q = {{ type = 'string', minLenght = 3, minLength = 3 }}"
    write(
        tmp_path / "skills",
        one_tool("seek", "def seek(q):\n    pass\n", parameters, "examples = [{ q = 'ab' }]"),
    )
    found = " ".join(lines([tmp_path / "skills"]))
    assert "'minLenght'; did you mean 'minLength'" in found
    assert "examples[0].q" in found


def test_a_fallback_that_is_nowhere_is_an_error(tmp_path):
    write(
        tmp_path / "skills",
        one_tool(
            "a",
            flags="fallbacks = ['b', 'skill:spare', 'skill:gone', 'nope']",
            body="def a():\n    pass\ndef spare():\n    pass\n",
        ),
    )
    write(tmp_path / "skills", one_tool("b"))
    found = [x for x in lines([tmp_path / "skills"]) if ": error: " in x]
    assert len(found) == 2
    assert "'gone'" in found[0]
    assert "'nope'" in found[1]


def test_a_thread_started_by_an_import_is_an_error(tmp_path):
    body = "import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait, args=(20,), daemon=True).start()\ndef busy():\n    pass\ndef teardown():\n    stop.set()\n"
    write(tmp_path / "skills", one_tool("busy", body))
    assert any("starts 1 thread" in line for line in lines([tmp_path / "skills"]))


def test_a_path_may_be_a_skill_a_file_or_nothing(tmp_path):
    write(tmp_path / "skills", one_tool("a", "def a(:\n") | one_tool("b", "def b(:\n"))
    assert len(lines([tmp_path / "skills" / "a"])) == 1
    assert len(lines([tmp_path / "skills" / "a" / "skill.py"])) == 1
    assert "no such file" in lines([tmp_path / "gone"])[0]
    (tmp_path / "empty").mkdir()
    assert "no skill here" in lines([tmp_path / "empty"])[0]


def test_checking_a_hanging_import_ends(tmp_path):
    write(
        tmp_path / "skills",
        one_tool("hangs", "import threading\nthreading.Event().wait(60)\ndef hangs():\n    pass\n"),
    )
    made = registry(tmp_path / "skills", load_seconds=0.2)
    began = time.monotonic()
    assert any("did not end within" in str(x) for x in check(made))
    assert time.monotonic() - began < 5


def test_the_limits_of_an_agent_skill_may_stand_in_its_body(tmp_path):
    text = "---\nname: notes\ndescription: {}\n---\n# How\n"
    write(
        tmp_path / "s",
        {"notes/SKILL.md": text.format("Keeps notes. Use it when asked to keep one.")},
    )
    assert lines([tmp_path / "s"]) == []
    write(tmp_path / "s", {"notes/SKILL.md": text.format("Keeps notes in files of the workspace")})
    (finding,) = lines([tmp_path / "s"])
    assert "does not say when to use it" in finding


def test_a_shadowed_skill_is_named_once(tmp_path):
    page = "---\nname: same\ndescription: Keeps notes. Use it when asked to.\n---\n"
    write(tmp_path / "s", {"a/SKILL.md": page, "b/SKILL.md": page})
    told = [line for line in lines([tmp_path / "s"]) if "warning: shadowed" in line]
    assert len(told) == 1
    assert ": warning: shadowed by " in told[0]

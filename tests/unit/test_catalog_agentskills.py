"""Agent Skills: read as leniently as other tools do, with every surprise told."""

from __future__ import annotations

import os

import pytest
from skill_kit import only, registry, write

from runner.catalog.agentskills import read_skill_file, skill_body, skill_files
from runner.errors import SkillError


def page(
    name: object = "demo",
    description: object = "What it does and when.",
    more: str = "",
    body: str = "# Body\n",
) -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}"


def demo(tmp_path, text, folder="demo", file="SKILL.md", **options):
    write(tmp_path / "s", {f"{folder}/{file}": text})
    return only(tmp_path / "s", **options)


def test_a_page_is_a_catalogue_entry_without_tools(tmp_path):
    skill = demo(tmp_path, page())
    assert (skill.form, skill.state, skill.tools) == ("agent-skill", "ready", ())
    assert (skill.name, skill.description) == ("demo", "What it does and when.")
    assert skill.body_path == skill.path
    assert skill_body(skill) == "# Body\n"
    assert skill.to_dict()["form"] == "agent-skill"


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (page(description="Run tasks: fast, safe \U0001f680"), "Run tasks: fast, safe \U0001f680"),
        (page(description="Use when: the user asks"), "Use when: the user asks"),
        (page(description="@mention first"), "@mention first"),
        (page(description="%done"), "%done"),
        (page(description="a --- b"), "a --- b"),
        (page(description='"quoted: yes"'), "quoted: yes"),
        (page(description=">\n  folded\n  text"), "folded text"),
        ("\ufeff" + page(), "What it does and when."),
        (page().replace("\n", "\r\n"), "What it does and when."),
        (page().replace("\n", "\r"), "What it does and when."),
        ("\n\n" + page(), "What it does and when."),
        ("--- \nname: demo\ndescription: d\n---   \nb", "d"),
        ("---\nname: demo\ndescription: d\n...\nbody", "d"),
        (page(description=456), "456"),
        (page(more='metadata: {"a":{"b":["c"]}}\n'), "What it does and when."),
        (page(description="say\u200b hi\u202e"), "say hi"),
        (page(description="formula:\u0080 a [type]"), "formula: a [type]"),
        (page(more="argument-hint: [date] [reason]\n"), "What it does and when."),
    ],
)
def test_odd_but_readable_pages_load_with_all_they_say(text, description, tmp_path):
    skill = demo(tmp_path, text)
    assert (skill.state, skill.description) == ("ready", description)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no front matter"),
        ("# only a body\n", "no front matter"),
        ("---\nname: demo\n", "not closed"),
        ("---\n---\n", "must hold"),
        ("---\n- a\n---\n", "must hold"),
        ("---\njust text\n---\n", "must hold"),
        ("---\nname: demo\n---\n", "'description' is missing"),
        ("---\nname: ~\ndescription: ~\n---\n", "'description' is missing"),
        (page(description="[a, b]"), "must be text"),
        (
            "---\nname: demo\ndescription: d\nmetadata:\n\tx: y\n---\n",
            "SKILL.md:5: the front matter is not YAML",
        ),
        ("---\nname: demo\ndescription: !!python/object/apply:os.system ['x']\n---\n", ""),
        (page(more='metadata: {"a":{"requires":{"bins":["x"]}}\n'), "close the bracket"),
        (page(description="[unclosed"), "close the bracket"),
        (
            page(more="<<<<<<< ours\nmetadata:\n  a: b\n=======\n"),
            "SKILL.md:4: holds the marks of an unfinished merge",
        ),
        ("---\na: &a [x]\nb: *a\nname: demo\ndescription: d\n---\n", "aliases are not read"),
        ("---\nname: demo\ndescription: d\nx: " + "y" * 70_000 + "\n---\n", "more than 64,000"),
        (page().encode("utf-16"), "UTF-16"),
        ("---\nname: a\ndescription: caf\xe9\n---\n".encode("latin-1"), "not UTF-8"),
        (b"---\nname: a\ndescription: a\x00b\n---\n", "NUL"),
    ],
)
def test_pages_that_cannot_be_read_are_listed_with_their_reason(text, says, tmp_path):
    skill = demo(tmp_path, text)
    if says:
        assert skill.state == "failed"
        assert "demo/SKILL.md" in skill.reason
        assert says in skill.reason
    else:
        assert skill.state in ("failed", "ready")  # the tag ran nothing: it is text or refused


@pytest.mark.parametrize(
    ("folder", "name", "listed", "says"),
    [
        ("demo", "other", "other", "differs from its folder"),
        ("demo", "no", "demo", "breaks the rule"),
        ("demo", "123", "demo", "breaks the rule"),
        ("demo", "../../etc/passwd", "demo", "breaks the rule"),
        ("UPPER", "UPPER", "upper", "listed as 'upper'"),
        ("a b", "a b", "a-b", "listed as 'a-b'"),
        ("under_score", "under_score", "under-score", "listed as"),
        ("bad--name", "bad--name", "bad-name", "listed as"),
        ("demo", "zero\u200bwidth", "demo", "breaks the rule"),
        ("p\u0430ypal", "p\u0430ypal", "p\u0430ypal", "'p\\u0430ypal' mixes Latin and Cyrillic"),
        ("技能-pdf", "技能-pdf", "技能-pdf", ""),
        ("技能", "技能", "技能", ""),
        ("cafe\u0301", "caf\u00e9", "caf\u00e9", ""),
    ],
)
def test_odd_names_load_under_a_name_that_keeps_the_rule(folder, name, listed, says, tmp_path):
    skill = demo(tmp_path, page(name=name), folder=folder)
    assert (skill.state, skill.name) == ("ready", listed)
    assert says in " ".join(skill.warnings)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (page(description="fix issue #12 now"), "cut at ' #'"),
        (page(more="description: again\n"), "'description' appears twice"),
        (page(description="x" * 2000), "longer than 1024"),
        (page(description="a: b: c"), "without the quotes"),
        (page(description="a\u0007b"), "control characters"),
    ],
)
def test_surprises_are_told(text, says, tmp_path):
    assert says in " ".join(demo(tmp_path, text).warnings)


@pytest.mark.parametrize("vendor", ["openclaw", "clawdbot", "clawdis"])
def test_what_older_formats_require_is_checked(vendor, tmp_path):
    more = f'metadata: {{"{vendor}":{{"requires":{{"bins":["no-such-bin"],"env":["NO_KEY"]}}}}}}\n'
    skill = demo(tmp_path, page(more=more), environ={"PATH": os.defpath})
    assert skill.state == "ineligible"
    assert "no-such-bin" in skill.reason
    assert "NO_KEY" in skill.reason


def test_files_are_listed_and_read_but_none_outside(tmp_path):
    skill = demo(tmp_path, page())
    write(tmp_path, {"secret.txt": "secret"})
    write(
        skill.location,
        {
            "references/a.md": "text",
            "scripts/run.py": "x",
            ".hidden": "x",
            "node_modules/x.js": "x",
        },
    )
    (skill.location / "out.txt").symlink_to(tmp_path / "secret.txt")
    (skill.location / "loop.txt").symlink_to("loop.txt")
    os.mkfifo(skill.location / "pipe.txt")
    assert skill_files(skill) == ("out.txt", "references/a.md", "scripts/run.py")
    assert read_skill_file(skill, "references/a.md") == "text"
    for name in (
        "../../secret.txt",
        "/etc/passwd",
        "out.txt",
        "~/x",
        "",
        "references/../../x",
        "gone.md",
        "references",
        "loop.txt",
        "pipe.txt",
    ):
        with pytest.raises(SkillError):
            read_skill_file(skill, name)


def test_a_page_beside_a_manifest_is_that_skills_instructions(tmp_path):
    write(
        tmp_path / "s",
        {
            "demo/skill.toml": 'manifest = 1\nname = "demo"\ndescription = "d"\n',
            "demo/SKILL.md": "Plain text.\n",
        },
    )
    skill = only(tmp_path / "s")
    assert (skill.form, skill.state) == ("native", "ready")
    assert skill_body(skill) == "Plain text.\n"


def test_a_second_page_in_a_folder_is_named(tmp_path):
    write(tmp_path / "s", {"demo/SKILL.md": page(), "demo/skill.md": page("other")})
    skill = only(tmp_path / "s")
    assert (skill.name, skill.path.name) == ("demo", "SKILL.md")
    assert skill.warnings == ("skill.md is not read: SKILL.md counts",)


FOREIGN = '{"name": "Demo", "version": "1", "description": "d", "keywords": ["x"]}'


@pytest.mark.parametrize("file", ["skill.json", "SKILL.json"])
@pytest.mark.parametrize("beside", ["SKILL.md", "skill.md"])
@pytest.mark.parametrize("module", ["scripts/run.py", "main.py"])
def test_another_programs_json_beside_a_page_does_not_hide_it(file, beside, module, tmp_path):
    write(
        tmp_path / "s", {f"demo/{beside}": page(), f"demo/{file}": FOREIGN, f"demo/{module}": "x"}
    )
    skill = only(tmp_path / "s")
    assert (skill.form, skill.state, skill.path.name) == ("agent-skill", "ready", beside)
    assert f"{file} describes no tool" in skill.warnings[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ('{"name": "demo", "description": "d", "parameters": 1}', "parameters"),
        ('{"name": "demo", "description": "d"}', "demo"),
    ],
)
def test_a_descriptor_of_a_tool_beside_a_page_is_still_held_to_its_rules(text, says, tmp_path):
    write(
        tmp_path / "s",
        {"demo/SKILL.md": page(), "demo/skill.json": text, "demo/skill.py": "def other(a): ...\n"},
    )
    skill = only(tmp_path / "s")
    assert skill.form == "json"
    assert says in (skill.reason or skill.tools[0].skill)


def test_a_page_of_300_kilobytes_loads_and_one_of_a_megabyte_says_it_is_too_large(tmp_path):
    skill = demo(tmp_path, page(body="x" * 300_000))
    assert (skill.state, len(skill_body(skill))) == ("ready", 300_000)
    assert "at most 1,000,000" in demo(tmp_path, page(body="x" * 1_000_001)).reason


@pytest.mark.parametrize("file", ["skill.md", "Skill.md"])
def test_other_spellings_of_the_page_are_accepted(file, tmp_path):
    assert demo(tmp_path, page(), file=file).state == "ready"


def test_an_edited_page_is_a_new_version(tmp_path):
    write(tmp_path / "s", {"demo/SKILL.md": page()})
    found = registry(tmp_path / "s")
    write(tmp_path / "s", {"demo/SKILL.md": page(description="Better.")})
    change = found.refresh()
    assert change is not None
    assert change.updated == ("demo",)
    assert found.snapshot.skills[0].description == "Better."

"""Manifests: what is read, and that every fault names file, key and fix."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from skill_kit import one_tool, only, registry, write

from runner.catalog import fields, manifest
from runner.errors import SkillError

TOOL = {"name": "find_it", "description": "Finds it.", "entry": "skill:find_it"}
GOOD: dict[str, Any] = {
    "manifest": 1,
    "name": "find-it",
    "version": "1",
    "description": "Finds things.",
    "tools": [TOOL],
}
DESCRIPTOR: dict[str, Any] = {
    "name": "findIt",
    "description": "Finds it.",
    "parameters": {"type": "object"},
}


def changed(document: dict[str, Any], **keys: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    for key, value in keys.items():
        path = key.split("__")
        place: Any = found
        for step in path[:-1]:
            place = place[int(step)] if step.isdigit() else place[step]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    return found


CASES = [
    ({"name": None}, "'name' is missing"),
    ({"description": None}, "'description' is missing"),
    ({"manifest": None}, "'manifest' is missing"),
    ({"manifest": 2}, "'manifest' must be the number 1"),
    ({"manifest": True}, "'manifest' must be"),
    ({"name": "my_skill"}, "single hyphens"),
    ({"name": "My-Skill"}, "lower-case"),
    ({"name": "中文技能"}, "lower-case"),
    ({"name": "a--b"}, "single hyphens"),
    ({"name": "x" * 65}, "at most 64"),
    ({"name": ""}, "'name' must be"),
    ({"name": 5}, "'name' must be"),
    ({"version": 1.0}, "'version' must be text"),
    ({"description": "  "}, "'description' must be text"),
    ({"timeuot": 3}, "unknown field 'timeuot'; did you mean 'timeout'?"),
    ({"zzz": 3}, "unknown field 'zzz'; known are"),
    ({"tools": {"name": "x"}}, "'tools' must be a list of tables"),
    ({"tools__0__name": "a b"}, "'tools[0].name' must be ASCII"),
    ({"tools__0__name": "x" * 65}, "'tools[0].name'"),
    ({"tools__0__description": None}, "'tools[0].description' is missing"),
    ({"tools__0__entry": "skill.py"}, "'tools[0].entry' must be text such as"),
    ({"tools__0__read_onyl": True}, "did you mean 'read_only'"),
    ({"tools__0__read_only": "yes"}, "must be true or false"),
    ({"tools__0__timeout": 0}, "'tools[0].timeout' must be seconds"),
    ({"tools__0__timeout": -1}, "'tools[0].timeout'"),
    ({"tools__0__timeout": "soon"}, "'tools[0].timeout'"),
    ({"tools__0__timeout": True}, "'tools[0].timeout'"),
    ({"tools__0__retries": 11}, "from 0 to 10"),
    ({"tools__0__retries": 1.5}, "whole number"),
    ({"tools__0__max_concurrency": 0}, "from 1 to 1000"),
    ({"tools__0__isolation": "vm"}, "auto, thread, process or strict"),
    ({"tools__0__permissions": "fs.read"}, "'tools[0].permissions' must be a list"),
    ({"tools__0__permissions": ["fs.raed"]}, "'tools[0].permissions[0]'"),
    ({"tools__0__parameters": "schema.yaml"}, "name of a JSON file"),
    ({"tools__0__parameters": "/etc/schema.json"}, "name of a JSON file"),
    ({"tools__0__parameters": 3}, "JSON Schema as a table"),
    ({"tools__0__examples": [1]}, "'tools[0].examples[0]'"),
    ({"tools__0__max_result_chars": 10}, "at least 100"),
    ({"tools__0__hooks": ["Pre"]}, "name of a hook"),
    ({"requires": {"pakages": []}}, "did you mean 'packages'"),
    ({"requires": {"os": ["beos"]}}, "linux, darwin or windows"),
    ({"requires": {"python": "new"}}, "'requires.python'"),
]
FINE = [
    {},
    {"version": None},
    {"tools__0__timeout": "1.5m"},
    {"tools__0__timeout": 0.25},
    {"tools__0__permissions": ["fs.read", "net:api.example.com", "env:API_KEY", "exec"]},
    {"tools__0__parameters": "schemas/find.json"},
    {
        "requires": {
            "python": ">=3.11",
            "packages": ["x>=1"],
            "bins": ["git"],
            "env": ["K"],
            "os": ["linux"],
        }
    },
    {"license": "MIT", "tags": ["a"], "hooks": ["pre_tool_use"]},
]


def test_a_long_row_of_digits_in_a_text_is_no_number():
    digits = "a1" * 400
    text = f'manifest = 1\nname = "a"\ndescription = "{digits}"\n'
    assert manifest.read_toml("skill.toml", text.encode()).description == digits


@pytest.mark.parametrize(
    ("change", "says"), CASES, ids=[json.dumps(c, ensure_ascii=True)[:50] for c, _ in CASES]
)
def test_every_fault_names_its_key_and_what_is_right(change, says):
    document = changed(GOOD, **change)
    assert any(says in problem for problem in fields.problems(document, "")), fields.problems(
        document, ""
    )
    assert not jsonschema.Draft202012Validator(fields.schema()).is_valid(document)


@pytest.mark.parametrize("change", FINE, ids=str)
def test_the_fast_check_and_the_shipped_schema_agree_on_what_is_fine(change):
    document = changed(GOOD, **change)
    assert fields.problems(document, "") == []
    jsonschema.Draft202012Validator(fields.schema()).validate(document)


def test_the_shipped_schema_is_sound_and_uses_only_what_the_fast_check_knows():
    schema = fields.schema()
    jsonschema.Draft202012Validator.check_schema(schema)

    def keywords(node: Any) -> set[str]:
        found = set(node)
        for child in [
            *node.get("properties", {}).values(),
            *node.get("$defs", {}).values(),
            node.get("items"),
        ]:
            found |= keywords(child) if isinstance(child, dict) else set()
        return found

    assert keywords(schema) <= fields.KEYWORDS


def test_all_flags_of_a_tool_can_be_set_at_the_top_and_in_a_table():
    flags = set(manifest._FLAGS)
    schema = fields.schema()
    assert flags <= schema["properties"].keys()
    assert flags <= schema["$defs"]["tool"]["properties"].keys()
    assert flags <= schema["$defs"]["descriptor"]["properties"].keys()


def test_a_manifest_is_read_with_its_flags_in_seconds():
    text = b"""manifest = 1
name = "a"
description = " d "
[[tools]]
name = "t"
description = " what "
entry = "skill:t"
read_only = true
timeout = "1500ms"
permissions = ["fs.read"]
examples = [{ q = 1 }]
hooks = ["pre_tool_use"]
"""
    said = manifest.read_toml("skill.toml", text)
    tool = said.tools[0]
    assert (said.name, said.description, said.hooks) == ("a", "d", ("pre_tool_use",))
    assert tool.flags.read_only
    assert tool.flags.idempotent
    assert (tool.flags.timeout, tool.flags.permissions, tool.description) == (
        1.5,
        ("fs.read",),
        "what",
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"name = [", "skill.toml:1: is not valid TOML"),
        (b'manifest = 1\nname = "x\n', "skill.toml:2: is not valid TOML"),
        ("name = 'x'".encode("utf-16"), "is not UTF-8 (it looks like UTF-16)"),
        ("# café".encode("latin-1"), "is not UTF-8 (byte 6 is wrong)"),
        (b"\xef\xbb\xbfname = '\xff'", "is not UTF-8 (byte 12 is wrong)"),
        (b"name = 'a\0b'", "NUL"),
        (b'x = "C:\\Users"', "single quotes"),
        (b"a = 1\na = 2\n", "skill.toml"),
        (b"x = " + b"[" * 5000, "skill.toml"),
        (b"a = 1\nx = " + b"9" * 5000, "skill.toml:2: holds a number of 5,000 digits"),
        (b"a = 1\nx = " + b"9" * 400, "skill.toml:2: holds a number of 400 digits"),
        (b"a = 1\nx = [{ y = 0x" + b"f" * 5000 + b" }]", "skill.toml:2: holds a number of 5,000"),
    ],
    ids=(
        "cut string utf-16 latin-1 bom nul windows-path twice deep decimal no-float hexadecimal"
    ).split(),
)
def test_a_file_that_is_no_toml_is_refused_with_its_line(data, says):
    with pytest.raises(SkillError) as caught:
        manifest.read_toml("skill.toml", data)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"name": }', "skill.json:1: is not valid JSON"),
        (b'{"name": "a", "name": "b"}', "'name' appears twice"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"[]", "the whole must be an object"),
        (b'{"name": "a", "description": "d", "paramters": {}}', "did you mean 'parameters'"),
        (b'{"name": "a",\n"timeout": ' + b"9" * 400 + b"}", "skill.json:2: holds a number of 400"),
        (b'{"name": "a",\n"timeout": ' + b"9" * 5000 + b"}", "skill.json:2: holds a number of"),
    ],
    ids=["cut", "twice", "deep", "list", "typo", "no float", "number"],
)
def test_a_file_that_is_no_descriptor_is_refused(data, says):
    with pytest.raises(SkillError) as caught:
        manifest.read_json("skill.json", data)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tools": [TOOL, TOOL]}, "two tools are named 'find_it'"),
        ({"tools__0__name": "recall"}, "built-in tool"),
        (
            {"tools__0__read_only": True, "tools__0__destructive": True},
            "both read_only and destructive",
        ),
        ({"read_only": True}, "stands outside [[tools]]"),
        ({"tools__0__timeout": "0s"}, "above 0"),
    ],
    ids=["twice", "reserved", "contradiction", "outside", "zero"],
)
def test_what_no_schema_can_say_is_refused_too(change, says):
    import tomli_w

    with pytest.raises(SkillError) as caught:
        manifest.read_toml("skill.toml", tomli_w.dumps(changed(GOOD, **change)).encode())
    assert says in str(caught.value)


def test_a_manifest_saved_on_windows_is_the_same(tmp_path):
    plain = one_tool(
        "echo",
        "def echo(text):\n    return text\n",
        "required = ['text']\nproperties.text = { type = 'string' }",
    )
    write(tmp_path / "a", plain)
    write(
        tmp_path / "b",
        {
            name: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
            for name, text in plain.items()
        },
    )
    one, two = only(tmp_path / "a"), only(tmp_path / "b")
    assert two.state == "ready"
    assert (one.name, one.description, one.to_dict()["tools"]) == (
        two.name,
        two.description,
        two.to_dict()["tools"],
    )
    assert two.tools[0].load().function(text="x") == "x"


def test_the_article_s_descriptor_and_its_only_function_are_a_skill(tmp_path):
    parameters = {
        "type": "object",
        "properties": {"filePath": {"type": "string"}},
        "required": ["filePath"],
    }
    write(
        tmp_path / "s",
        {
            "extract/skill.json": json.dumps(
                {**DESCRIPTOR, "name": "extract_items", "parameters": parameters}
            ),
            "extract/skill.py": "def extract_items(filePath):\n    return filePath\n",
        },
    )
    skill = only(tmp_path / "s")
    assert (skill.form, skill.state, skill.name) == ("json", "ready", "extract_items")
    assert skill.tools[0].load().function(filePath="x") == "x"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("findIt", "def find_it():\n    return 1\n"),
        ("find-it", "def find_it():\n    return 1\n"),
        ("anything", "def _private():\n    pass\ndef the_only_one():\n    return 1\n"),
        ("other", "def helper():\n    pass\ndef run():\n    return 1\n"),
    ],
)
def test_a_descriptor_without_entry_finds_its_function(name, code, tmp_path):
    write(
        tmp_path / "s",
        {"x/skill.json": json.dumps({**DESCRIPTOR, "name": name}), "x/main.py": code},
    )
    assert only(tmp_path / "s").tools[0].load().function() == 1


def test_the_shorthand_at_the_top_is_one_tool(tmp_path):
    text = 'manifest = 1\nname = "count"\ndescription = "Counts."\nentry = "skill:go"\nread_only = true\n[parameters]\ntype = "object"\n'
    write(tmp_path / "s", {"count/skill.toml": text, "count/skill.py": "def go():\n    return 3\n"})
    skill = only(tmp_path / "s")
    assert [(t.name, t.flags.read_only, t.load().function()) for t in skill.tools] == [
        ("count", True, 3)
    ]


def test_parameters_may_lie_in_a_json_file_and_are_part_of_the_version(tmp_path):
    files = one_tool("seek", "def seek(q=None):\n    return q\n")
    head = files["seek/skill.toml"].split("[tools.parameters]")[0]
    schema = {"type": "object", "properties": {"q": {"type": ["string", "null"], "default": None}}}
    write(
        tmp_path / "s",
        {
            **files,
            "seek/skill.toml": head + 'parameters = "schemas/seek.json"\n',
            "seek/schemas/seek.json": json.dumps(schema),
        },
    )
    found = registry(tmp_path / "s")
    assert found.snapshot.tools["seek"].parameters == schema
    schema["properties"]["q"]["maxLength"] = 5
    write(tmp_path / "s", {"seek/schemas/seek.json": json.dumps(schema)})
    change = found.refresh()
    assert change is not None
    assert found.snapshot.tools["seek"].parameters == schema


def test_a_parameters_file_that_is_missing_or_leaves_the_folder_is_refused(tmp_path):
    for name, file in (("gone", "gone.json"), ("out", "../../secret.json")):
        files = one_tool(name)
        head = files[f"{name}/skill.toml"].split("[tools.parameters]")[0]
        write(tmp_path / "s", {**files, f"{name}/skill.toml": f"{head}parameters = {file!r}\n"})
    write(tmp_path, {"secret.json": '{"type": "object", "const": "secret"}'})
    states = {
        s.location.name: (s.state, s.reason) for s in registry(tmp_path / "s").snapshot.skills
    }
    assert states["gone"][0] == states["out"][0] == "failed"
    assert "gone.json" in states["gone"][1]
    assert "secret'" not in states["out"][1]


def test_a_skill_without_tools_says_so_unless_it_has_hooks_or_instructions(tmp_path):
    head = 'manifest = 1\nname = "{}"\ndescription = "d"\n'
    write(
        tmp_path / "s",
        {
            "a/skill.toml": head.format("a"),
            "b/skill.toml": head.format("b") + "hooks = ['pre_tool_use']\n",
            "b/skill.py": "",
            "c/skill.toml": head.format("c"),
            "c/SKILL.md": "Do it.",
        },
    )
    states = {s.name: s.state for s in registry(tmp_path / "s").snapshot.skills}
    assert states == {"a": "failed", "b": "ready", "c": "ready"}

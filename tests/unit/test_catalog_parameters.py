"""Parameter schemas and patterns: what is refused before any call, without a fetch and in no time."""

from __future__ import annotations

import socket
import time

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skill_kit import one_tool, registry, write

from runner.catalog import parameters, regexes

WRONG = [
    ({"type": "obect"}, "did you mean 'object'"),
    ({"properties": {}}, 'write type = "object"'),
    ({"type": "string"}, "'type' must be \"object\""),
    ({"type": ["object", "null"]}, "'type' must be"),
    ({"$ref": "http://127.0.0.1:9/x"}, "nothing is fetched"),
]
INSIDE = [
    ({"type": "strng"}, "did you mean 'string'"),
    ({"type": ["string", "nul"]}, "did you mean 'null'"),
    ({"type": []}, "unknown type"),
    ({"type": 3}, "unknown type 3"),
    ({"pattern": "("}, "not a regular expression"),
    ({"pattern": 5}, "'pattern' must be text"),
    ({"pattern": "^(a+)+$"}, "take for ever"),
    ({"pattern": "x" * 2000}, "longer than"),
    ({"$ref": "http://example.invalid/s.json"}, "not allowed"),
    ({"$ref": "file:///etc/passwd"}, "not allowed"),
    ({"$ref": "other.json"}, "not allowed"),
    ({"$ref": "#"}, "contain itself"),
    ({"$ref": "#/$defs/gone"}, "no such part"),
    ({"$ref": 5}, "'$ref' must be text"),
    ({"$dynamicRef": "#x"}, "not supported"),
    ({"type": "string", "$id": "http://x/y"}, "only at the root"),
    ({"minLength": -1}, "at least 0"),
    ({"minLength": True}, "whole number"),
    ({"maximum": "3"}, "needs a number"),
    ({"multipleOf": 0}, "above 0"),
    ({"enum": []}, "at least one value"),
    ({"enum": "a"}, "'enum' must be a list"),
    ({"required": True}, "must be a list of names"),
    ({"required": ["a", "a"]}, "names 'a' twice"),
    ({"anyOf": []}, "at least one"),
    ({"anyOf": {"type": "string"}}, "list of schemas"),
    ({"properties": []}, "map names to schemas"),
    ({"properties": {"x": "string"}}, "'x' must be a schema"),
    ({"patternProperties": {"(": {}}}, "not a regular expression"),
    ({"items": [{}]}, "must be a schema"),
    ({"additionalProperties": "no"}, "must be a schema"),
    ({"description": 5}, "needs text"),
    ({"type": "array", "uniqueItems": True, "items": {"type": "object"}}, "'uniqueItems' needs"),
    ({"uniqueItems": True}, "'uniqueItems' needs"),
    ({"uniqueItems": "yes"}, "must be true or false"),
]
SOUND = [
    {},
    {"type": "object"},
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}},
    },
    {
        "type": "object",
        "properties": {"a": {"type": "array", "uniqueItems": True, "items": {"type": "string"}}},
    },
    {
        "type": "object",
        "properties": {"a": {"type": "array", "uniqueItems": True, "items": {}, "maxItems": 10}},
    },
    {"type": "object", "properties": {"a": True, "b": {"enum": [None, 1, "x"]}, "c": {"const": 1}}},
    {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:x"},
    {
        "type": "object",
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "not": {"required": ["a", "b"]},
    },
    {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"], "format": "date", "x-own": 3}},
    },
]


@pytest.mark.parametrize(("schema", "says"), WRONG, ids=str)
def test_a_schema_that_is_no_object_is_refused(schema, says):
    assert any(says in problem for problem in parameters.problems(schema))


@pytest.mark.parametrize(("part", "says"), INSIDE, ids=str)
def test_a_fault_deep_inside_is_named_with_its_path(part, says):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"deep": part}}},
    }
    found = parameters.problems(schema)
    assert any(says in problem for problem in found), found
    assert all(problem.startswith("/properties/a/properties/deep") for problem in found)


@pytest.mark.parametrize("schema", SOUND, ids=str)
def test_a_sound_schema_passes_here_and_by_the_metaschema(schema):
    assert parameters.problems(schema) == []
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("value", [None, 5, [], "x"])
def test_what_is_no_table_is_refused(value):
    assert parameters.problems(value)


def test_a_schema_that_refers_to_itself_in_a_circle_is_refused():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
    }
    assert "refers to itself" in parameters.problems(schema)[0]


def test_a_huge_or_deep_schema_is_refused_at_once():
    deep: dict = {"type": "object"}
    for _ in range(5_000):
        deep = {"type": "object", "properties": {"a": deep}}
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5_000)}}
    began = time.monotonic()
    assert any("too large" in p for p in parameters.problems(deep))
    assert any("too large" in p for p in parameters.problems(wide))
    assert time.monotonic() - began < 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(sorted(parameters.KNOWN)) | st.text(max_size=4), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(json_values)
def test_no_schema_whatever_it_holds_breaks_the_check(schema):
    found = parameters.problems(schema)
    assert all(isinstance(problem, str) for problem in found)
    if not found:
        jsonschema.Draft202012Validator.check_schema(parameters.normal(schema))


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "(a*)*b",
        "(a|a)*$",
        r"(\w|\dx?)*y",
        "(a|ab|b)*$",
        "(.*)*",
        r"(\s*a?)*$",
        "((a+)b?)+$",
        "(x+x+)+y",
        "([a-z]+)*!",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        "(a{1,50}){1,50}$",
        "(?:a+|b+)*c",
        "(?=(a+)+$)a",
        "(a?){30}a",
    ],
)
def test_patterns_that_can_take_for_ever_are_refused(pattern):
    assert "for ever" in regexes.fault(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z0-9]+(-[a-z0-9]+)*$",
        r"^\d{4}-\d{2}-\d{2}$",
        "^(foo|bar)+$",
        r"^(\d+,)*\d+$",
        "^#[0-9a-f]{6}$",
        ".*",
        r"^\S+@\S+\.\S+$",
        "^(a|b)*$",
        "(ab?)+c",
        r"^(?:/[^/]+)+$",
        "^(?:[A-Z]{2}){1,3}$",
        r"^v?\d+(\.\d+){0,2}$",
        "",
        "^https?://",
        "(a++)+$",
        r"^([01]\d|2[0-3]):[0-5]\d$",
    ],
)
def test_ordinary_patterns_are_fine(pattern):
    assert regexes.fault(pattern) == ""


def test_bad_schemas_are_load_errors_that_hurt_nobody_and_fetch_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        remote = (
            f'properties.a = {{ "$ref" = "http://127.0.0.1:{listener.getsockname()[1]}/s.json" }}'
        )
        body = "def {0}(a=''):\n    return a\n"
        write(
            tmp_path / "s",
            one_tool("bad1", body.format("bad1"), 'properties.a = { type = "obect" }'),
        )
        write(
            tmp_path / "s",
            one_tool(
                "bad2", body.format("bad2"), 'properties.a = { type = "string", pattern = "(" }'
            ),
        )
        write(tmp_path / "s", one_tool("bad3", body.format("bad3"), remote))
        write(tmp_path / "s", one_tool("good"))
        bare = one_tool("bare")
        bare["bare/skill.toml"] = bare["bare/skill.toml"].split("[tools.parameters]")[0]
        write(tmp_path / "s", bare)
        snapshot = registry(tmp_path / "s").snapshot
        listener.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listener.accept()
    states = {s.name: s for s in snapshot.skills}
    assert [states[f"bad{n}"].state for n in (1, 2, 3)] == ["failed"] * 3
    assert all("skill.toml: tool 'bad" in states[f"bad{n}"].reason for n in (1, 2, 3))
    assert set(snapshot.tools) == {"good", "bare"}
    assert snapshot.tools["bare"].parameters["type"] == "object"

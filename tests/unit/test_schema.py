"""Arguments against schemas: what fits, what is said, what is changed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.calls import accept
from runner.calls.schema import Checker, checker, describe

TYPED = {
    "type": "object",
    "required": ["n", "b", "x"],
    "additionalProperties": False,
    "properties": {
        "n": {"type": "integer"},
        "b": {"type": "boolean"},
        "x": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "opts": {"type": "object"},
    },
}
FIND = {
    "type": "object",
    "required": ["query"],
    "additionalProperties": False,
    "properties": {"query": {"type": "string"}},
}


def of(**properties):
    return {"type": "object", "properties": properties}


# ---- coercion


@pytest.mark.parametrize(
    ("schema", "given_", "wanted"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, "-5", -5),
        ({"type": "integer"}, 5.0, 5),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "2", 2),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "array"}, '["a","b"]', ["a", "b"]),
        ({"type": "object"}, '{"k":1}', {"k": 1}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        ({"enum": [1, 2]}, "2", 2),
    ],
    ids=str,
)
def test_a_lossless_change_is_made_and_its_path_given(schema, given_, wanted):
    value, changed = Checker(of(v=schema)).coerced({"v": given_})
    assert value == {"v": wanted}
    assert type(value["v"]) is type(wanted)
    assert changed == ("v",)


@pytest.mark.parametrize(
    ("schema", "given_"),
    [
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, " 5"),
        ({"type": "integer"}, "05"),
        ({"type": "integer"}, "1_000"),
        ({"type": "integer"}, "٥"),
        ({"type": "integer"}, "null"),
        ({"type": ["integer", "null"]}, "null"),
        ({"type": "integer"}, True),
        ({"type": "integer"}, 5.5),
        ({"type": "number"}, "abc"),
        ({"type": "number"}, "NaN"),
        ({"type": "number"}, "1e999"),
        ({"type": "number"}, "12345678901234567890.123"),
        ({"type": "boolean"}, "yes"),
        ({"type": "boolean"}, 1),
        ({"type": "array"}, "a,b"),
        ({"type": "array"}, '["a"'),
        ({"type": "array"}, '{"a":1}'),
        ({"type": "object"}, '{"a":1,"a":2}'),
        ({"type": "object"}, '{"a":NaN}'),
        ({"type": ["integer", "string"]}, "5"),
        ({}, "5"),
        ({"type": "string"}, 5),
    ],
    ids=str,
)
def test_what_would_lose_or_guess_is_left_alone(schema, given_):
    arguments = {"v": given_}
    value, changed = Checker(of(v=schema)).coerced(arguments)
    assert value is arguments
    assert changed == ()


def test_paths_reach_into_objects_and_arrays():
    schema = of(
        page={"type": "integer"},
        filter=of(size={"type": "integer"}),
        tags={"type": "array", "items": {"type": "integer"}},
    )
    given_ = {"page": "1", "filter": {"size": "2"}, "tags": ["3", 4]}
    value, changed = Checker(schema).coerced(given_)
    assert value == {"page": 1, "filter": {"size": 2}, "tags": [3, 4]}
    assert changed == ("page", "filter.size", "tags[0]")
    assert given_ == {"page": "1", "filter": {"size": "2"}, "tags": ["3", 4]}


def test_a_reference_inside_the_schema_is_followed():
    schema = {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "$defs": {"node": of(n={"type": "integer"}, next={"$ref": "#/$defs/node"})},
    }
    value, changed = Checker(schema).coerced({"node": {"next": {"n": "5"}}})
    assert value == {"node": {"next": {"n": 5}}}
    assert changed == ("node.next.n",)


# ---- problems


def test_every_wrong_field_is_named_with_what_was_expected_and_given():
    problems = checker(TYPED).problems({"n": "5.5", "b": "yes", "x": "abc"})
    assert problems == [
        'n: expected integer, got "5.5" (string)',
        'b: expected boolean, got "yes" (string)',
        'x: expected number, got "abc" (string)',
    ]


def test_unknown_and_missing_fields_are_named_together():
    (only,) = checker(FIND).problems({"keyword": "x"})
    assert "unknown field" in only
    assert "keyword" in only
    assert "missing required field query (string)" in only


def test_a_mistyped_field_is_told_its_neighbour():
    (only,) = checker(FIND).problems({"query": "x", "qeury": "y"})
    assert "did you mean query?" in only


def test_a_bound_is_named():
    (only,) = checker(of(count={"type": "integer", "minimum": 17})).problems({"count": -3})
    assert only == "count: expected a number >= 17, got -3 (integer)"


def test_at_most_five_problems_are_told():
    schema = of(**{f"f{i}": {"type": "integer"} for i in range(9)})
    assert len(checker(schema).problems({f"f{i}": "x" for i in range(9)})) == 5


@pytest.mark.parametrize("given_", [None, [], "x", 5])
def test_arguments_that_are_no_object_are_one_problem(given_):
    assert len(checker(FIND).problems(given_)) == 1


def test_a_huge_value_makes_a_short_message():
    (only,) = checker(of(n={"type": "integer"})).problems({"n": "x" * 200_000})
    assert len(only) < 200


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/s.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/hostname"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
        {"type": "object", "properties": {"a": {"type": "obect"}}},
        {"type": "object", "properties": {"a": {"minimum": "x"}}},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"multipleOf": 0}}},
    ],
    ids=str,
)
def test_a_broken_schema_is_a_sentence_and_never_an_exception(schema):
    made = Checker(schema)
    for value in ("x", 5, {"a": {"a": "x"}}):
        for problem in made.problems(made.coerced({"a": value})[0]):
            assert isinstance(problem, str)
            assert "localhost" not in problem
    made.with_defaults({"a": 1})
    assert len(describe("t", schema, made.problems({"a": 5}) or ["x"])) < 600


def test_a_deep_value_is_a_sentence():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/l"}}}
    schema["$defs"] = {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}}
    made = Checker(schema)
    (only,) = made.problems(made.coerced({"a": deep})[0])
    assert "deep" in only


def test_repeated_items_are_found_in_linear_time():
    schema = of(a={"type": "array", "uniqueItems": True, "items": {"type": "object"}})
    items = [{"i": i} for i in range(5_000)]
    assert checker(schema).problems({"a": items}) == []
    (only,) = checker(schema).problems({"a": [*items, {"i": 7}]})
    assert "without repeated items" in only


def test_defaults_are_filled_in_for_comparison():
    schema = of(page={"type": "integer", "default": 1}, f=of(size={"default": 2}))
    assert checker(schema).with_defaults({"f": {}}) == {"f": {"size": 2}, "page": 1}


# ---- the message


def test_the_message_names_the_fields_and_gives_a_valid_example():
    made = checker(TYPED)
    text = describe("typed", TYPED, made.problems({"n": "five"}))
    assert "n (integer, required)" in text
    assert "tags (array of string)" in text
    example = json.loads(text.split("Example: ")[1].splitlines()[0])
    assert made.fits(example)
    assert len(text) < 600


def test_the_tools_own_example_is_preferred():
    text = describe("find", FIND, ["x"], [{"wrong": 1}, {"query": "API_KEY"}])
    assert 'Example: {"query": "API_KEY"}' in text


def test_the_message_is_short_whatever_the_schema():
    schema = of(**{f"field_{i}" * 9: {"enum": ["v" * 90] * 50} for i in range(200)})
    schema["required"] = list(schema["properties"])
    assert len(describe("t" * 64, schema, checker(schema).problems({"a": "b" * 999}))) < 600


# ---- speed and agreement


def test_equal_schemas_share_a_checker_in_every_thread():
    found = []

    def look():
        found.extend(id(checker(json.loads(json.dumps(TYPED)))) for _ in range(50))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_a_valid_call_never_imports_jsonschema():
    code = (
        "import json, sys; from runner.calls.schema import checker\n"
        f"made = checker(json.loads({json.dumps(json.dumps(TYPED))}))\n"
        "value, _ = made.coerced({'n': '5', 'b': True, 'x': 1, 'tags': ['a']})\n"
        "assert made.problems(value) == []\n"
        "assert 'jsonschema' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 1.0, -2.0, 1e300])
VALUES = st.recursive(
    SCALARS | st.text("ab", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=8,
)
TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]
LEAVES = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"type": st.sampled_from(TYPES)}),
    st.fixed_dictionaries({"type": st.lists(st.sampled_from(TYPES), min_size=1, unique=True)}),
    st.fixed_dictionaries({"enum": st.lists(SCALARS | st.text("ab", max_size=2), min_size=1)}),
    st.fixed_dictionaries({"const": SCALARS}),
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES),
            "minimum": st.integers(-3, 3),
            "exclusiveMaximum": st.sampled_from([0.5, 3]),
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 3),
            "pattern": st.sampled_from(["a", "^b", "b$"]),
            "minItems": st.integers(0, 2),
            "maxProperties": st.integers(0, 2),
            "format": st.just("date"),
        },
    ),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries(
            {},
            optional={
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
                "required": st.lists(st.sampled_from("abc"), max_size=2),
                "additionalProperties": inner,
            },
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, VALUES)
def test_the_quick_check_and_jsonschema_agree(schema, value):
    quick = accept.compiled(schema)
    assert quick is not None
    assert quick(value) == jsonschema.Draft202012Validator(schema).is_valid(value)


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, VALUES)
def test_no_schema_and_no_value_raises(schema, value):
    made = Checker({"type": "object", "properties": {"a": schema}})
    arguments, changed = made.coerced({"a": value})
    assert (arguments == {"a": value}) or changed
    problems = made.problems(arguments)
    assert all(len(problem) < 500 for problem in problems)
    assert made.fits({"a": value}) == (not problems)
    assert len(describe("t", {"type": "object", "properties": {"a": schema}}, problems)) < 600

"""A wrong config: one line for each problem, with file, key and fix, and all of them at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.config import Config, config_from, load_config, shown
from runner.errors import ConfigError
from runner.settings import MANIFEST


def load(folder: Path, text: str | bytes = "", name: str = "config/runner.toml", **more) -> Config:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    given = {"file": Path(name), "environ": {"HOME": "/home/me"}, "cwd": folder} | more
    return load_config(**given)


def problems(folder: Path, text: str | bytes = "", name: str = "config/runner.toml", **more):
    with pytest.raises(ConfigError) as caught:
        load(folder, text, name, **more)
    assert all(len(p.splitlines()) == 1 and p.isprintable() for p in caught.value.problems)
    return caught.value.problems


def problem(folder: Path, text: str | bytes = "", name: str = "config/runner.toml", **more) -> str:
    (one,) = problems(folder, text, name, **more)
    return one


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"llm": {"provider": "ollama"}}', "llm.model: is missing"),
        ('{"llm": {"model": 3}}', "llm.model: provider and model must be text"),
        ('{"runner": {"maxIteration": 3}}', "did you mean maxIterations?"),
        ('{"runner": {"toolTimeout": true}}', "runner.toolTimeout: must be seconds"),
        ('{"runner": {"toolTimeout": -1}}', "runner.toolTimeout: must be at least"),
        ('{"limits": {"slots": 1, "slots": 2}}', "given twice"),
        ('{"limits": {"max_cost": NaN}}', "finite"),
        ('{"limits": {"slots": null}}', "not null"),
        ('{"limits": \n', "line 2: not valid JSON"),
        ("[1]", "must be a JSON object"),
        ("[" * 100_000, "not valid JSON"),
        ('{"limits": {"slots": ' + "9" * 5000 + "}}", "not valid JSON"),
    ],
)
def test_a_wrong_json_file_is_one_line(tmp_path, text, says):
    said = problem(tmp_path, text, "config/x.json")
    assert said.startswith("config/x.json: ")
    assert says in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[limits]\nmax_iteration = 3",
            "limits.max_iteration: unknown key; did you mean max_iterations?",
        ),
        ("[limits]\nmaxIterations = 3", "did you mean max_iterations?"),
        ("[limits]\ntoolTimeout = 30000", "did you mean tool_timeout? (in seconds)"),
        ("[limts]\nmax_iterations = 3", "limts: unknown table; did you mean limits?"),
        ("[runner]\nmax_iterations = 3", "in TOML its keys are in [limits]"),
        ("max_iterations = 3", "max_iterations is a key of [limits]"),
        ("[model]\nnme = 1", "did you mean name?"),
        ("[model]\nmaxIterations = 1", "max_iterations is a key of [limits]"),
        ("[memory]\nqqqq = 1", "there are enabled"),
        ("[permissions]\nfs_write = 'allow'", "did you mean fs.write?"),
        ("[permissions]\n'fs.wirte:out' = 'allow'", 'such as "fs.write:out"'),
        ("[limits]\nslots = 'two'", "must be a whole number, not the text 'two'"),
        ("[limits]\nslots = true", "not true"),
        ("[limits]\nslots = 3.0", "must be a whole number"),
        ("[limits]\nslots = -1", "limits.slots: must be at least 0, not -1"),
        ("[limits]\nmax_iterations = 0", "must be at least 1"),
        ("[limits]\ntool_timeout = nan", "finite"),
        ("[limits]\ntool_timeout = inf", "finite"),
        ("[limits]\ntool_timeout = '30'", "with a unit"),
        ("[limits]\ntool_timeout = '-3s'", "must be at least"),
        ("[limits]\ntool_timeout = 1e300", "must be at most"),
        ("[limits]\ncoerce = 'on'", "must be one of lossless, off"),
        ("[limits]\ntool_timeout = 0x" + "f" * 5000, "limits.tool_timeout"),
        ("[limits]\nslots = 0x" + "f" * 5000, "thousands of digits"),
        ("[loop]\nsimilarity = 1.5", "must be at most 1"),
        ("[context]\nsummarise = 1", "must be true or false"),
        ("[paths]\nskills = 'skills'", "must be a list"),
        ("[paths]\nskills = [3]", "must be a path in quotes"),
        ("[paths]\nworkspace = ''", "must not be empty"),
        ('[paths]\nworkspace = "C:\\new\\table"', "single quotes"),
        ('[paths]\nworkspace = "a\\u0000b"', "control characters"),
        ("[permissions]\nnet = 'yes'", "must be one of allow, ask, deny"),
        ("[permissions]\n'net:127.0.0.1' = 'yes'", "net:127.0.0.1: must be one of"),
        ("[permissions]\ntools = { echo = 'never' }", "'echo' must be one of"),
        ("[permissions]\ntools = { 'run_command(git *' = 'allow' }", "TOOL(PATTERN)"),
        ("[permissions]\ntools = ['echo']", "must be a table"),
        ("[model]\napi_key = 'sk-1'", "did you mean api_key_env?"),
        ("limits = 3", "limits: must be a table"),
        ("[[limits]]\nslots = 1", "must be a table"),
        ("agents = 3", "agents: must be a table"),
        ("[agents]\nmodel = 'x'", "agents.model: must be a table"),
        ("[agents.'a b']\nmodel = 'x'", "a name has letters"),
        ("[agents.a]\nmodle = 'x'", "agents.a.modle: unknown key; did you mean model?"),
        ("[agents.a]\npermissions = { nte = 'deny' }", "unknown capability 'nte'"),
        ('[limits]\n"a\\nb" = 1', "unknown key"),
    ],
)
def test_a_wrong_value_or_name_is_one_line_with_its_fix(tmp_path, text, says):
    said = problem(tmp_path, text + "\n")
    assert said.startswith("config/runner.toml: ")
    assert says in said
    assert len(said) < 400


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[limits\n", "line 1: not valid TOML"),
        ('[paths]\nworkspace = "C:\\Users\\me"\n', "line 2: not valid TOML"),
        ('[paths]\nworkspace = "C:\\Users\\me"\n', "single quotes"),
        ("[limits]\n\ntool_timeout = 30s\n", 'line 3: not valid TOML: Expected newline or end of document after a statement; a time with a unit goes in quotes ("30s")'),
        ("[model]\nname = ollama\n", "text goes in quotes"),
        ("[limits]\nslots = 1\nslots = 2\n", "line 3"),
        ("[limits]\nslots = [\n", "line 2"),
        ("a = " + "[" * 100_000, "not valid TOML"),
    ],
)  # fmt: skip
def test_a_syntax_error_names_file_and_line(tmp_path, text, says):
    said = problem(tmp_path, text)
    assert said.startswith("config/runner.toml: ")
    assert says in said


def test_all_problems_are_told_at_once(tmp_path):
    said = problems(
        tmp_path,
        "[limits]\nslots = -1\nmax_cost = 'x'\n[modle]\nname = 'x'\n",
        environ={"RUNNER_LOOP__STOP": "soon"},
        options={"limits.max_iterations": 0},
        sets=["loop.wran=1", "nothing"],
    )
    assert [p.split(": ")[0] for p in said] == [
        "config/runner.toml",
        "config/runner.toml",
        "config/runner.toml",
        "RUNNER_LOOP__STOP",
        "--max-iterations",
        "--set loop.wran",
        "--set nothing",
    ]


@pytest.mark.parametrize(
    ("data", "guess"),
    [
        ("# 最大轮数\n[limits]\n".encode("gbk"), "looks like GBK"),
        ("[limits]\n".encode("utf-16"), "looks like UTF-16"),
        ("[limits]\n".encode("utf-16-le"), "looks like UTF-16"),
        ("# café\n".encode("latin-1"), "not UTF-8;"),
    ],
)
def test_another_encoding_is_named(tmp_path, data, guess):
    said = problem(tmp_path, data)
    assert said.startswith("config/runner.toml: ")
    assert "UTF-8" in said
    assert guess in said


def test_a_nul_character_is_told_with_its_line(tmp_path):
    said = problem(tmp_path, b'[model]\nname = "a\0b"\n')
    assert "line 2: not valid TOML: Illegal character '\\x00'" in said


def test_a_file_that_is_not_there_or_no_file_is_one_line(tmp_path):
    for name, says in (("none.toml", "no such file"), (".", "not a file"), ("a\0b", "config")):
        with pytest.raises(ConfigError) as caught:
            load_config(file=Path(name), environ={}, cwd=tmp_path)
        assert says in str(caught.value)
        assert len(caught.value.problems) == 1
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a file"):
        load_config(file=tmp_path / "pipe", environ={}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("RUNNER_LIMITS__MAX_ITERATION", "did you mean max_iterations?"),
        ("RUNNER_LIMTS__SLOTS", "did you mean limits?"),
    ],
)
def test_a_mistyped_variable_is_named(tmp_path, variable, says):
    said = problem(tmp_path, environ={variable: "3"})
    assert said.startswith(variable)
    assert says in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limits.slots", "must be KEY=VALUE"),
        ("=3", "must be KEY=VALUE"),
        ("slots=3", "slots is a key of [limits]"),
        ("limts.slots=3", "did you mean limits?"),
        ("limits.slots=two", "must be a whole number"),
        ("limits.slots=1\nstop = 3", "must be a whole number"),
        ("permissions.tools={ echo", "is not a TOML value"),
        ('model.name="abc', "is not a TOML value"),
        ("agents.planner=3", "must be agents.NAME.KEY"),
    ],
)
def test_a_wrong_set_is_named(tmp_path, text, says):
    said = problem(tmp_path, sets=[text])
    assert said.startswith("--set ")
    assert says in said


def test_a_key_in_the_place_of_its_variable_is_refused_and_not_repeated(tmp_path):
    said = problem(tmp_path, "[model]\napi_key_env = 'sk-secret-1234'\n")
    assert "environment variable" in said
    assert "secret" not in said


KEY = st.sampled_from([key for keys in MANIFEST.values() for key in keys] + ["net:x", "fs"])
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY | st.text(), inner, max_size=3),
    max_leaves=6,
)
TABLE = st.sampled_from([*MANIFEST, "agents", "limts"])


def told(make: Callable[[], Config]) -> tuple[str, ...]:
    """The problems; none when it is a config that can be shown."""
    try:
        shown(make())
    except ConfigError as error:
        return error.problems or ("",)
    return ()


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(TABLE, st.dictionaries(KEY | st.text(max_size=5), VALUE, max_size=4)))
def test_whatever_is_in_the_tables_it_is_a_config_or_lines_that_say_why_not(values):
    said = told(lambda: config_from(values, project=Path("/p")))
    assert all(p.isprintable() and p.startswith("config: ") for p in said)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "replace")))
def test_whatever_bytes_a_file_has_it_is_read_or_refused(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(data)
    said = told(lambda: load_config(file=file, environ={}, cwd=file.parent))
    assert all(p.isprintable() and p.startswith("any.toml: ") for p in said)

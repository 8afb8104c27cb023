"""The config: what is read from where, and which word wins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from runner.config import KEYS, Config, config_from, load_config, shown
from runner.errors import ConfigError
from runner.settings import MANIFEST, keys_in

ROOT = Path(__file__).parents[2]


def load(folder: Path, text: str | bytes = "", name: str = "config/runner.toml", **more) -> Config:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    given = {"file": Path(name), "environ": {"HOME": "/home/me"}, "cwd": folder} | more
    return load_config(**given)


def test_without_a_file_every_value_is_its_default(tmp_path):
    config = load_config(environ={}, cwd=tmp_path)
    assert config.file is None
    assert config.project == tmp_path
    assert config.warnings == ()
    assert (config.limits.max_iterations, config.limits.tool_timeout) == (15, 10.0)
    assert config.permissions.fs_read == "allow"
    assert config.permissions.fs_write == "ask"
    assert config.paths.skills == (tmp_path / "skills",)
    assert (config.paths.workspace, config.paths.state) == (tmp_path, tmp_path / ".runner")
    assert config.agents == {}
    assert set(config.origins.values()) == {"default"}


def test_the_default_file_is_found_below_the_working_directory(tmp_path):
    load(tmp_path, "[loop]\nstop = 9\n")
    config = load_config(environ={}, cwd=tmp_path)
    assert config.loop.stop == 9
    assert config.file == tmp_path / "config" / "runner.toml"
    assert config.origins["loop.stop"] == "file:config/runner.toml"


@pytest.mark.parametrize("name", ["runner.toml", "cloud.toml"])
def test_the_files_we_ship_are_valid(name):
    config = load_config(file=ROOT / "config" / name, environ={}, cwd=ROOT)
    assert config.project == ROOT
    assert config.warnings == ()


def test_the_shipped_default_file_changes_no_default(tmp_path):
    shipped = load(tmp_path, (ROOT / "config" / "runner.toml").read_bytes())
    plain = load_config(environ={}, cwd=tmp_path / "config" / "..")
    for table in MANIFEST:
        if table != "paths":
            assert getattr(shipped, table) == getattr(plain, table)


def test_the_later_word_wins_and_its_origin_is_kept(tmp_path):
    text = "[limits]\nslots = 1\nmax_iterations = 1\nmax_parallel = 1\nmax_cost = 1\n"
    config = load(
        tmp_path,
        text,
        environ={
            f"RUNNER_LIMITS__{k}": "2" for k in ("MAX_ITERATIONS", "MAX_PARALLEL", "MAX_COST")
        },
        options={"limits.max_parallel": 3, "limits.max_cost": 3, "model.name": None},
        sets=["limits.max_cost=4"],
    )
    limits = config.limits
    assert (limits.slots, limits.max_iterations) == (1, 2)
    assert (limits.max_parallel, limits.max_cost) == (3, 4.0)
    assert [config.origins[f"limits.{k}"] for k in ("slots", "max_iterations", "max_parallel")] == [
        "file:config/runner.toml",
        "env:RUNNER_LIMITS__MAX_ITERATIONS",
        "option",
    ]
    assert config.origins["limits.max_cost"] == "set"
    assert config.origins["model.name"] == "default"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30", 30.0), ('"30s"', 30.0), ('"0.5m"', 30.0), ('"250ms"', 0.25), ('"1h"', 3600.0)],
)
@pytest.mark.parametrize(
    ("table", "key"), [("limits", "tool_timeout"), ("model", "timeout"), ("watch", "debounce")]
)
def test_a_time_is_seconds_or_text_with_a_unit(tmp_path, table, key, written, seconds):
    config = load(tmp_path, f"[{table}]\n{key} = {written}\n")
    assert getattr(getattr(config, table), key) == seconds
    assert config.warnings == ()


def test_a_time_over_an_hour_is_asked_about(tmp_path):
    config = load(tmp_path, '[limits]\ntool_timeout = 30000\nturn_timeout = "2h"\n')
    assert config.limits.turn_timeout == 7200
    assert len(config.warnings) == 1
    assert "limits.tool_timeout" in config.warnings[0]
    assert "milliseconds" in config.warnings[0]


def test_the_camel_case_json_is_read_with_its_timeout_in_milliseconds(tmp_path):
    article = {
        "llm": {
            "provider": "ollama",
            "baseUrl": "http://127.0.0.1:11434",
            "model": "qwen2.5:7b",
            "temperature": 0,
            "maxTokens": 2048,
        },
        "runner": {"maxIterations": 9, "toolTimeout": 30000, "toolRetries": 1, "slotCount": 3},
    }
    config = load(tmp_path, json.dumps(article), "config/runner.json")
    assert (config.model.name, config.model.max_tokens) == ("ollama/qwen2.5:7b", 2048)
    assert config.model.base_url == "http://127.0.0.1:11434"
    limits = config.limits
    assert (limits.max_iterations, limits.tool_timeout) == (9, 30.0)
    assert (limits.tool_retries, limits.slots) == (1, 3)
    assert config.warnings == ()
    short = load(tmp_path, '{"runner": {"toolTimeout": 30}}', "config/runner.json")
    assert short.limits.tool_timeout == 0.03
    assert "milliseconds" in short.warnings[0]


def test_json_may_use_our_own_tables(tmp_path):
    text = '{"limits": {"tool_timeout": "5m"}, "permissions": {"fs.write": "deny"}}'
    config = load(tmp_path, text, "config/own.json")
    assert config.limits.tool_timeout == 300
    assert config.permissions.fs_write == "deny"


def test_a_mark_and_crlf_are_read(tmp_path):
    for data in (b"\xef\xbb\xbf[limits]\nslots = 7\n", b"[limits]\r\nslots = 7\r\n"):
        assert load(tmp_path, data).limits.slots == 7


def test_paths_count_from_the_project_in_files_and_from_here_on_the_command_line(tmp_path):
    here = tmp_path / "elsewhere"
    here.mkdir()
    config = load(
        tmp_path,
        "[paths]\nskills = ['skills', '~/more', '/abs']\nworkspace = 'C:\\Users\\me'\n",
        file=tmp_path / "config" / "runner.toml",
        cwd=here,
        options={"paths.state": Path("s")},
    )
    assert config.project == tmp_path
    assert config.paths.skills == (tmp_path / "skills", Path("/home/me/more"), Path("/abs"))
    assert config.paths.workspace == tmp_path / "C:\\Users\\me"
    assert config.paths.state == here / "s"
    listed = load(tmp_path, "", options={"paths.skills": ("a", "../b")}, cwd=here, file=None)
    assert listed.paths.skills == (here / "a", tmp_path / "b")


def test_a_file_outside_a_config_folder_has_its_own_folder_as_project(tmp_path):
    assert load(tmp_path, "", "other/my.toml").project == tmp_path / "other"


def test_the_environment_speaks_toml_or_bare_text(tmp_path):
    environ = {
        "RUNNER_LIMITS__MAX_ITERATIONS": "3",
        "RUNNER_LIMITS__TOOL_TIMEOUT": "30s",
        "RUNNER_PERMISSIONS__FS_WRITE": "allow",
        "RUNNER_PERMISSIONS__TOOLS": '{ "run_command(git *)" = "allow" }',
        "RUNNER_MODEL__NAME": '"ollama/x"',
        "RUNNER_MODEL__BASE_URL": "http://127.0.0.1:9",
        "RUNNER_PATHS__WORKSPACE": "2024",
        "RUNNER_AGENTS__PLANNER__MAX_ITERATIONS": "4",
        "RUNNER_TEMP": "/tmp",
    }
    config = load(tmp_path, environ=environ)
    assert (config.limits.max_iterations, config.limits.tool_timeout) == (3, 30.0)
    assert config.permissions.fs_write == "allow"
    assert config.permissions.tools == {"run_command(git *)": "allow"}
    assert (config.model.name, config.model.base_url) == ("ollama/x", "http://127.0.0.1:9")
    assert config.paths.workspace == tmp_path / "2024"
    assert config.agents["planner"].max_iterations == 4
    assert config.origins["permissions.fs.write"] == "env:RUNNER_PERMISSIONS__FS_WRITE"


def test_set_takes_toml_or_bare_text_and_any_key(tmp_path):
    config = load(
        tmp_path,
        "[permissions]\ntools = { echo = 'deny' }\n",
        sets=[
            "limits.max_iterations=3",
            'permissions.fs.write="allow"',
            'permissions."fs.read"=deny',
            "permissions.net:127.0.0.1=allow",
            'permissions.tools."run_command(a=b *)"=ask',
            "model.name=ollama/qwen2.5:7b",
            'model.base_url="http://127.0.0.1:9"',
            "agents.planner.prompt=Plan, then stop.",
            "paths.skills=['a']",
            "plugins.modules=[]",
        ],
    )
    permissions = config.permissions
    assert config.limits.max_iterations == 3
    assert (permissions.fs_write, permissions.fs_read) == ("allow", "deny")
    assert permissions.scoped == {"net:127.0.0.1": "allow"}
    assert permissions.tools == {"echo": "deny", "run_command(a=b *)": "ask"}
    assert (config.model.name, config.model.base_url) == ("ollama/qwen2.5:7b", "http://127.0.0.1:9")
    assert config.agents["planner"].prompt == "Plan, then stop."
    assert config.paths.skills == (tmp_path / "a",)
    assert config.plugins.modules == ()
    whole = load(tmp_path, sets=['permissions.tools={ send_mail = "deny" }'])
    assert whole.permissions.tools == {"send_mail": "deny"}


def test_permissions_take_scopes_and_unquoted_names(tmp_path):
    config = load(
        tmp_path,
        "[permissions]\nfs.write = 'deny'\n'fs.write:out/**' = 'allow'\n'env:HOME' = 'allow'\n",
    )
    assert config.permissions.fs_write == "deny"
    assert config.permissions.scoped == {"fs.write:out/**": "allow", "env:HOME": "allow"}


def test_an_agent_has_its_own_permissions_and_limits(tmp_path):
    config = load(
        tmp_path,
        "[agents.planner]\nmodel = 'ollama/x'\nskills = ['files']\nmax_total_tokens = 9\n"
        "[agents.planner.permissions]\nfs.write = 'deny'\ntools = { echo = 'deny' }\n",
    )
    planner = config.agents["planner"]
    assert (planner.name, planner.model, planner.skills) == ("planner", "ollama/x", ("files",))
    assert (planner.max_iterations, planner.max_total_tokens) == (10, 9)
    assert planner.permissions == {"fs.write": "deny"}
    assert planner.tools == {"echo": "deny"}
    table = shown(config)["agents.planner"]
    assert table["permissions"]["value"] == {"fs.write": "deny", "tools": {"echo": "deny"}}
    assert table["max_iterations"] == {"value": 10, "origin": "default"}


def test_what_is_shown_is_json_with_the_origin_of_every_key(tmp_path):
    config = load(
        tmp_path,
        "[model]\nbase_url = 'http://me:hunter22@host/v1'\n"
        "[permissions]\n'net:a.example' = 'allow'\n",
    )
    table = shown(config)
    assert json.loads(json.dumps(table)) == table
    assert "hunter22" not in json.dumps(table)
    for key in KEYS:
        if not key.startswith("agents."):
            name, _, rest = key.partition(".")
            assert set(table[name][rest]) == {"value", "origin"}
    assert table["limits"]["max_parallel"] == {"value": 8, "origin": "default"}
    assert table["paths"]["workspace"]["value"] == str(tmp_path)
    scoped = table["permissions"]["net:a.example"]
    assert scoped == {"value": "allow", "origin": "file:config/runner.toml"}


def test_a_host_gives_plain_tables(tmp_path):
    config = config_from(
        {"limits": {"slots": 3}, "paths": {"skills": ["s"], "state": tmp_path / "x"}},
        project=tmp_path,
    )
    assert (config.limits.slots, config.paths.skills) == (3, (tmp_path / "s",))
    assert config.paths.state == tmp_path / "x"
    assert config.origins["limits.slots"] == "option"
    with pytest.raises(ConfigError, match=r"config: limits\.slots: must be"):
        config_from({"limits": {"slots": "3"}}, project=tmp_path)


def test_a_config_cannot_be_changed(tmp_path):
    config = load(tmp_path)
    with pytest.raises(FrozenInstanceError):
        config.limits.slots = 3
    with pytest.raises(TypeError):
        config.permissions.tools["echo"] = "allow"


def test_every_key_is_in_the_list(tmp_path):
    assert len(KEYS) == len(set(KEYS))
    assert {"permissions.fs.write", "agents.NAME.model"} <= set(KEYS)
    assert keys_in("nothing") == {}
    assert "prompt" in keys_in("agents.x")


def test_reading_the_module_loads_nothing_it_may_not_need():
    code = (
        "import sys; before = set(sys.modules); import runner.config; "
        "print({'tomli', 'difflib'} & set(sys.modules) - before)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "set()"


# ---- the project above


def found(cwd: Path, home: Path = Path("/home/me")) -> Config:
    """What is found from a folder that is made for it."""
    cwd.mkdir(parents=True, exist_ok=True)
    return load_config(environ={"HOME": str(home)}, cwd=cwd)


def test_the_nearest_project_above_is_found_from_a_subfolder(tmp_path):
    load(tmp_path, "[loop]\nstop = 9\n")
    load(tmp_path / "inner", "[loop]\nstop = 8\n")
    config = found(tmp_path / "docs" / "more")
    assert (config.project, config.file) == (tmp_path, tmp_path / "config" / "runner.toml")
    assert config.origins["loop.stop"] == "file:../../config/runner.toml"
    assert (config.paths.workspace, config.paths.state) == (tmp_path, tmp_path / ".runner")
    assert config.paths.skills == (tmp_path / "skills",)
    assert found(tmp_path / "inner" / "docs").loop.stop == 8
    assert found(tmp_path / "config").project == tmp_path


def test_an_option_given_in_a_subfolder_counts_from_there(tmp_path):
    load(tmp_path, "")
    (tmp_path / "docs").mkdir()
    config = load_config(environ={}, cwd=tmp_path / "docs", options={"paths.workspace": "."})
    assert config.paths.workspace == tmp_path / "docs"
    said = ["model.name='scripted/a.json'", "agents.b.model='llamacpp//c.gguf'"]
    config = load_config(environ={}, cwd=tmp_path / "docs", sets=said)
    assert config.model.name == f"scripted/{tmp_path}/docs/a.json"
    assert config.agents["b"].model == "llamacpp//c.gguf"
    assert load_config(environ={}, cwd=tmp_path, sets=said).model.name == "scripted/a.json"


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_the_search_for_a_project_ends_with_a_repository(tmp_path, make):
    load(tmp_path, "[loop]\nstop = 9\n")
    repository = tmp_path / "repository"
    repository.mkdir()
    make(repository / ".git")  # a worktree's is a file
    assert found(repository / "src").file is None
    assert found(repository).project == repository
    load(repository, "[loop]\nstop = 8\n")
    assert found(repository / "src").loop.stop == 8


def test_the_home_folder_is_no_project_of_the_folders_in_it(tmp_path):
    load(tmp_path, "[loop]\nstop = 9\n")
    assert found(tmp_path / "other" / "src", home=tmp_path).file is None
    assert found(tmp_path, home=tmp_path).loop.stop == 9
    (tmp_path / "link").symlink_to(tmp_path)
    assert found(tmp_path / "other", home=tmp_path / "link").file is None


def test_a_config_above_that_is_broken_is_named_from_where_one_stands(tmp_path):
    load(tmp_path, "")
    (tmp_path / "config" / "runner.toml").write_text("[loop]\nstop = -1\n")
    with pytest.raises(ConfigError, match=r"^\.\./config/runner\.toml: loop\.stop: "):
        found(tmp_path / "docs")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("foreign", [".", "config", "config/runner.toml"])
def test_a_project_above_that_belongs_to_another_user_is_left_out_with_a_warning(tmp_path, foreign):
    load(tmp_path, "[hooks]\npre_tool_use = ['evil']\n")
    os.chown(tmp_path / foreign, 4242, -1)
    config = found(tmp_path / "docs")
    assert (config.file, config.hooks.pre_tool_use) == (None, ())
    assert "belongs to another user; name it with --config" in config.warnings[0]
    assert found(tmp_path).hooks.pre_tool_use == ("evil",)

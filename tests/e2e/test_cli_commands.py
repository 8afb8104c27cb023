"""Every command but `run` as a process: what it prints, and what its exit code says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import ECHO, NOTE, Project, calls, environment, says
from fake_server import FakeServer

COMMANDS = [
    *("init", "run", "skills", "sessions", "trace", "parse", "config", "doctor", "demo"),
    *("skills list", "skills show", "skills check", "skills new", "skills call"),
    *("sessions list", "sessions show", "sessions rm", "trace show", "config show", "config path"),
]
SHARED = [
    "--set",
    "--config",
    "--skills",
    "--workspace",
    "--state",
    "--model",
    "--debug",
    "-v",
    "-q",
]


@pytest.fixture(name="project")
def _project(tmp_path):
    return Project(tmp_path / "p", ECHO, NOTE)


@pytest.fixture(scope="module", name="ran")
def _ran(tmp_path_factory):
    """A project in which a session `s1` of two turns was run."""
    turns = [calls(("echo", {"text": "a\x1bb"})), says("first"), says("second")]
    with FakeServer(turns) as server:
        project = Project(tmp_path_factory.mktemp("ran") / "p", ECHO, url=server.url)
        project("run", "GOAL ONE", "--session", "s1")
        project("run", "GOAL TWO", "--session", "s1")
    return project


# ---- help and errors


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_shows_an_example_and_the_shared_options(project, command):
    done = project(*command.split(), "--help")
    assert done.code == 0
    assert f"runner {command}" in done.out.partition("Examples:")[2]
    assert not [option for option in SHARED if option not in done.out]


@pytest.mark.parametrize("code", ["import runner", "from runner.cli.main import root"])
def test_slow_libraries_are_not_imported_to_begin_with(code):
    slow = ["litellm", "structlog", "jsonschema", "rich", "ollama", "asyncio", "yaml", "watchdog"]
    check = f"import sys; {code}; print([n for n in {slow} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", check], env=environment(), capture_output=True, check=True
    )
    assert done.stdout == b"[]\n"


def test_a_run_with_ollama_imports_neither_litellm_nor_structlog(tmp_path):
    with FakeServer([says("done")]) as server:
        project = Project(tmp_path / "p", url=server.url)
        command = [sys.executable, "-X", "importtime", "-m", "runner", "run", "x"]
        done = subprocess.run(
            command, cwd=project.folder, env=environment(), capture_output=True, check=True
        )
    imported = done.stderr.decode().replace("|", " ").split()
    assert not {"litellm", "structlog", "rich", "jsonschema"} & set(imported)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["confg"], "did you mean 'config'?"),
        (["run"], "GOAL"),
        (["run", "x", "--nope"], "--nope"),
        (["run", "  "], "the goal is empty"),
        (["run", "x", "--session", "a/b"], "a/b"),
        (["run", "x", "--model", "xai/grok", "--set", 'model.base_url=""'], "XAI_API_KEY is not"),
        (["--set", "limits.slots=x", "config", "show"], "limits.slots"),
        (["config", "show", "--set", "limts.slots=1"], "limits"),
        (["--config", "none.toml", "config", "show"], "none.toml"),
        (["config", "show", "nosuch"], "nosuch"),
        (["config", "show", "limits.nosuch"], "no key 'nosuch' in [limits]; there are slots"),
        (["skills", "show", "ecko"], "did you mean 'echo'?"),
        (["skills", "call", "echo", "--args", "[1]"], "JSON object"),
        (["skills", "new", "Bad Name"], "Bad Name"),
        (["parse", "--batch", "none.jsonl"], "none.jsonl"),
    ],
)
def test_wrong_usage_is_exit_2_and_one_line_that_says_what(project, arguments, says):
    done = project(*arguments)
    (line,) = done.err.splitlines()
    assert (done.code, done.out) == (2, "")
    assert line.startswith("error: ")
    assert says in line


def test_all_problems_of_a_config_are_shown_at_once(tmp_path):
    project = Project(tmp_path / "p", config="[limits]\nslots = 'two'\nmax_iteration = 3\n")
    done = project("run", "x")
    assert done.code == 2
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "error"]


def test_debug_shows_the_traceback_and_the_line(project):
    done = project("config", "show", "--debug", "--set", "limits.slots=x")
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("error: ")


# ---- config


def test_config_show_tells_the_origin_of_every_value(project):
    shown = project(
        *("--set", "limits.slots=3", "config", "show", "--json", "--model", "ollama/other"),
        RUNNER_LIMITS__MAX_PARALLEL="4",
    ).json
    assert shown["limits"]["slots"] == {"value": 3, "origin": "set"}
    assert shown["model"]["name"] == {"value": "ollama/other", "origin": "option"}
    assert shown["limits"]["max_parallel"] == {
        "value": 4,
        "origin": "env:RUNNER_LIMITS__MAX_PARALLEL",
    }
    assert shown["paths"]["state"]["origin"] == "file:config/runner.toml"
    assert shown["loop"]["warn"] == {"value": 2, "origin": "default"}


def test_config_show_says_that_the_project_was_found_above(project):
    here = project.folder
    (here / "docs").mkdir()
    said = project("--config", "config/runner.toml", "config", "show", "loop").err
    assert said == f"config file: {here}/config/runner.toml\n"
    command = [sys.executable, "-m", "runner", "config", "show", "loop"]
    done = subprocess.run(
        command, cwd=here / "docs", env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stderr == f"{said.rstrip()}, of the project above this folder\n"


def test_config_show_of_one_table_can_be_read(project):
    lines = project("config", "show", "loop").out.splitlines()
    assert lines[0] == "[loop]"
    assert lines[1].split() == ["warn", "=", "2", "#", "default"]


def test_config_path_names_the_file_or_is_exit_1(project, tmp_path):
    assert project("config", "path").out.strip().endswith("config/runner.toml")
    (project.folder / "config" / "runner.toml").unlink()
    assert project("config", "path").code == 1


# ---- a project and its skills


def test_init_makes_a_project_that_passes_every_check_and_keeps_what_is_there(tmp_path):
    run = [sys.executable, "-m", "runner"]
    place = {"cwd": tmp_path, "env": environment(), "capture_output": True, "check": True}
    (tmp_path / "new" / "config").mkdir(parents=True)
    (tmp_path / "new" / "config" / "runner.toml").write_text("# mine\n")
    subprocess.run([*run, "init", "new"], **place)
    place["cwd"] = tmp_path / "new"
    checked = subprocess.run([*run, "skills", "check", "--strict"], **place)
    assert (tmp_path / "new" / "config" / "runner.toml").read_text() == "# mine\n"
    assert checked.stdout == b""


def test_skills_list_shows_states_and_reasons_without_importing(tmp_path):
    bad = {"bad/skill.toml": "name = [", "boom/skill.py": ""}
    loud = {**ECHO, "echo/skill.py": "raise SystemExit(9)\ndef echo(text):\n    return text\n"}
    project = Project(tmp_path / "p", loud, bad)
    listed = {skill["name"]: skill for skill in project("skills", "list", "--json").json["skills"]}
    assert listed["echo"]["state"] == "ready"
    assert [tool["name"] for tool in listed["echo"]["tools"]] == ["echo"]
    assert listed["bad"]["state"] == "failed"
    assert "skill.toml" in listed["bad"]["reason"]
    plain = project("skills", "list")
    assert plain.code == 0
    assert "skill.toml" in plain.out


def test_skills_show_takes_a_skill_or_a_tool(project):
    assert "echo(text: string)" in project("skills", "show", "echo").out
    assert project("skills", "show", "note", "--json").json["name"] == "note"


def test_skills_check_is_one_line_per_finding_and_exit_1_for_an_error(tmp_path):
    broken = {**ECHO, "echo/skill.py": "import no_such_package\ndef echo(text):\n    return text\n"}
    project = Project(tmp_path / "p", broken)
    done = project("skills", "check")
    assert done.code == 1
    error = next(line for line in done.out.splitlines() if "no_such_package" in line)
    assert ": error: " in error
    found = project("skills", "check", "skills/echo", "--json").json
    assert set(found[0]) == {"path", "level", "message"}


def test_strict_makes_a_warning_an_error(project):
    assert project("skills", "check").code == 0
    assert project("skills", "check", "--strict").code == 1


def test_skills_new_writes_a_skill_that_can_be_called_at_once(project):
    made = project("skills", "new", "word-count")
    assert "skills/word-count/skill.toml" in made.out
    assert project("skills", "check", "skills/word-count", "--strict").code == 0
    done = project("skills", "call", "word_count", "--args", '{"text": "one two two"}')
    assert json.loads(done.out) == {"words": 3}
    assert project("skills", "new", "word-count").code == 2


def test_skills_call_needs_no_model_and_prints_the_result(project):
    done = project("skills", "call", "echo", "--args", '{"text": "hi"}')
    assert (done.code, done.out) == (0, '{"text":"hi"}\n')
    assert not (project.folder / "state").exists() or not [
        *(project.folder / "state").rglob("*.jsonl")
    ]


def test_skills_call_shows_each_gate_when_asked(project):
    done = project("skills", "call", "echo", "--args", '{"text": "hi"}', "-v", "--json")
    assert done.json["kind"] == "ok"
    assert done.err.count("tool.started") == 1
    assert "timestamp" not in done.err
    assert done.json["output"] == "printed by the skill\n"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [(["echo"], "invalid_arguments"), (["no_such"], "unknown_tool"), (["note", "--args", '{"text":"a"}'], "denied")],
)  # fmt: skip
def test_a_refused_call_is_exit_1_with_the_models_sentence(project, arguments, kind):
    done = project("skills", "call", *arguments, "--json")
    assert (done.code, done.json["kind"]) == (1, kind)


def test_a_call_that_nobody_could_be_asked_about_says_what_would_allow_it(project):
    arguments = ["skills", "call", "note", "--args", '{"text": "a"}']
    done = project(*arguments)
    assert done.err.splitlines()[-1] == (
        'allow with --set \'permissions."fs.write"="allow"\' or --yes'
    )
    assert project(*arguments, "--set", 'permissions."fs.write"="allow"').code == 0
    refused = project(*arguments, "--set", 'permissions."fs.write"="deny"')
    assert (refused.code, "allow with" in refused.err) == (1, False)


def test_a_tool_of_a_skill_that_failed_to_load_is_called_that(project):
    (project.folder / "skills" / "note" / "skill.py").write_text("def note(:\n")
    done = project("skills", "call", "note", "--args", '{"text": "a"}')
    assert (done.code, done.out) == (1, "")
    assert "its skill 'note' failed to load: skills/note/skill.py:1: SyntaxError" in done.err


def test_the_first_folder_of_skills_wins(project):
    other = {"more/echo/skill.toml": ECHO["echo/skill.toml"], "more/echo/skill.py": "def echo(text):\n    return 'other'\n"}  # fmt: skip
    for name, text in other.items():
        path = project.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    call = ["skills", "call", "echo", "--args", '{"text": "hi"}']
    assert project(*call, "--skills", "more", "--skills", "skills").out == "other\n"
    assert project("--skills", "skills", *call, "--skills", "more").out == '{"text":"hi"}\n'


# ---- sessions and traces


def test_sessions_list_tells_what_each_was_about(ran):
    (one,) = ran("sessions", "list", "--json").json
    assert (one["id"], one["turns"], one["goal"], one["status"]) == (
        "s1",
        2,
        "GOAL TWO",
        "completed",
    )
    assert "GOAL TWO" in ran("sessions", "list").out


def test_sessions_show_reads_like_a_conversation(ran):
    text = ran("sessions", "show", "s1").out
    order = ["> GOAL ONE", "echo", "first", "> GOAL TWO", "second"]
    assert sorted(order, key=text.index) == order
    assert "\x1b" not in text
    assert ran("sessions", "show", "s1", "--json").json[0]["type"] == "session.started"


def test_trace_show_is_one_line_per_event(ran):
    lines = ran("trace", "show", "s1").out.splitlines()
    raw = ran("trace", "show", "s1", "--json").out.splitlines()
    assert len(lines) == len(raw)
    assert [json.loads(line)["type"] in text for line, text in zip(raw, lines, strict=True)].count(
        False
    ) == 0


def test_damage_of_a_record_is_said_and_costs_nothing_else(ran):
    path = ran.folder / "state" / "sessions" / "s1.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"tor')
    done = ran("trace", "show", "s1")
    path.write_bytes(whole)
    assert done.code == 0
    assert "torn" in done.err


def test_a_session_that_is_not_there_is_an_error(ran):
    for command in (["sessions", "show"], ["sessions", "rm"], ["trace", "show"]):
        done = ran(*command, "s9")
        assert done.code == 1
        assert "no session 's9'" in done.err


def test_sessions_rm_removes_the_record_and_what_is_beside_it(tmp_path):
    with FakeServer([says("done")]) as server:
        project = Project(tmp_path / "p", url=server.url)
        project("run", "x", "--session", "s1")
    assert project("sessions", "rm", "s1").code == 0
    assert [*(project.folder / "state" / "sessions").iterdir()] == []


# ---- parse, doctor, demo


def test_parse_reads_a_reply_with_the_projects_tools(project):
    done = project("parse", stdin=b"a" * 16_000_001)
    assert (done.code, done.err) == (
        2,
        "error: stdin holds more than 16,000,000 bytes; no reply is that long\n",
    )
    done = project("parse", stdin=b'{"tool": "echo", "params": {"text": "a"}}')
    assert done.json == {
        "kind": "calls",
        "calls": [{"name": "echo", "arguments": {"text": "a"}}],
        "reason": done.json["reason"],
        "recogniser": "strict",
    }
    assert done.err == ""


def test_parse_takes_tools_from_a_file_and_explains_itself(project):
    tools = [{"name": "find", "parameters": {"type": "object", "required": ["q"]}}]
    (project.folder / "tools.json").write_text(json.dumps(tools))
    text = b'{"tool": "find", "params": {}}'
    done = project("parse", "--tools", "tools.json", "-v", stdin=text)
    assert (done.json["kind"], done.json["reason"]) == ("error", "invalid_arguments")
    assert "not run" in done.err


def test_parse_of_a_batch_gives_a_line_per_record_with_its_id(project):
    records = [{"id": n, "text": "just text", "tools": []} for n in ("a", "b")]
    (project.folder / "b.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    read = [json.loads(line) for line in project("parse", "--batch", "b.jsonl").out.splitlines()]
    assert [(one["id"], one["kind"]) for one in read] == [("a", "final"), ("b", "final")]


def test_doctor_finds_a_healthy_project_healthy(tmp_path):
    with FakeServer([]) as server:
        done = Project(tmp_path / "p", ECHO, url=server.url)("doctor", "--json")
    levels = {check["name"]: check["level"] for check in done.json}
    assert done.code == 0, done.out
    assert {levels[name] for name in ("config", "model", "tools", "context window", "skills")} == {
        "ok"
    }
    assert {"workspace", "state", "watch", "isolation", "pth files", "clock"} <= set(levels)
    window = next(check for check in done.json if check["name"] == "context window")
    assert "sent as num_ctx" in window["found"]


def test_doctor_does_not_wait_for_a_server_that_is_silent(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = Project(tmp_path / "p", ECHO, url=url)("doctor", "--json")
    model = next(check for check in done.json if check["name"] == "model")
    assert (done.code, model["level"]) == (1, "error")
    assert "ollama serve" in model["fix"]


def test_doctor_loads_no_slow_library_for_a_cloud_model(project):
    arguments = ["doctor", "--json", "--model", "openai/gpt-x", "--set", 'model.base_url=""']
    done = project(*arguments, OPENAI_API_KEY="sk-x", PYTHONPROFILEIMPORTTIME="1")
    assert "not looked up" in next(c for c in done.json if c["name"] == "tools")["found"]
    assert "litellm.main" not in done.err


def test_doctor_names_each_fault_with_its_fix(tmp_path):
    project = Project(tmp_path / "p", {"bad/skill.toml": "name = ["}, url="http://127.0.0.1:9")
    done = project("doctor", "--json")
    faults = {check["name"]: check for check in done.json if check["level"] == "error"}
    assert done.code == 1
    assert set(faults) == {"model", "skills"}
    assert "127.0.0.1:9" in faults["model"]["found"]
    assert all(check["fix"] for check in faults.values())
    assert "fix: ollama serve" in project("doctor").out
    named = project("doctor", "--json", "--model", "anthropic/x", "--set", 'model.base_url=""')
    missing = next(check for check in named.json if check["name"] == "model")
    assert "ANTHROPIC_API_KEY is not set" in missing["found"]
    assert missing["fix"].startswith("export ANTHROPIC_API_KEY=…")


def test_doctor_names_a_few_skills_that_are_not_ready_and_counts_the_rest(project):
    for n in range(30):
        (project.folder / "skills" / f"bad-{n}").mkdir()
        (project.folder / "skills" / f"bad-{n}" / "SKILL.md").write_text("no front matter")
    checks = [check for check in project("doctor", "--json").json if check["name"] == "skills"]
    assert [check["level"] for check in checks] == ["ok", *["error"] * 8, "warning"]
    assert checks[-1]["found"] == "22 more are not ready"


def test_config_show_takes_a_key_and_the_table_of_all_roles(project, tmp_path):
    assert project("config", "show", "limits.slots").out == "[limits]\nslots = 0  # default\n"
    assert list(project("config", "show", "permissions.fs.read", "--json").json) == ["permissions"]
    assert project("config", "show", "agents").out == "[agents]\n"
    with_role = Project(tmp_path / "q", config="[agents.critic]\ndescription = 'Judges.'\n")
    assert list(with_role("config", "show", "agents", "--json").json) == ["agents.critic"]


def test_doctor_reads_a_wrong_config(tmp_path):
    done = Project(tmp_path / "p", config="[limits]\nslots = 'x'\n")("doctor", "--json")
    assert (done.code, done.json[0]["name"], done.json[0]["level"]) == (1, "config", "error")


def test_the_demo_does_the_main_job_and_writes_nothing_here(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "runner", "demo"], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )  # fmt: skip
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0
    assert "| deploy/compose.yaml | 5 |" in out
    assert "read from a script" in err
    assert err.count("result ok") == 7
    assert "runner init" in err
    assert "serve;" not in err
    assert not [*Path(tmp_path).iterdir()]

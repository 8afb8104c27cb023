"""The README and docs/ say what is so: every name, every default, every command and example."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import runner
from runner import errors, hookspecs
from runner.cli.run import EXIT_CODES
from runner.config import KEYS
from runner.events import KINDS
from runner.settings import AGENT_KEYS, MANIFEST, TABLES
from runner.types import KIND_RULES, Kind

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {
    path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))
}
PAGES = {"README.md": README, **DOCS}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCHEMA = json.loads((ROOT / "runner/catalog/manifest.schema.json").read_text(encoding="utf-8"))
SCRIPT = {"replies": [{"text": "README.md mentions it."}], "repeat_last": True}
SET_UP = "sets up a machine: .ci/run runs the second such line, and `runner demo` is run here"


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables, by their first cell; pipes that are escaped or quoted are kept."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\) \| ", line.strip().strip("|").strip()) for line in lines]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}


def section(text: str, title: str) -> str:
    """What stands below a heading of the second level."""
    return next(part for part in text.split("\n## ")[1:] if part.startswith(title))


def default(value: Any) -> Any:
    """A default as TOML has it."""
    if isinstance(value, MappingProxyType):
        return {}
    return list(value) if isinstance(value, tuple) else value


def toml(text: str) -> Any:
    return tomllib.loads(f"v = {text}")["v"]


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("table", [*TABLES, "agents.NAME"])
def test_the_config_page_has_every_key_with_its_default(table: str) -> None:
    keys = AGENT_KEYS if table == "agents.NAME" else MANIFEST[table]
    said = rows(section(DOCS["config.md"], f"[{table}]"))
    told = {
        name.strip("`"): toml(cells[0].strip("`")) for name, cells in said.items() if name[0] == "`"
    }
    assert told == {name: default(key.default) for name, key in keys.items()}
    assert all(cells[1].endswith((".", "`.")) for name, cells in said.items() if name[0] == "`")


@pytest.mark.parametrize("key", KEYS)
def test_the_readme_has_every_key_with_its_default(key: str) -> None:
    table, name = key.split(".NAME.") if key.startswith("agents.NAME.") else key.split(".", 1)
    head = "agents.NAME" if table == "agents" else table
    cells = next(cells for first, cells in rows(README).items() if f"`[{head}]`" in first)
    told = dict(re.findall(r"`([\w.]+)` ([^·]+)", cells[0]))
    value = told.get(f"{table}.{name}", told.get(name))
    assert value is not None
    assert toml(value.strip()) == default(
        (AGENT_KEYS if table == "agents" else MANIFEST[table])[name].default
    )


@pytest.mark.parametrize("hook", hookspecs.NAMES)
def test_every_hook_is_told_with_its_arguments(hook: str) -> None:
    arguments = ", ".join(inspect.signature(getattr(hookspecs, hook)).parameters)
    said = rows(DOCS["embedding.md"])[f"`{hook}({arguments})`"]
    kind, _, rest = (getattr(hookspecs, hook).__doc__ or "").partition(":")
    assert said[1] == {"first": "first", "fold": "fold", "collect": "collect"}.get(kind, "notify")
    assert ("denies" in rest) == (said[2] == "**denied**")
    assert f"`{hook}`" in README


def test_the_manifest_page_has_every_field() -> None:
    page, definitions = DOCS["manifest.md"], SCHEMA["$defs"]
    top = {
        n for first in rows(section(page, "`skill.toml`")) for n in re.findall(r"`(\w+)`", first)
    }
    tool = {
        n for first in rows(section(page, "`[[tools]]`")) for n in re.findall(r"`(\w+)`", first)
    }
    of_a_tool = set(definitions["tool"]["properties"])
    assert tool == of_a_tool
    assert top == set(SCHEMA["properties"]) - (of_a_tool - {"name", "description", "hooks"})
    short = set(definitions["descriptor"]["properties"]) - of_a_tool
    told = section(page, "`skill.json`")
    assert all(f"`{name}`" in told for name in short)
    assert all(f"`{name}" in page for name in definitions["requires"]["properties"])
    assert "](docs/manifest.md)" in README


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.OK])
def test_every_kind_is_told_with_what_follows_from_it(kind: Kind) -> None:
    rule = KIND_RULES[kind]
    first, cells = next((f, c) for f, c in rows(README).items() if f"`{kind}`" in f and len(c) == 4)
    ran = dict(zip(re.findall(r"`(\w+)`", first), cells[0].split("; ") * 9, strict=False))[kind]
    words = {"no": "no", "yes": "yes", "unknown": "not known", "maybe": "perhaps"}
    assert ran == words[rule.ran]
    assert (cells[1] == "yes") == rule.retried
    assert (cells[2] == "yes") == rule.counted
    assert (cells[3] == "yes") == rule.degrades


def test_every_exit_status_is_told() -> None:
    for status, code in EXIT_CODES.items():
        assert f"{code} `{status}`" in README
    assert "2 wrong usage or config" in README


def test_every_public_name_event_and_exception_is_told() -> None:
    page = DOCS["embedding.md"] + DOCS["manifest.md"] + README
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []
    public = set(runner.__all__)
    assert [name for name in sorted(public) if name not in page] == []
    assert {n for n in public if isinstance(getattr(errors, n, None), type)} <= set(
        re.findall(r"\w+", DOCS["embedding.md"])
    )


def test_every_dependency_has_its_reason() -> None:
    named = [*PROJECT["project"]["dependencies"]]
    for extra, packages in PROJECT["project"]["optional-dependencies"].items():
        named += packages if extra != "test" else []
    table = " ".join(first for first, cells in rows(README).items() if len(cells) == 2)
    for package in named:
        name = re.split(r"[<>=!\[; ]", package)[0]
        assert re.search(rf"\b{re.escape(name)}\b", table), f"{name} is not in the table"


def test_the_lock_files_pin_every_dependency_by_hash() -> None:
    project = PROJECT["project"]
    wanted = {
        "requirements.txt": project["dependencies"],
        "requirements-test.txt": project["dependencies"] + project["optional-dependencies"]["test"],
    }
    pins = {}
    for file, packages in wanted.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        pins[file] = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", text, re.MULTILINE))
        assert {re.split(r"[<>=!\[;]", p)[0].lower().replace("_", "-") for p in packages} <= set(
            pins[file]
        )
        entries = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
        assert all("--hash=sha256:" in entry for entry in entries)
    assert pins["requirements.txt"].items() <= pins["requirements-test.txt"].items()


def test_no_page_leads_nowhere() -> None:
    for page, text in PAGES.items():
        base = (ROOT / page if page == "README.md" else ROOT / "docs" / page).parent
        links = re.findall(r"\]\(([^)#]+)\)", text)
        files = re.findall(r"`((?:runner|tests|config|\.ci)/[\w./-]+)`", text)
        missing = [link for link in links if not (base / link).exists()]
        missing += [file for file in files if not (ROOT / file).exists()]
        assert missing == [], page


def test_nothing_in_the_repository_names_a_machine_or_an_index() -> None:
    machine = re.compile(r"(?<![\w.~-])/(?:work|root|home|Users|opt)/\w")
    index = re.compile(
        r"pypi\.org|files\.pythonhosted|^\s*--(?:extra-)?index-url|find-links [a-z/]", re.MULTILINE
    )
    files = [ROOT / name for name in ("README.md", "CHANGELOG.md", "pyproject.toml")]
    files += [*ROOT.glob("requirements*.txt"), *(ROOT / ".ci").iterdir()]
    for folder in ("docs", "config", "skills", "runner", "tests"):
        files += [
            p
            for p in (ROOT / folder).rglob("*")
            if p.suffix in {".py", ".md", ".toml", ".json", ".html", ".txt"}
        ]
    for path in files:
        text = path.read_text(encoding="utf-8")
        place = str(path.relative_to(ROOT))
        assert not index.search(text), place
        assert str(ROOT) not in text, place
        assert place.startswith("tests/") or not machine.search(text), place


# ---- commands and examples ------------------------------------------------------------------


class Shell:
    """A project made by `runner init`, the README's own skill in it, and a scripted model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        kept = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
        self.env = {
            **kept, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "NO_COLOR": "1",
            "RUNNER_MODEL__NAME": "scripted/script.json",
        }  # fmt: skip
        self("runner init")
        write_the_skill(folder)
        (folder / "script.json").write_text(json.dumps(SCRIPT))
        (folder / "README.md").write_text("Set API_KEY first.\n")
        (folder / "reply.txt").write_text('{"tool": "list_files", "params": {}}')
        self("runner run hello --session SESSION")

    def __call__(self, line: str) -> subprocess.CompletedProcess[str]:
        line = re.sub(r"--model \S+", "--model scripted/script.json", line)
        line = line.replace("NAME", f"skill-{self.count}")
        self.count += 1
        script = f'runner() {{ "$PYTHON" -m runner "$@"; }}\n{line}\n'
        return subprocess.run(
            ["bash", "-euc", script], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


def write_the_skill(folder: Path) -> Path:
    """The README's skill, as it stands there."""
    for block in [*blocks(README, "toml"), *blocks(README, "python")]:
        path = folder / block.partition("\n")[0].removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, encoding="utf-8")
    return folder / "skills"


def commands() -> list[str]:
    """Every command line that begins with `runner`, in blocks and in the text."""
    found = []
    for text in PAGES.values():
        found += [line for block in blocks(text, "sh") for line in block.splitlines()]
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        found += re.findall(r"`(runner [^`]+)`", prose)
    return list(dict.fromkeys(line for line in found if line.startswith("runner ")))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("docs"))


@pytest.mark.parametrize("line", commands())
def test_a_command_in_the_docs_runs(line: str, shell: Shell) -> None:
    done = shell(line)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert "error:" not in done.stderr


def test_every_other_line_of_the_readmes_blocks_sets_up_a_machine() -> None:
    lines = [line for block in blocks(README, "sh") for line in block.splitlines()]
    others = [line for line in lines if not line.startswith("runner ")]
    assert len(others) == 2, SET_UP
    assert others[0].endswith(" && .venv/bin/runner demo")
    assert others[1].endswith(" && .venv/bin/python -m pytest -q --cov")
    assert all(line.startswith("python3 -m venv .venv && ") for line in others)


def test_the_readme_shows_what_the_demo_prints(shell: Shell) -> None:
    done = shell("runner demo")
    printed = re.sub(r"in [\d.]+ s:", "in … s:", done.stderr + done.stdout)
    shown = re.sub(r"in [\d.]+ s:", "in … s:", blocks(README, "text")[0])
    at = 0
    for line in shown.splitlines():
        for piece in filter(None, (piece.strip() for piece in line.split("…"))):
            found = printed.find(piece, at)
            assert found >= 0, piece
            at = found + len(piece)


def test_the_readmes_skill_has_no_fault_and_runs(shell: Shell) -> None:
    checked = shell("runner skills check skills/word-count --strict --json")
    assert checked.returncode == 0, checked.stdout
    called = shell('runner skills call count_words --args \'{"file_path": "README.md"}\'')
    assert called.stdout.strip() == '{"words":3}'


def test_the_first_example_for_hosts_runs(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    code = blocks(DOCS["embedding.md"], "python")[0]
    imports, _, body = code.partition("\n\n")
    indented = body.replace("\n", "\n    ")
    source = f"{imports}\nasync def main():\n    {indented}\n    return result\n"
    monkeypatch.chdir(shell.folder)
    monkeypatch.setenv("RUNNER_MODEL__NAME", "scripted/script.json")
    space: dict[str, Any] = {}
    exec(compile(source, "docs/embedding.md", "exec"), space)
    assert asyncio.run(space["main"]()).answer == "README.md mentions it."


def test_the_example_plugin_is_one(shell: Shell) -> None:
    from datetime import date

    from runner.plugins import misspelt

    code = next(b for b in blocks(DOCS["embedding.md"], "python") if "class NoSundays" in b)
    space: dict[str, Any] = {"__name__": "docs"}
    exec(compile(code.partition("\nplugin = ")[0], "docs/embedding.md", "exec"), space)
    assert misspelt(space["NoSundays"](date(2026, 3, 1))) == ""

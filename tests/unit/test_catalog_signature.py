"""Schemas derived from code, the drift check, and what a skill requires of its surroundings."""

from __future__ import annotations

import sys

import pytest
from skill_kit import one_tool, only, registry, write

from runner.catalog import requirements, signature
from runner.errors import SkillError

CODE = '''
from __future__ import annotations
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union
import typing as t
from runner import SkillContext


def everything(
    text: str,
    count: int,
    share: float,
    sure: bool,
    tags: list[str],
    table: dict[str, int],
    mode: Literal["a", "b"],
    level: Literal[1, 2],
    maybe: str | None,
    also: Optional[int],
    either: Union[int, str],
    noted: Annotated[str, "What it is"],
    where: Path,
    anything: Any,
    bare,
    pair: tuple[int, int],
    quoted: "t.Optional[list[int]]",
    page: int = 1,
    name: str = "x",
    flag: bool = False,
    empty: dict | None = None,
    made: list = list(),
    *,
    only: str = "k",
    c: SkillContext,
) -> dict:
    """Does it.

    Args:
        text: The text to read,
            on two lines.
        count (int): How many.
        **rest: ignored

    Returns:
        share: not a parameter
    """
'''


def derived(code: str, name: str = "everything") -> dict:
    return signature.derive(signature.read(code.encode(), "skill.py").functions[name])


def test_a_schema_is_derived_from_annotations_defaults_and_docstring():
    schema = derived(CODE)
    assert schema["properties"] == {
        "text": {"type": "string", "description": "The text to read, on two lines."},
        "count": {"type": "integer", "description": "How many."},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "table": {"type": "object", "additionalProperties": {"type": "integer"}},
        "mode": {"enum": ["a", "b"], "type": "string"},
        "level": {"enum": [1, 2]},
        "maybe": {"type": "string"},
        "also": {"type": "integer"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "noted": {"type": "string", "description": "What it is"},
        "where": {"type": "string"},
        "anything": {},
        "bare": {},
        "pair": {"type": "array"},
        "quoted": {"type": "array", "items": {"type": "integer"}},
        "page": {"type": "integer", "default": 1},
        "name": {"type": "string", "default": "x"},
        "flag": {"type": "boolean", "default": False},
        "empty": {"type": "object"},
        "made": {"type": "array"},
        "only": {"type": "string", "default": "k"},
    }
    assert schema["required"] == list(schema["properties"])[:17]
    assert schema["additionalProperties"] is False


def test_a_function_that_takes_anything_has_an_open_schema():
    assert derived("def f(a, *args, **kwargs): pass", "f") == {
        "type": "object",
        "properties": {"a": {}},
        "required": ["a"],
    }


@pytest.mark.parametrize(
    ("docstring", "found"),
    [
        (":param q: What to find\n:param int n: How many", {"q": "What to find", "n": "How many"}),
        ("Args:\n    q: One\n    n (int, optional): Two: three\n", {"q": "One", "n": "Two: three"}),
        ("Nothing here.", {}),
        ("Args:\n", {}),
        ("Args:\n\n\n", {}),
    ],
    ids=["rest", "google", "none", "empty", "blank"],
)
def test_parameter_meanings_are_read_from_docstrings(docstring, found):
    assert signature.described(docstring) == found


def test_functions_under_if_and_try_are_found_and_other_names_known():
    code = b"import os.path as p\nfrom x import y\nA = B = 1\nif A:\n    def f(): pass\ntry:\n    def g(): pass\nexcept E:\n    def h(): pass\nclass K: pass\n"
    module = signature.read(code, "skill.py")
    assert set(module.functions) == {"f", "g", "h"}
    assert {"p", "y", "A", "B", "K"} <= module.names


def test_a_tool_without_parameters_gets_them_from_its_function(tmp_path):
    files = one_tool("seek", "def seek(q: str, n: int = 3):\n    return q * n\n")
    files["seek/skill.toml"] = files["seek/skill.toml"].split("[tools.parameters]")[0]
    write(tmp_path / "s", files)
    tool = only(tmp_path / "s").tools[0]
    assert tool.parameters["required"] == ["q"]
    assert tool.load().function(q="a") == "aaa"


KEYWORD = "required = ['keyword']\nproperties.keyword = { type = 'string' }"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def seek(query): pass", ("'keyword'", "'query'", "same name")),
        ("def seek(): pass", ("'keyword'", "does not take")),
        ("def seek(keywords=1): pass", ("'keyword'", "did you mean 'keywords'")),
        ("def seek(keyword, size): pass", ("'size'", "does not name")),
        ("def seek(keyword, *, size): pass", ("'size'",)),
        ("def seek(keyword, /): pass", ("by position only",)),
        ("def other(): pass", ("no function 'seek'", "other")),
    ],
)
def test_a_parameter_only_one_side_knows_is_a_load_error_that_names_both(code, says, tmp_path):
    write(tmp_path / "s", one_tool("seek", code + "\n", KEYWORD))
    skill = only(tmp_path / "s")
    assert skill.state == "failed"
    assert all(word in skill.reason for word in ("skill.py", *says))


@pytest.mark.parametrize(
    "code",
    [
        "def seek(keyword): return 1",
        "def seek(keyword, extra=2): return 1",
        "def seek(**arguments): return 1",
        "def seek(ctx, keyword): return 1",
        "from runner import SkillContext\ndef seek(keyword, context: SkillContext): return 1",
        "async def seek(keyword): return 1",
        "def seek(keyword, *rest): return 1",
        "from .impl import seek",
        "from .impl import *",
        "seek = lambda keyword: 1",
    ],
)
def test_a_function_that_agrees_is_ready(code, tmp_path):
    write(
        tmp_path / "s",
        one_tool("seek", code + "\n", KEYWORD)
        | {"seek/impl.py": "def seek(keyword):\n    return 1\n"},
    )
    skill = only(tmp_path / "s")
    assert (skill.state, skill.reason) == ("ready", "")
    assert skill.tools[0].load().function is not None


def test_drift_hidden_by_a_decorator_is_found_when_the_skill_is_loaded(tmp_path):
    code = "import functools\ndef hide(f):\n    return lambda query: f(query)\n@hide\ndef seek(keyword):\n    return 1\n"
    write(tmp_path / "s", one_tool("seek", code, KEYWORD))
    found = registry(tmp_path / "s")
    assert found.snapshot.skills[0].state == "ready"
    with pytest.raises(SkillError, match="'keyword' where seek"):
        found.snapshot.tools["seek"].load()
    assert found.snapshot.skills[0].state == "failed"
    assert not found.snapshot.tools


@pytest.mark.parametrize(
    ("version", "specifier", "fits"),
    [
        ("3.11.7", ">=3.11", True),
        ("3.11.7", ">=3.12", False),
        ("3.9.1", ">=3.11", False),
        ("2.0", "<2", False),
        ("2.0", "<=2", True),
        ("1.9.5", ">=1.2,<2", True),
        ("1.4.9", "~=1.4", True),
        ("2.0", "~=1.4", False),
        ("1.5.0", "~=1.4.2", False),
        ("1.2.3", "==1.2.*", True),
        ("1.3", "==1.2.*", False),
        ("1.2", "!=1.2", False),
        ("1.2.0", "==1.2", True),
        ("1.2rc1", ">=1.2", True),
        ("1.2", "", True),
        ("5", "5", True),
    ],
)
def test_versions_are_compared_by_number(version, specifier, fits):
    assert requirements.satisfies(version, specifier) is fits


def test_what_is_missing_is_named_with_the_command_that_fixes_it():
    wanted = {
        "python": ">=99",
        "packages": ["no-such-thing>=2", "pytest"],
        "bins": ["no-such-bin", "sh"],
        "env": ["NO_KEY", "HERE"],
        "os": ["windows"] if sys.platform != "win32" else ["linux"],
    }
    found = requirements.unmet(wanted, {"HERE": "1", "PATH": "/usr/bin:/bin"})
    text = " | ".join(found)
    assert len(found) == 5
    assert "uv python install 99" in text
    assert "install 'no-such-thing>=2'" in text
    assert "pytest" not in text
    assert "no-such-bin" in text
    assert "export NO_KEY=…" in text


def test_an_unmet_requirement_makes_a_skill_ineligible_until_it_is_met(tmp_path):
    write(tmp_path / "s", one_tool("needs", top="requires = { env = ['A_KEY'] }"))
    environ: dict[str, str] = {}
    found = registry(tmp_path / "s", environ=environ)
    skill = found.snapshot.skills[0]
    assert skill.state == "ineligible"
    assert "export A_KEY=…" in skill.reason
    assert [tool.name for tool in skill.tools] == ["needs"]
    assert not found.snapshot.tools
    environ["A_KEY"] = "x"
    change = found.refresh()
    assert change is not None
    assert change.added == ("needs",)

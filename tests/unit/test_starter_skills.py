from __future__ import annotations

import json
import os
import socket
import stat
import tomllib
from inspect import signature
from pathlib import Path

import pytest
from starter_kit import PlainFiles, context, module

from runner import SkillContext, ToolError
from runner.errors import ConfigError
from runner.starter import (
    demo_documents,
    demo_script,
    starter_config,
    starter_skills,
    write_project,
)

extract = module("doc-config-extractor").extract_config_items
list_files, search_files = module("files", "find").list_files, module("files", "find").search_files
files = module("files")
TOOLS = [
    (folder.name, tool)
    for folder in sorted(starter_skills().iterdir())
    if (folder / "skill.toml").is_file()
    for tool in tomllib.loads((folder / "skill.toml").read_text())["tools"]
]


@pytest.fixture
def project(tmp_path):
    for name, text in {
        "README.md": "# Hello\nsee docs\n",
        "docs/setup.md": "API_KEY=a\nport: 80\n  API_KEY=a\napi_key=b\nAPI_KEY=c\n",
        "docs/deep/notes.txt": "nothing\n",
        ".git/config": "API_KEY=hidden\n",
        "node_modules/x/index.js": "API_KEY\n",
        ".runner/state.json": "API_KEY\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


# manifests


@pytest.mark.parametrize(("skill", "tool"), TOOLS, ids=[tool["name"] for _, tool in TOOLS])
def test_every_manifest_agrees_with_its_function(skill, tool):
    name, function = tool["entry"].split(":")
    taken = signature(getattr(module(skill, name), function)).parameters
    declared = tool["parameters"]["properties"]
    assert set(taken) - {"ctx"} == set(declared)
    required = {n for n, p in taken.items() if p.default is p.empty and n != "ctx"}
    assert required == set(tool["parameters"].get("required", []))
    for key, schema in declared.items():
        assert schema["description"]
        if "default" in schema:
            assert taken[key].default == schema["default"]


@pytest.mark.parametrize(("skill", "tool"), TOOLS, ids=[tool["name"] for _, tool in TOOLS])
def test_every_example_fits_its_own_schema(skill, tool):
    from jsonschema import Draft202012Validator

    assert tool["examples"]
    assert tool["permissions"]
    for example in tool["examples"]:
        Draft202012Validator(tool["parameters"]).validate(example)


# doc-config-extractor


def test_matching_lines_are_given_once_with_their_count(project):
    assert extract("docs/setup.md", "API_KEY", context(project)) == {
        "file": "docs/setup.md",
        "keyword": "API_KEY",
        "matches": [
            {"line": 1, "text": "API_KEY=a", "count": 2},
            {"line": 5, "text": "API_KEY=c", "count": 1},
        ],
        "total": 3,
    }


def test_at_most_thirty_different_lines_are_given_and_all_are_counted(tmp_path):
    (tmp_path / "long.txt").write_text("".join(f"key {n}\n" for n in range(40)))
    found = extract("long.txt", "key", context(tmp_path))
    assert len(found["matches"]) == 30
    assert found["total"] == 40
    assert "30 of 40" in found["note"]


def test_the_extractor_names_a_missing_and_a_binary_file(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(ToolError, match=r"no file 'no\.md'"):
        extract("no.md", "x", context(tmp_path))
    with pytest.raises(ToolError, match="not UTF-8"):
        extract("x.bin", "x", context(tmp_path))


# list_files, search_files


def test_listed_paths_can_be_passed_on_as_they_are(project):
    ctx = context(project)
    assert list_files(ctx).splitlines() == ["README.md", "docs/", "[3 hidden entries left out]"]
    assert list_files(ctx, "docs/").splitlines() == ["docs/deep/", "docs/setup.md"]
    assert extract(list_files(ctx, "docs").splitlines()[1], "port", ctx)["total"] == 1


@pytest.mark.parametrize("pattern", ["*.md", "**/*.md"])
def test_a_pattern_finds_files_in_all_folders(project, pattern):
    lines = list_files(context(project), ".", pattern, recursive=True).splitlines()
    assert lines[:2] == ["README.md", "docs/setup.md"]


def test_a_long_listing_is_cut_and_says_so(tmp_path):
    for number in range(250):
        (tmp_path / f"{number:03}.txt").touch()
    lines = list_files(context(tmp_path)).splitlines()
    assert len(lines) == 201
    assert "50 more" in lines[-1]


def test_an_empty_listing_says_why(tmp_path):
    assert list_files(context(tmp_path)) == "['.' is empty]"
    assert "matches '*.py'" in list_files(context(tmp_path), pattern="*.py")


def test_odd_file_names_are_shown_escaped(tmp_path):
    (tmp_path / "a\nb\x1b[31m.txt").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).touch()
    text = list_files(context(tmp_path))
    assert r"a\nb\x1b[31m.txt" in text
    text.encode()


def test_a_missing_path_names_what_is_near(project):
    ctx = context(project)
    with pytest.raises(
        ToolError, match=r"did you mean 'docs/setup\.md'\?.*'docs' holds: docs/deep/"
    ):
        files.read_file("docs/setpu.md", ctx)
    with pytest.raises(ToolError, match=r"did you mean 'docs/deep/notes\.txt'"):
        files.read_file("notes.txt", ctx)
    with pytest.raises(ToolError, match=r"no folder 'dcos'; did you mean 'docs'\?"):
        list_files(ctx, "dcos")


def test_a_folder_read_as_a_file_is_answered_with_what_it_holds(tmp_path):
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "m-1.txt").write_text("hello\n")
    ctx = context(tmp_path)
    with pytest.raises(ToolError, match=r"is a folder, not a file. Did you mean 'inbox/m-1.txt'"):
        files.read_file("inbox", ctx)
    (tmp_path / "inbox" / "m-2.txt").write_text("hello\n")
    with pytest.raises(ToolError, match=r"holds: inbox/m-1.txt, inbox/m-2.txt"):
        files.read_file("inbox", ctx)


def test_search_gives_path_line_and_text(project):
    ctx = context(project)
    assert search_files("API_KEY", ctx).splitlines()[0] == "docs/setup.md:1,3: API_KEY=a"
    assert "hidden" not in search_files("API_KEY", ctx)
    assert search_files("port", ctx, "docs/setup.md") == "docs/setup.md:2: port: 80"
    assert "3 files" in search_files("absent", ctx)
    assert "docs/setup.md:2: port: 80" in search_files("PORT", ctx)


def test_equal_lines_of_a_file_come_once_with_their_numbers(tmp_path):
    """A small model that was asked to drop duplicates copies what it is given."""
    (tmp_path / "a.log").write_text("x1\n" * 12 + "x2\n")
    (tmp_path / "b.log").write_text("x1\n")
    assert search_files("x", context(tmp_path)).splitlines() == [
        "a.log:1,2,3,4,5,6,7,8,9,10,… (12 lines): x1",
        "a.log:13: x2",
        "b.log:1: x1",
    ]


def test_search_skips_links_fifos_and_binary_files(tmp_path):
    (tmp_path / "plain").write_text("needle\n")
    (tmp_path / "blob").write_bytes(b"\0needle\n")
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    assert search_files("needle", context(tmp_path)) == "plain:1: needle"


def test_a_search_does_not_count_as_reading(project):
    ctx = context(project)
    search_files("Hello", ctx)
    assert ctx.stale("README.md")


# read_file, write_file, edit_file


def test_a_page_says_which_lines_it_is_and_where_to_go_on(tmp_path):
    (tmp_path / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 13)))
    (tmp_path / "longer.txt").write_text("line\n" * 600)
    ctx = context(tmp_path)
    cut = files.read_file("longer.txt", ctx).splitlines()
    assert cut[0] == "longer.txt, lines 1-500 of 600; read on with offset=501"
    asked = files.read_file("long.txt", ctx, limit=2).splitlines()
    assert asked == ["long.txt, lines 1-2 of 12", "1\tline 1", "2\tline 2"], "and no more wanted"
    last = files.read_file("long.txt", ctx, offset=12).splitlines()
    assert last == ["long.txt, lines 12-12 of 12", "12\tline 12"]
    with pytest.raises(ToolError, match="has 12 lines"):
        files.read_file("long.txt", ctx, offset=13)


def test_binary_files_and_pipes_are_not_read(tmp_path):
    (tmp_path / "x.png").write_bytes(b"\x89PNG\0\0")
    with pytest.raises(ToolError, match="binary file of 6 bytes"):
        files.read_file("x.png", context(tmp_path))


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_pipe_a_socket_and_a_device_are_named_and_never_opened(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / "odd"
    match kind:
        case "pipe":
            os.mkfifo(odd)  # opening it would wait for ever
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind("odd")  # the whole path may be too long for one
        case "device":
            make_device(odd)
    ctx = context(tmp_path)
    for use in (
        lambda: files.read_file("odd", ctx),
        lambda: files.write_file("odd", "x", ctx),
        lambda: files.edit_file("odd", "a", "b", ctx),
        lambda: files.edit_file("odd", "", "b", ctx),
        lambda: search_files("x", ctx, "odd"),
        lambda: list_files(ctx, "odd"),
    ):
        with pytest.raises(ToolError, match=rf"^'odd' is a {kind}, not a f.*it holds no text"):
            use()
    with pytest.raises(ToolError, match="'odd' is no text file"):
        extract("odd", "x", ctx)
    assert list_files(ctx) == "odd"
    assert "0 files" in search_files("x", ctx)
    assert not odd.is_file()


class Swapping(PlainFiles):
    """Once a name was resolved, its folder is swapped for a link to `outside`, as an attacker would."""

    def path(self, name, *, write):
        place = super().path(name, write=write)
        folder = self.root / "d"
        if not folder.is_symlink():
            folder.rename(self.root / "away")
            folder.symlink_to(self.root.parent / "outside")
        return place

    def read(self, name):
        raise ToolError("the runner's own opening is tested with it")

    def write(self, name, data):
        self.read(name)

    stale = read


@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: list_files(ctx, "d"),
        lambda ctx: list_files(ctx, "d/e"),
        lambda ctx: search_files("secret", ctx, "d"),
        lambda ctx: search_files("secret", ctx, "d/name"),
        lambda ctx: search_files("secret", ctx, "d/e"),
        lambda ctx: files.read_file("d/name", ctx),
        lambda ctx: files.read_file("d/gone", ctx),
        lambda ctx: files.read_file("d", ctx),
        lambda ctx: files.write_file("d/x/y/new", "x", ctx),
        lambda ctx: files.edit_file("d/name", "a", "b", ctx),
        lambda ctx: extract("d/gone", "a", ctx),
        lambda ctx: extract("d", "a", ctx),
    ],
)
def test_a_link_put_in_place_of_a_folder_leads_nowhere(tmp_path, use):
    for folder, text in (("workspace/d/e", "plain"), ("outside/e", "secret"), ("outside/only", "")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "../name").write_text(text)
        (tmp_path / folder / "deep").write_text(text)
    before = sorted((tmp_path / "outside").rglob("*"))
    root = tmp_path / "workspace"
    ctx = SkillContext(session_id="s1", workspace=root, files=Swapping(root))
    try:
        said = str(use(ctx))
    except ToolError as error:
        said = str(error)
    assert (root / "d").is_symlink()
    assert "only" not in said
    assert "deep" not in said
    assert "secret" not in said.replace("'secret'", "")
    assert sorted((tmp_path / "outside").rglob("*")) == before


def make_device(path):
    """Like /dev/null; skips where one may not make it."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError:
        pytest.skip("not allowed to make a device here")


def test_a_new_file_gets_its_folders(tmp_path):
    ctx = context(tmp_path)
    assert files.write_file("a/b/c.txt", "x\ny\n", ctx) == "created a/b/c.txt, 2 lines"
    assert (tmp_path / "a/b/c.txt").read_text() == "x\ny\n"
    with pytest.raises(ToolError, match=r"'a/b/c\.txt' is a file, not a folder"):
        files.write_file("a/b/c.txt/d", "x", ctx)


def test_an_unread_or_changed_file_is_not_overwritten(project):
    ctx = context(project)
    with pytest.raises(ToolError, match=r"not read.*Call read_file with path 'README\.md'"):
        files.write_file("README.md", "gone", ctx)
    files.read_file("README.md", ctx)
    (project / "README.md").write_text("# Somebody else\n")
    with pytest.raises(ToolError, match="changed since"):
        files.write_file("README.md", "gone", ctx)
    files.read_file("README.md", ctx)
    assert files.write_file("README.md", "mine\n", ctx) == "replaced README.md, 1 lines"


def test_an_edit_needs_no_reading_before_but_no_change_after_one_either(project):
    ctx = context(project)
    assert "at lines 2" in files.edit_file("docs/setup.md", "port: 80", "port: 81", ctx)
    with (project / "docs/setup.md").open("a") as file:
        file.write("somebody else\n")
    with pytest.raises(ToolError, match="changed since"):
        files.edit_file("docs/setup.md", "port: 81", "port: 82", ctx)


def test_an_empty_old_text_adds_lines_at_the_end(tmp_path):
    for before, after in [
        (b"one\n", b"one\ntwo\n"),
        (b"one", b"one\ntwo\n"),
        (b"one\r\n", b"one\r\ntwo\r\n"),
        (b"", b"two\n"),
    ]:
        (tmp_path / "a.txt").write_bytes(before)
        ctx = context(tmp_path)
        assert files.edit_file("a.txt", "", "two", ctx) == "added 1 lines at the end of a.txt"
        assert (tmp_path / "a.txt").read_bytes() == after


def test_an_edit_needs_exactly_one_match_unless_all_is_set(project):
    ctx = context(project)
    assert "at lines 2" in files.edit_file("docs/setup.md", "port: 80", "port: 81", ctx)
    with pytest.raises(ToolError, match="occurs 2 times, at lines 1, 3"):
        files.edit_file("docs/setup.md", "API_KEY=a", "X", ctx)
    with pytest.raises(ToolError, match="not read in this session"):
        files.edit_file("docs/setup.md", "API_KEY=a", "X", context(project), all=True)
    assert "2 replaced" in files.edit_file("docs/setup.md", "API_KEY=a", "X", ctx, all=True)
    assert (project / "docs/setup.md").read_text() == "X\nport: 81\n  X\napi_key=b\nAPI_KEY=c\n"


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("1\tAPI_KEY=a", "leave them out"),
        ("port:  80", r"line 2 begins like it: 'port: 80'"),
        ("porto: 80", r"most similar line is 'port: 80'"),
    ],
)
def test_an_edit_that_finds_nothing_says_what_is_close(project, old, hint):
    ctx = context(project)
    files.read_file("docs/setup.md", ctx)
    with pytest.raises(ToolError, match=hint):
        files.edit_file("docs/setup.md", old, "x", ctx)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\nc\n", b"\xef\xbb\xbfa\nx\ny\nc\n"),
        ("\ufeffa\nb\nc\n".encode("utf-16-le"), "\ufeffa\nx\ny\nc\n".encode("utf-16-le")),
        (b"\xe4\na\nb\nc\n", b"\xe4\na\nx\ny\nc\n"),
    ],
    ids=["CRLF", "UTF-8 with mark", "UTF-16", "Latin-1"],
)
def test_an_edit_keeps_line_endings_and_encoding(tmp_path, before, after):
    (tmp_path / "f").write_bytes(before)
    ctx = context(tmp_path)
    files.read_file("f", ctx)
    files.edit_file("f", "a\nb\n", "a\nx\ny\n", ctx)
    assert (tmp_path / "f").read_bytes() == after


# runner init and runner demo


def test_a_new_project_gets_every_skill_and_keeps_what_was_there(tmp_path):
    (tmp_path / "skills/shell").mkdir(parents=True)
    (tmp_path / "skills/shell/skill.py").write_text("# mine\n")
    kept: list[Path] = []
    written = write_project(tmp_path, kept.append)
    assert kept == [tmp_path / "skills/shell/skill.py"]
    assert kept[0].read_text() == "# mine\n"
    assert tmp_path / "config/runner.toml" in written
    assert {p.parent.name for p in written if p.name == "skill.toml"} == {s for s, _ in TOOLS}
    assert not [p for p in written if "__pycache__" in p.parts]
    assert write_project(tmp_path) == []


def test_a_project_that_cannot_be_written_is_a_config_error(tmp_path):
    (tmp_path / "config").write_text("a file")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_project(tmp_path)


def test_the_starter_config_is_toml():
    tomllib.loads(starter_config().read_text())


def test_the_package_list_names_every_package():
    root = Path(__file__).parents[2]
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {
        ".".join(p.parent.relative_to(root).parts) for p in (root / "runner").rglob("__init__.py")
    }
    assert {name for name in listed if not name.startswith("runner._starter.")} == there


def test_the_demo_answers_with_the_true_table():
    ctx = context(demo_documents())
    replies = json.loads(demo_script().read_text())["replies"]
    calls = [call for reply in replies for call in reply.get("calls", ())]
    tools = {
        "list_files": list_files,
        "search_files": search_files,
        "extract_config_items": extract,
    }
    results = [tools[call["name"]](**call["arguments"], ctx=ctx) for call in calls]
    mentioned = {line.split(":")[0] for line in results[1].splitlines()}
    assert [r["file"] for r in results[2:]] == sorted(mentioned)
    assert mentioned < set(results[0].splitlines())
    expected = [
        f"| {r['file']} | {m['line']} | {m['text'].replace('|', chr(92) + '|')} | {m['count']} |"
        for r in results[2:]
        for m in r["matches"]
    ]
    table = [line for line in replies[-1]["text"].splitlines() if line.startswith("|")]
    assert table[2:] == expected
    assert any(m["count"] > 1 for r in results[2:] for m in r["matches"])
    assert (
        f"in {sum(r['total'] for r in results[2:])} lines; {len(expected)} are"
        in replies[-1]["text"]
    )

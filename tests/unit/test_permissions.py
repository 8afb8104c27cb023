"""The policy: what may run, what is asked, what is denied."""

from __future__ import annotations

import pytest

from runner.calls.commands import is_simple, permits, touches
from runner.calls.permissions import Policy, Verdict, strictest
from runner.settings import PermissionsConfig
from runner.types import Entry, Flags, Tool

DEFAULTS = {"fs.read": "allow", "fs.write": "ask", "net": "ask", "exec": "ask", "env": "ask"}


def tool(name="t", *permissions, parameters=None, **flags):
    return Tool(
        name=name,
        description="",
        parameters=parameters or {},
        flags=Flags(permissions=permissions, **flags),
        load=lambda: Entry(print),
    )


RUN = tool("run_command", "exec")
WRITE = tool("write_file", "fs.write")


@pytest.fixture
def decide(tmp_path):
    def decide(policy, tool, arguments=None, **more):
        more.setdefault("workspace", tmp_path)
        return policy.decide(tool, arguments or {}, **more).action

    return decide


def test_a_tool_that_needs_nothing_may_run(decide):
    assert decide(Policy({}), tool()) == "allow"


@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
def test_a_capability_decides(decide, action):
    assert decide(Policy({**DEFAULTS, "net": action}), tool("t", "net")) == action


def test_the_strictest_need_decides(decide):
    policy = Policy({**DEFAULTS, "exec": "deny"})
    assert decide(policy, tool("t", "fs.read", "net")) == "ask"
    assert decide(policy, tool("t", "fs.read", "net", "exec")) == "deny"


def test_an_unknown_capability_is_denied_by_name(tmp_path):
    verdict = Policy(DEFAULTS).decide(tool("t", "fs.delete"), {}, workspace=tmp_path)
    assert verdict.action == "deny"
    assert "fs.delete" in verdict.reason


def test_a_capability_the_config_does_not_know_is_denied(decide):
    assert decide(Policy({}), tool("t", "net")) == "deny"


# ---- rules for tools


def test_a_rule_for_the_tool_stands_for_its_capability(decide):
    assert decide(Policy(DEFAULTS, {"write_file": "allow"}), WRITE) == "allow"
    assert decide(Policy(DEFAULTS, {"write_*": "allow"}), WRITE) == "allow"
    assert decide(Policy({**DEFAULTS, "fs.write": "allow"}, {"write_file": "ask"}), WRITE) == "ask"
    assert decide(Policy({}, {"t": "ask"}), tool()) == "ask"


def test_deny_is_final_wherever_it_stands(decide):
    assert (
        decide(Policy({**DEFAULTS, "fs.write": "deny"}, {"write_file": "allow"}), WRITE) == "deny"
    )
    both = {"write_file": "deny", "write_*": "allow"}
    assert decide(Policy({**DEFAULTS, "fs.write": "allow"}, both), WRITE) == "deny"


def test_ask_beats_allow_however_exact_the_rules_are(decide):
    policy = Policy(DEFAULTS, {"run_command": "ask", "run_command(git *)": "allow"})
    assert decide(policy, RUN, {"command": "git status"}) == "ask"


def test_a_reason_names_the_rule(tmp_path):
    verdict = Policy(DEFAULTS, {"send_note": "deny"}).decide(
        tool("send_note"), {}, workspace=tmp_path
    )
    assert verdict == Verdict(
        "deny", "send_note", 'the rule permissions.tools "send_note" says deny'
    )


def test_a_pattern_is_about_the_first_text_of_the_schema(decide):
    schema = {"properties": {"path": {}, "content": {}}}
    write = tool("write_file", "fs.write", parameters=schema)
    policy = Policy(DEFAULTS, {"write_file(out/*)": "allow"})
    assert decide(policy, write, {"content": "x", "path": "out/a"}) == "allow"
    assert decide(policy, write, {"content": "out/a", "path": "b"}) == "ask"
    assert decide(policy, write, {"content": "x", "path": "out/../b"}) == "ask"


# ---- commands

GIT = Policy(DEFAULTS, {"run_command(git *)": "allow"})


@pytest.mark.parametrize(
    "command", ["git status", "git", "git  log -5", 'git commit -m "a word"', "git add a.txt b.txt"]
)
def test_a_command_pattern_covers_simple_commands(decide, command):
    assert decide(GIT, RUN, {"command": command}) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf x",
        "git status && ls",
        "git status & ls",
        "git status | sh",
        "git log > /etc/x",
        "git log < x",
        "git $(ls)",
        "git `ls`",
        "git $HOME",
        "git status\nrm x",
        "git status\rrm x",
        "git status \\\n rm",
        'git commit -m "a; b"',
        "git -c alias.x='!sh' x",
        "(git status)",
        "git {a,b}",
        "'git' status",
        'g""it status',
        "PATH=. git status",
        "A=1 git status",
        "git 'unbalanced",
        "git\u00a0status",
        "git\x0bstatus",
        "gitx status",
        " ",
        "",
        "/tmp/git status",
        "./git status",
        "sudo git status",
        "echo git status",
        "git status #x",
    ],
)
def test_a_command_pattern_never_covers_more_than_it_says(decide, command):
    assert decide(GIT, RUN, {"command": command}) == "ask"


@pytest.mark.parametrize("command", [None, 5, ["git", "status"]])
def test_a_command_that_is_no_text_is_not_covered(decide, command):
    assert decide(GIT, RUN, {"command": command}) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf x",
        "ls; rm -rf x",
        "ls && rm x",
        "echo $(rm x)",
        "ls | xargs; rm x",
        "r''m x",
        '"rm" x',
        "A=1 rm x",
        "/bin/rm x",
        "ls\nrm x",
        "\\rm x",
    ],
)
def test_a_denied_command_is_found_in_every_part(decide, command):
    policy = Policy({**DEFAULTS, "exec": "allow"}, {"run_command(rm *)": "deny"})
    assert decide(policy, RUN, {"command": command}) == "deny"


def test_the_matchers_say_what_they_promise():
    assert is_simple("git status")
    assert not is_simple("git status; ls")
    assert permits("git *", "git")
    assert touches("rm *", "ls; rm x")
    assert not touches("rm *", "ls; rmdir x")


# ---- scopes


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("out/a.txt", "allow"),
        ("out/deep/a.txt", "allow"),
        ("./out/a.txt", "allow"),
        ("a.txt", "ask"),
        ("out/../a.txt", "ask"),
        ("../out/a.txt", "ask"),
        ("outer/a.txt", "ask"),
        ("out/secret/a.txt", "deny"),
    ],
)
def test_a_scope_names_places(decide, path, action):
    policy = Policy(DEFAULTS, scoped={"fs.write:out/**": "allow", "fs.write:out/secret/**": "deny"})
    assert decide(policy, WRITE, {"path": path}) == action
    assert decide(policy, WRITE, {"path": path, "content": "hello"}) == action


def test_every_text_counts_as_a_place_where_none_is_called_a_path(decide):
    policy = Policy(DEFAULTS, scoped={"fs.write:out/**": "allow"})
    assert decide(policy, WRITE, {"old": "out/a", "new": "out/b"}) == "allow"
    assert decide(policy, WRITE, {"old": "out/a", "new": "b"}) == "ask"
    assert decide(policy, WRITE, {"path": "out/a", "also": "b"}) == "ask"


def test_a_link_out_of_the_scope_is_seen_through(decide, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    policy = Policy(DEFAULTS, scoped={"fs.write:out/**": "allow"})
    assert decide(policy, WRITE, {"path": "out/link/a.txt"}) == "ask"


def test_a_scope_names_hosts_variables_and_programs(decide):
    policy = Policy(
        DEFAULTS,
        scoped={
            "net:127.0.0.1": "allow",
            "net:*.example.com": "allow",
            "env:MY_TOKEN": "allow",
            "exec:git": "allow",
            "net:evil.example.com": "deny",
        },
    )
    fetch = tool("fetch", "net")
    assert decide(policy, fetch, {"url": "http://127.0.0.1:80/x"}) == "allow"
    assert decide(policy, fetch, {"url": "https://API.example.com/x"}) == "allow"
    assert decide(policy, fetch, {"url": "https://evil.example.com/x"}) == "deny"
    assert decide(policy, fetch, {"url": "https://other.org"}) == "ask"
    assert decide(policy, fetch, {"urls": ["https://127.0.0.1", "https://other.org"]}) == "ask"
    assert decide(policy, tool("t", "net:api.example.com")) == "allow"
    assert decide(policy, tool("t", "env:MY_TOKEN")) == "allow"
    assert decide(policy, tool("t", "env:OTHER")) == "ask"
    assert decide(policy, RUN, {"command": "git status"}) == "allow"
    assert decide(policy, RUN, {"command": "git status; ls"}) == "ask"


def test_a_declared_scope_is_judged_as_declared(decide):
    policy = Policy(DEFAULTS, scoped={"fs.write:out/**": "allow"})
    assert decide(policy, tool("t", "fs.write:out/**")) == "allow"
    assert decide(policy, tool("t", "fs.write:elsewhere/**")) == "ask"


def test_a_denied_scope_beats_a_rule_for_the_tool(decide):
    policy = Policy(DEFAULTS, {"write_file": "allow"}, {"fs.write:secret/**": "deny"})
    assert decide(policy, WRITE, {"path": "secret/a"}) == "deny"
    assert decide(policy, WRITE, {"path": "open/a"}) == "allow"


# ---- special cases


@pytest.mark.parametrize(
    "path", ["skills/x/skill.py", "./skills/new", "a/../skills/x", "link/x", "skills"]
)
def test_writing_below_a_protected_folder_asks_whatever_the_policy_says(decide, tmp_path, path):
    (tmp_path / "skills").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "skills")
    policy = Policy({**DEFAULTS, "fs.write": "allow"}, {"write_file": "allow"})
    protected = [tmp_path / "skills"]
    assert decide(policy, WRITE, {"path": path}, protected=protected) == "ask"
    assert decide(policy, WRITE, {"path": str(tmp_path / path)}, protected=protected) == "ask"
    assert decide(policy, WRITE, {"nested": [{"to": path}]}, protected=protected) == "ask"
    assert decide(policy, WRITE, {"path": "notes.md"}, protected=protected) == "allow"
    assert decide(policy, tool("t", "fs.read"), {"path": path}, protected=protected) == "allow"
    named = Policy({**DEFAULTS, "fs.write": "allow"}, scoped={"fs.write:skills/**": "allow"})
    assert decide(named, WRITE, {"path": path}, protected=protected) == "allow"


def test_destroying_a_folder_that_holds_a_protected_one_asks(decide, tmp_path):
    policy = Policy({**DEFAULTS, "fs.write": "allow"})
    remove = tool("remove", "fs.write", destructive=True)
    assert decide(policy, remove, {"path": "."}, protected=[tmp_path / "skills"]) == "ask"
    assert decide(policy, WRITE, {"path": "."}, protected=[tmp_path / "skills"]) == "allow"


def test_a_destructive_call_found_in_text_asks(decide):
    destructive = tool("wipe", destructive=True)
    assert decide(Policy(DEFAULTS), destructive) == "allow"
    assert decide(Policy(DEFAULTS, {"wipe": "allow"}), destructive, extracted=True) == "ask"
    assert decide(Policy(DEFAULTS, {"wipe": "deny"}), destructive, extracted=True) == "deny"
    assert decide(Policy(DEFAULTS), tool(), extracted=True) == "allow"


def test_odd_arguments_raise_nothing(decide):
    policy = Policy(
        DEFAULTS, {"write_file(x)": "deny"}, {"fs.write:out/**": "allow", "net:x": "ask"}
    )
    for value in ("a\0b", "\n" * 2000, "x" * 5000, None, {"a": [[]]}, "http://[bad", "\ud800"):
        for one in (WRITE, RUN, tool("f", "net")):
            assert decide(policy, one, {"path": value}, protected=["skills"]) in ("ask", "allow")


def test_rules_that_match_nothing_are_told():
    policy = Policy(DEFAULTS, {"run_comand(git *)": "allow", "write_*": "ask", "zzz": "deny"})
    found = policy.unmatched(["run_command", "write_file"])
    assert len(found) == 2
    assert "did you mean run_command?" in found[0]
    assert "zzz" in found[1]


def test_an_agents_policy_only_narrows(decide):
    outer = Policy(DEFAULTS, {"run_command": "allow"}, {"net:127.0.0.1": "allow"})
    inner = outer.narrowed({"fs.write": "allow", "net": "deny"}, {"run_command(rm *)": "deny"})
    assert decide(inner, WRITE) == "ask"
    assert decide(inner, tool("t", "net")) == "deny"
    assert decide(inner, RUN, {"command": "ls"}) == "allow"
    assert decide(inner, RUN, {"command": "rm x"}) == "deny"
    assert decide(inner, tool("t", "fs.read")) == "allow"


def test_the_config_gives_the_policy(decide):
    config = PermissionsConfig(fs_write="allow", tools={"t": "deny"}, scoped={"net:x.org": "allow"})
    policy = Policy.of(config)
    assert decide(policy, WRITE) == "allow"
    assert decide(policy, tool()) == "deny"
    assert decide(policy, tool("u", "net:x.org")) == "allow"
    assert decide(policy, tool("u", "net")) == "ask"


def test_a_skill_is_told_the_scopes_it_may_use():
    policy = Policy(DEFAULTS, scoped={"net:127.0.0.1": "allow", "net:evil.org": "deny"})
    found = policy.scopes(("net:api.org", "net", "fs.write:out/**", "net:evil.org"))
    assert found == {"net": ("api.org", "127.0.0.1"), "fs.write": ("out/**",)}
    assert policy.narrowed({"net:api.org": "deny"}).scopes(("net:api.org",)) == {
        "net": ("127.0.0.1",)
    }


def test_the_strictest_verdict_wins():
    assert strictest(Verdict("allow"), Verdict("deny", "a"), Verdict("deny", "b")).capability == "a"

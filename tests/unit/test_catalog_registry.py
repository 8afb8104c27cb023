"""One snapshot of all skills: who wins, what is listed, and what a refresh changes."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import weakref

import pytest
from skill_kit import call, one_tool, registry, write

from runner.catalog.registry import Registry
from runner.errors import SkillError


def states(found: Registry) -> dict[str, str]:
    return {skill.location.name: skill.state for skill in found.snapshot.skills}


def test_nothing_is_imported_by_looking_at_skills(tmp_path):
    write(tmp_path / "s", one_tool("echo", "open('imported', 'w')\ndef echo():\n    pass\n"))
    before = set(sys.modules)
    found = registry(tmp_path / "s")
    assert states(found) == {"echo": "ready"}
    assert not [name for name in set(sys.modules) - before if "echo" in name]


def test_broken_skills_are_listed_with_reasons_and_hide_nobody(tmp_path):
    root = tmp_path / "skills"
    write(root, one_tool("a_ok") | one_tool("f_ok") | one_tool("b_syntax", "def b_syntax(:\n"))
    write(
        root,
        {
            "d-none/skill.py": "",
            "e-no-name/skill.toml": "manifest = 1\n",
            "bad/skill.toml": "name = [",
        },
    )
    write(
        root, {"wrong-case/Skill.TOML": "manifest = 1\n", "deep/inner/skill.toml": "manifest = 1\n"}
    )
    write(root, {"gone/skill.toml": one_tool("gone")["gone/skill.toml"], "empty/notes.txt": "x"})
    write(
        root,
        {
            ".hidden/skill.py": "",
            "node_modules/skill.py": "",
            "__pycache__/skill.py": "",
            "loose.py": "",
        },
    )
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "skill.toml")
    (root / "folder" / "skill.toml").mkdir(parents=True)
    (root / "loop").symlink_to(".")
    (root / "dangling").symlink_to("nowhere")
    found = registry(root)
    reasons = {
        skill.location.name: skill.reason
        for skill in found.snapshot.skills
        if skill.state == "failed"
    }
    says = {
        "b-syntax": "skills/b-syntax/skill.py:1: SyntaxError",
        "d-none": "skills/d-none: no manifest beside skill.py",
        "e-no-name": "skills/e-no-name/skill.toml: 'name' is missing",
        "bad": "skills/bad/skill.toml:1: is not valid TOML",
        "wrong-case": "skills/wrong-case/Skill.TOML: must be named skill.toml",
        "deep": "inner/skill.toml lies one level too deep",
        "gone": "there is no skill.py in the folder",
        "pipe": "skills/pipe/skill.toml: is not a regular file",
        "folder": "skills/folder/skill.toml: is not a regular file",
        "loop": "a link to a folder that contains it",
        "dangling": "a link that leads nowhere",
    }
    assert reasons.keys() == says.keys()
    assert {name: text for name, text in says.items() if text not in reasons[name]} == {}
    assert set(found.snapshot.tools) == {"a_ok", "f_ok"}
    json.dumps([skill.to_dict() for skill in found.snapshot.skills])


def test_sizes_and_links_of_files_are_bounded(tmp_path):
    root = tmp_path / "skills"
    write(root, one_tool("big"))
    with (root / "big" / "skill.toml").open("ab") as file:
        file.truncate(3_000_000_000)  # sparse: nothing is written
    write(root, {"secret/skill.py": ""})
    (root / "secret" / "skill.toml").symlink_to("/etc/passwd")
    write(root, one_tool("code"))
    with (root / "code" / "skill.py").open("ab") as file:
        file.truncate(5_000_000)
    began = time.monotonic()
    reasons = {s.location.name: s.reason for s in registry(root).snapshot.skills}
    assert time.monotonic() - began < 1
    assert "at most 256,000" in reasons["big"]
    assert "leads out of the skill's folder" in reasons["secret"]
    assert "root:" not in reasons["secret"]
    assert "at most 2,000,000" in reasons["code"]


@pytest.mark.parametrize("made", [("one", "two", "three"), ("three", "two", "one")])
def test_the_first_root_wins_whatever_was_made_first(made, tmp_path):
    for name in made:
        write(tmp_path / name, one_tool("deploy", f"def deploy():\n    return {name!r}\n"))
    for order in (("one", "two", "three"), ("two", "three", "one")):
        found = registry(*(tmp_path / name for name in order))
        assert call(found, "deploy") == order[0]
        assert [skill.state for skill in found.snapshot.skills] == ["ready", "shadowed", "shadowed"]
        assert all(
            f"{order[0]}/deploy/skill.toml" in skill.reason for skill in found.snapshot.skills[1:]
        )


def test_two_tools_of_one_name_leave_the_first_and_say_so(tmp_path):
    write(tmp_path / "s", one_tool("same", folder="a") | one_tool("same", folder="b"))
    found = registry(tmp_path / "s")
    assert found.snapshot.tools["same"].skill == "a"
    second = found.snapshot.skills[1]
    assert second.tools == ()
    assert "skill 'a' has one of that name" in second.reason


def test_a_name_that_is_not_its_folders_is_a_warning(tmp_path):
    files = one_tool("echo")
    write(tmp_path / "s", {name.replace("echo/", "other/"): text for name, text in files.items()})
    skill = registry(tmp_path / "s").snapshot.skills[0]
    assert (skill.name, skill.state) == ("echo", "ready")
    assert "differs from its folder 'other'" in skill.warnings[0]


def test_a_disabled_skill_that_is_broken_is_disabled(tmp_path):
    write(tmp_path / "s", {"echo/skill.toml": "name = [", "echo/skill.py": ""})
    assert states(registry(tmp_path / "s", disabled={"echo"})) == {"echo": "disabled"}


def test_a_disabled_skill_is_listed_and_not_offered(tmp_path):
    write(tmp_path / "s", one_tool("echo"))
    found = registry(tmp_path / "s", disabled={"echo"})
    assert states(found) == {"echo": "disabled"}
    assert not found.snapshot.tools


def test_origin_tells_the_projects_own_skills_from_installed_ones(tmp_path):
    project = tmp_path / "project"
    write(project / "skills", one_tool("own"))
    write(tmp_path / "home" / "skills", one_tool("theirs"))
    write(tmp_path / "shared", one_tool("linked"))
    (project / "skills" / "linked").symlink_to(tmp_path / "shared" / "linked")
    found = registry(project / "skills", tmp_path / "home" / "skills")
    assert {name: tool.origin for name, tool in found.snapshot.tools.items()} == {
        "own": "project",
        "linked": "installed",
        "theirs": "installed",
    }
    assert "link to" in found.snapshot.skill("linked").warnings[0]


def test_a_root_that_is_missing_or_a_file_is_simply_empty(tmp_path):
    (tmp_path / "file").write_text("x")
    assert registry(tmp_path / "none", tmp_path / "file").snapshot.skills == ()


def test_a_refresh_without_a_change_of_content_changes_nothing(tmp_path):
    write(tmp_path / "s", one_tool("echo"))
    found = registry(tmp_path / "s")
    before = found.snapshot
    os.utime(tmp_path / "s" / "echo" / "skill.py")
    (tmp_path / "s" / "echo" / "skill.toml").chmod(0o600)
    assert found.refresh() is None
    assert found.refresh([tmp_path / "s" / "echo"]) is None
    assert found.snapshot is before


def test_a_change_names_what_was_added_updated_and_removed(tmp_path):
    root = tmp_path / "s"
    write(root, one_tool("stays") | one_tool("edited") | one_tool("goes"))
    found = registry(root)
    told = []
    found.subscribe(told.append)
    write(root, one_tool("new") | one_tool("edited", "def edited():\n    return 2\n"))
    for file in (root / "goes").iterdir():
        file.unlink()
    (root / "goes").rmdir()
    change = found.refresh()
    assert change is not None
    assert (change.added, change.updated, change.removed) == (("new",), ("edited",), ("goes",))
    assert dict(change.failed) == {}
    assert told == [change]
    assert change.to_dict()["generation"] == found.snapshot.generation == 2
    assert found.snapshot.skill("edited").generation == 2
    assert found.snapshot.skill("stays").generation == 1


def test_an_old_snapshot_keeps_its_version_while_a_new_one_runs(tmp_path):
    root = tmp_path / "s"
    write(root, one_tool("pick", "def pick():\n    return 1\n"))
    found = registry(root)
    old = found.snapshot
    write(root, one_tool("pick", "def pick():\n    return 2\n"))
    found.refresh()
    assert old.tools["pick"].load().function() == 1
    assert call(found, "pick") == 2


def test_a_version_nobody_uses_any_more_is_freed(tmp_path):
    root = tmp_path / "s"
    write(root, one_tool("pick", "BIG = bytearray(1_000_000)\ndef pick():\n    return 1\n"))
    found = registry(root)
    function = weakref.ref(found.snapshot.tools["pick"].load().function.__wrapped__)
    for version in range(2, 6):
        write(
            root,
            one_tool("pick", f"BIG = bytearray(1_000_000)\ndef pick():\n    return {version}\n"),
        )
        found.refresh()
        assert call(found, "pick") == version
    gc.collect()
    assert function() is None
    assert len([name for name in sys.modules if name.startswith("_skill_pick_")]) == 2


def test_an_import_error_of_a_used_skill_keeps_the_last_good_version(tmp_path):
    root = tmp_path / "s"
    write(root, one_tool("pick", "def pick():\n    return 1\n"))
    found = registry(root)
    assert call(found, "pick") == 1
    write(root, one_tool("pick", "import no_such_package\ndef pick():\n    return 2\n"))
    change = found.refresh()
    assert change is not None
    assert "no_such_package" in change.failed["pick"]
    assert "skill.py:1" in change.failed["pick"]
    skill = found.snapshot.skill("pick")
    assert skill.state == "stale"
    assert call(found, "pick") == 1
    assert found.refresh() is None
    write(root, one_tool("pick", "def pick():\n    return 1\n"))
    change = found.refresh()
    assert change is not None
    assert change.updated == ("pick",)
    assert found.snapshot.skill("pick").state == "ready"


def test_a_manifest_that_breaks_keeps_the_last_good_tools_and_their_restrictions(tmp_path):
    root = tmp_path / "s"
    write(root, one_tool("pick", flags="destructive = true\npermissions = ['fs.write']"))
    found = registry(root)
    text = (root / "pick" / "skill.toml").read_text()
    write(root, {"pick/skill.toml": text.replace("'fs.write']", "'fs.write'")})
    found.refresh()
    tool = found.snapshot.tools["pick"]
    assert found.snapshot.skills[0].state == "stale"
    assert tool.flags.destructive
    assert tool.flags.permissions == ("fs.write",)


def test_a_skill_whose_manifest_is_deleted_is_out(tmp_path):
    root = tmp_path / "s"
    write(root, one_tool("pick"))
    found = registry(root)
    (root / "pick" / "skill.toml").unlink()
    change = found.refresh()
    assert change is not None
    assert change.removed == ("pick",)
    assert "no manifest" in change.failed["pick"]


def test_a_failure_on_first_use_is_the_skills_state_until_its_content_changes(tmp_path):
    root = tmp_path / "s"
    write(
        root,
        one_tool("quitter", "import sys\nsys.exit(3)\ndef quitter():\n    pass\n")
        | one_tool("fine"),
    )
    found = registry(root)
    told = []
    found.subscribe(told.append)
    tool = found.snapshot.tools["quitter"]
    for _ in range(2):
        with pytest.raises(
            SkillError, match=r"skill quitter failed to load: skill\.py:2: SystemExit: 3"
        ):
            tool.load()
    assert states(found) == {"fine": "ready", "quitter": "failed"}
    assert [list(change.failed) for change in told] == [["quitter"]]
    assert found.refresh() is None
    write(root, one_tool("quitter", "def quitter():\n    return 1\n"))
    found.refresh()
    assert call(found, "quitter") == 1


def test_a_skill_with_hooks_is_imported_before_it_takes_over(tmp_path):
    root = tmp_path / "s"
    body = "import pluggy\n@pluggy.HookimplMarker('runner')\ndef pre_tool_use(call):\n    pass\ndef guard():\n    return 1\n"
    write(root, one_tool("guard", body, top="hooks = ['pre_tool_use']"))
    found = registry(root, hookspecs={"pre_tool_use": ("call",)})
    assert found.snapshot.skills[0].load_module().guard() == 1
    write(root, one_tool("guard", body + "1/0\n", top="hooks = ['pre_tool_use']"))
    found.refresh()
    assert found.snapshot.skills[0].state == "stale"


def test_readers_always_see_a_whole_snapshot_while_it_is_replaced(tmp_path):
    root = tmp_path / "s"

    def both(version: int) -> dict[str, str]:
        return one_tool("a", f"def a():\n    return {version}\n") | one_tool(
            "b", f"def b():\n    return {version}\n"
        )

    write(root, both(0))
    found = registry(root)
    stop = threading.Event()
    wrong: list[object] = []

    def look() -> None:
        while not stop.is_set():
            snapshot = found.snapshot
            if set(snapshot.tools) != {"a", "b"} or len(snapshot.skills) != 2:
                wrong.append(snapshot)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for version in range(1, 15):
        write(root, both(version))
        found.refresh()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert (call(found, "a"), call(found, "b")) == (14, 14)


def test_a_large_catalogue_is_examined_in_parts_and_ends_up_the_same(tmp_path):
    root = tmp_path / "s"
    for number in range(320):
        body = "def f(:\n" if number == 310 else ""
        write(root, one_tool(f"t{number}", body))
    found = registry(root)
    assert found.unexamined == 320 - 200
    assert set(states(found).values()) == {"ready"}
    change = found.refresh(())
    assert found.unexamined == 0
    assert change is not None
    assert list(change.failed) == ["t310"]


def test_closing_lets_every_version_go(tmp_path):
    done = tmp_path / "done"
    write(
        tmp_path / "s",
        one_tool(
            "echo",
            f"def echo():\n    return 1\ndef teardown():\n    open({str(done)!r}, 'w').close()\n",
        ),
    )
    found = registry(tmp_path / "s")
    assert call(found, "echo") == 1
    found.close()
    deadline = time.monotonic() + 5
    while not done.exists() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.005)
    assert done.exists()
    assert not found.snapshot.tools

"""What the doctor makes of clocks, mounts, permissions and stray files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from skill_kit import one_tool, write

from runner.catalog.filesystems import silent_mount, too_many
from runner.cli import surroundings
from runner.cli.doctor import _skills
from runner.config import config_from


def config(tmp_path, **tables):
    paths = {"workspace": str(tmp_path), "state": str(tmp_path / "state"), "skills": []}
    return config_from({**tables, "paths": {**paths, **tables.get("paths", {})}}, project=tmp_path)


def levels(checks) -> dict[str, str]:
    return {check.name: check.level for check in checks}


@pytest.mark.parametrize(
    ("now", "level"),
    [(0, "error"), (1_600_000_000, "error"), (1_800_000_000, "ok"), (4e9, "error")],
)
def test_a_clock_with_a_wrong_year_is_an_error(now, level):
    check = surroundings.clock(now)
    assert (check.level, bool(check.fix)) == (level, level != "ok")


@pytest.mark.parametrize(("after", "told"), [(100.2, False), (160.0, True), (40.0, True)])
def test_a_clock_that_was_set_meanwhile_is_told(after, told):
    checks = list(surroundings.jumped(100.0, after))
    assert [check.level for check in checks] == ["warning"] * told
    assert not told or f"{after - 100:+.1f} s" in checks[0].found


@pytest.mark.parametrize(
    ("release", "on_windows", "level", "says"),
    [
        ("6.8.0-40-generic", [], "", ""),
        ("5.15.153.1-microsoft-standard-WSL2", [], "ok", "WSL 2"),
        (
            "5.15.153.1-microsoft-standard-WSL2",
            ["workspace"],
            "warning",
            "without events: workspace",
        ),
        ("4.4.0-19041-Microsoft", [], "warning", "WSL 1"),
    ],
)
def test_windows_subsystem_for_linux_is_looked_at(release, on_windows, level, says):
    checks = list(surroundings.wsl(release, on_windows))
    assert levels(checks) == ({"wsl": level} if level else {})
    assert says in "".join(check.found for check in checks)


def test_a_windows_folder_under_wsl_delivers_no_events(tmp_path):
    mounts = "rootfs / ext4 rw 0 0\nC:\\134 /mnt/c 9p rw 0 0\ndrvfs /mnt/d drvfs rw 0 0\n"
    assert silent_mount("/mnt/c/work/skills", mounts) == "9p"
    assert silent_mount("/mnt/d/skills", mounts) == "drvfs"
    assert silent_mount("/mnt/data/skills", mounts) == ""


@pytest.mark.parametrize(
    ("folders", "limit", "told"), [(8, 10, False), (9, 10, True), (9, 0, False)]
)
def test_watches_are_held_against_the_systems_limit(folders, limit, told):
    assert bool(too_many(folders, limit)) == told


def test_each_folder_below_the_skills_takes_a_watch(tmp_path):
    for name in ("a/b", "a/c", ".git/x", "node_modules"):
        (tmp_path / "skills" / name).mkdir(parents=True)
    (check,) = surroundings.watch(config(tmp_path, paths={"skills": [str(tmp_path / "skills")]}))
    assert check.level == "ok"
    assert "7 folders" in check.found


@pytest.mark.parametrize("backend", ["poll", "off"])
def test_a_backend_that_was_chosen_is_no_fault(backend, tmp_path):
    (check,) = surroundings.watch(config(tmp_path, watch={"backend": backend}))
    assert (check.level, check.found) == ("ok", f"{backend}, as configured")


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_state_that_others_can_read_or_write_is_told_with_the_command_that_closes_it(tmp_path):
    state = tmp_path / "state"
    assert levels(surroundings.folders(config(tmp_path)))["state"] == "ok"
    state.mkdir(mode=0o700)
    file = state / "s1.jsonl"
    file.write_text("x")
    file.chmod(0o600)
    assert levels(surroundings.folders(config(tmp_path)))["state"] == "ok"
    for path, mode in ((file, 0o644), (state, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        check = list(surroundings.folders(config(tmp_path)))[1]
        assert check.level == "warning"
        subprocess.run(check.fix, shell=True, check=True)
        assert levels(surroundings.folders(config(tmp_path)))["state"] == "ok"
        path.chmod(before)


def test_a_workspace_that_is_missing_and_a_state_that_is_a_file_are_errors(tmp_path):
    (tmp_path / "state").write_text("x")
    made = config(tmp_path, paths={"workspace": str(tmp_path / "gone")})
    checks = list(surroundings.folders(made))
    assert levels(checks) == {"workspace": "error", "state": "error"}
    assert all(check.fix for check in checks)


def test_a_pth_file_that_no_package_owns_is_named(tmp_path):
    place = tmp_path / "site-packages"
    owned = place / "thing-1.0.dist-info"
    owned.mkdir(parents=True)
    (owned / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
    (owned / "RECORD").write_text("thing.pth,,\nthing-1.0.dist-info/RECORD,,\n")
    for name in ("thing.pth", "stray.pth"):
        (place / name).write_text("import os\n")
    code = f"import sys; sys.path.append({str(place)!r}); from runner.cli.surroundings import stray_pth_files as s; print(sorted(s()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"'{place}/stray.pth'" in done.stdout
    assert "thing.pth" not in done.stdout


def test_isolation_says_what_confines(tmp_path):
    (check,) = surroundings.isolation(config(tmp_path))
    assert check.name == "isolation"
    assert check.level == "ok" or check.fix


def test_a_skill_that_the_config_disables_is_nothing_to_mend(tmp_path):
    write(tmp_path / "skills", {**one_tool("here"), **one_tool("gone")})
    paths = {"skills": [str(tmp_path / "skills")]}
    found = config(tmp_path, paths=paths, plugins={"disabled": ["gone", "her"]})
    said = {check.found: check.level for check in _skills(found)}
    assert said == {
        "1 ready with 1 tools": "ok",
        "gone is disabled: disabled by [plugins] disabled in the config": "ok",
        "plugins.disabled: there is no skill and no plugin 'her'; did you mean 'here'?": "warning",
    }

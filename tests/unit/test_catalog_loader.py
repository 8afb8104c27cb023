"""Importing skill code: private packages, from source, once, in time, and gone when unused."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
from skill_kit import call, one_tool, registry, write

from runner import SkillContext
from runner.catalog.loader import Generation, load_entry
from runner.errors import SkillError


def generation(body: str, tmp_path: Path, **more: str) -> Generation:
    files = {
        "skill.py": body.encode(),
        **{f"{k.replace('__', '/')}.py": v.encode() for k, v in more.items()},
    }
    return Generation("demo", 1, str(tmp_path), files)


def until(condition, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.005)
    return bool(condition())


def test_a_function_is_imported_on_first_use_and_only_once(tmp_path):
    count = tmp_path / "count"
    made = generation(
        f"with open({str(count)!r}, 'a') as f:\n    f.write('x')\ndef f():\n    return 1\n",
        tmp_path,
    )
    assert not made.loaded
    assert not count.exists()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(made.entry("skill:f"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.function() for entry in found] == [1] * 8
    assert count.read_text() == "x"


def test_two_skills_may_both_have_a_helper(tmp_path):
    for name in ("a", "b"):
        write(
            tmp_path / "skills",
            {
                **one_tool(name, f"from . import helper\ndef {name}():\n    return helper.WHO\n"),
                f"{name}/helper.py": f"WHO = {name!r}\n",
            },
        )
    made = registry(tmp_path / "skills")
    assert (call(made, "a"), call(made, "b")) == ("a", "b")
    assert "helper" not in sys.modules


@pytest.mark.parametrize(
    "line",
    [
        "from . import helper",
        "import helper",
        "from helper import WHO\nclass helper:\n    WHO = WHO",
        "import helper as helper",
        "import os, helper",
        "import pkg.deep\nclass helper:\n    WHO = pkg.deep.WHO",
        "import pkg.deep as d\nclass helper:\n    WHO = d.WHO",
        "from pkg import deep as helper",
        "from pkg.deep import *\nclass helper:\n    WHO = WHO",
    ],
)
def test_sibling_modules_are_the_skills_own_however_they_are_imported(line, tmp_path):
    made = generation(
        f"{line}\ndef f():\n    return helper.WHO\n",
        tmp_path,
        helper="WHO = 'own'\n",
        pkg__deep="WHO = 'own'\n",
    )
    assert made.entry("skill:f").function() == "own"


def test_a_sibling_imported_inside_a_function_and_from_below_is_found(tmp_path):
    made = generation(
        "def f():\n    import helper\n    from pkg import deep\n    return helper.WHO, deep.get()\n",
        tmp_path,
        helper="WHO = 'own'\n",
        pkg____init__="",
        pkg__deep="import helper\ndef get():\n    return helper.WHO\n",
    )
    assert made.entry("skill:f").function() == ("own", "own")


def test_a_file_named_like_a_standard_module_does_not_hide_it(tmp_path):
    made = generation(
        "import json\nfrom . import json as mine\ndef f():\n    return json.dumps(mine.X)\n",
        tmp_path,
        json="X = [1]\n",
    )
    assert made.entry("skill:f").function() == "[1]"


def test_dataclasses_and_annotations_resolve_because_the_module_is_registered(tmp_path):
    body = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass P:\n    x: int\ndef f():\n    return P(3).x\n"
    )
    assert generation(body, tmp_path).entry("skill:f").function() == 3


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import sys\nsys.exit(3)\n", "skill.py:2: SystemExit: 3"),
        ("raise KeyboardInterrupt\n", "skill.py:1: KeyboardInterrupt"),
        (
            "x = 1\nimport no_such_package\n",
            "skill.py:2: ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("from . import gone\n", "cannot import name 'gone'"),
        ("def f(:\n", "skill.py:1: SyntaxError"),
        ("def f():\n    return 1\n1/0\n", "skill.py:3: ZeroDivisionError"),
        (
            "class Mute(BaseException):\n    def __str__(self):\n        raise SystemExit\nraise Mute\n",
            "skill.py:4: Mute: <unprintable>",
        ),
        ("f = 3\n", "something else than a function"),
        ("x = 3\n", "has no function 'f'"),
    ],
    ids=[
        "exit",
        "interrupt",
        "missing package",
        "missing sibling",
        "syntax",
        "raises",
        "says nothing",
        "no callable",
        "no function",
    ],
)
def test_whatever_a_module_does_is_a_load_error_with_file_and_line(body, says, tmp_path):
    made = generation(body, tmp_path)
    with pytest.raises(SkillError, match="skill demo failed to load") as caught:
        made.entry("skill:f")
    assert says in str(caught.value)
    assert "_skill_" not in str(caught.value)


def test_an_import_that_hangs_ends_in_time(tmp_path):
    made = generation("import threading\nthreading.Event().wait(5)\n", tmp_path)
    made.seconds = 0.1
    began = time.monotonic()
    with pytest.raises(SkillError, match=r"did not end within 0\.1 s"):
        made.module("skill")
    assert time.monotonic() - began < 2


def test_a_failed_import_leaves_nothing_registered(tmp_path):
    made = generation("from . import helper\n1/0\n", tmp_path, helper="")
    with pytest.raises(SkillError):
        made.entry("skill:f")
    assert not [name for name in sys.modules if name.startswith(made.package)]


def test_a_generation_is_forgotten_when_its_last_holder_goes(tmp_path):
    done = tmp_path / "torn-down"
    made = generation(
        f"def f():\n    return 1\ndef teardown():\n    open({str(done)!r}, 'w').close()\n", tmp_path
    )
    entry = made.entry("skill:f")
    package, alive = made.package, weakref.ref(made)
    del made
    gc.collect()
    assert alive() is not None
    assert f"{package}.skill" in sys.modules
    assert entry.function() == 1
    del entry
    assert until(lambda: alive() is None)
    assert until(lambda: not [name for name in list(sys.modules) if name.startswith(package)])
    assert until(done.exists)


def test_a_call_in_flight_may_still_import_its_own_siblings(tmp_path):
    made = generation(
        "def f():\n    from . import late\n    return late.X\n", tmp_path, late="X = 'old'\n"
    )
    entry = made.entry("skill:f")
    del made
    gc.collect()
    assert entry.function() == "old"


def test_the_context_parameter_is_found_by_annotation_or_name(tmp_path):
    body = (
        "from __future__ import annotations\nfrom runner import SkillContext\n"
        "def a(x, c: SkillContext):\n    pass\ndef b(ctx, x):\n    pass\ndef c(x):\n    pass\nasync def d():\n    pass\n"
    )
    made = generation(body, tmp_path)
    entries = [made.entry(f"skill:{name}") for name in "abcd"]
    assert [e.context_parameter for e in entries] == ["c", "ctx", None, None]
    assert [e.asynchronous for e in entries] == [False, False, False, True]
    assert SkillContext.__name__ == "SkillContext"


def test_a_process_without_a_registry_loads_a_function_from_its_folder(tmp_path):
    write(
        tmp_path,
        one_tool("echo", "from . import part\ndef echo():\n    return part.X\n")
        | {"echo/part.py": "X = 5\n"},
    )
    assert load_entry(tmp_path / "echo", "skill:echo").function() == 5


SAME_SECOND = """
import os, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from skill_kit import call, one_tool, registry, write
root = Path({root!r})
write(root, one_tool("pick", "from . import part\\ndef pick():\\n    return 0, part.V\\n") | {{"pick/part.py": "V = 0\\n"}})
stamp = time.time_ns()
found = registry(root)
for n in range(1, 21):
    assert call(found, "pick") == (n - 1, n - 1), n
    for name, text in (("skill.py", f"from . import part\\ndef pick():\\n    return {{n}}, part.V\\n".replace("{{n}}", str(n))), ("part.py", f"V = {{n}}\\n")):
        (root / "pick" / name).write_text(text)
        os.utime(root / "pick" / name, ns=(stamp, stamp))
    found.refresh()
assert not list(root.rglob("*.pyc"))
print("fresh")
"""


def test_an_edit_of_the_same_second_is_always_seen_where_python_writes_bytecode(tmp_path):
    import os

    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    script = SAME_SECOND.format(tests=str(Path(__file__).parents[1]), root=str(tmp_path / "skills"))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.stdout == "fresh\n", done.stderr

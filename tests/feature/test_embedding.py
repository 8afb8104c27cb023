"""The runner as a library: every example of docs/embedding.md as a user runs it, and what goes wrong."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import subprocess
import sys
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trajectories as t

import runner as package
from runner import (
    ConfigError,
    Event,
    PluginError,
    RecordError,
    Runner,
    ScriptedModel,
    SessionError,
    SkillError,
    TurnResult,
    hookimpl,
)
from runner.config import load_config

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/embedding.md").read_text(encoding="utf-8")
EXAMPLES = {
    block.partition("\n")[0].removeprefix("# "): block
    for block in re.findall(r"^```python\n(# \w+\.py\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
}


@dataclass(frozen=True)
class Run:
    """What an example's model says and what the example then prints."""

    replies: list[Any]
    prints: str
    more: dict[str, Any] = field(default_factory=dict)


def write(path: str) -> dict[str, Any]:
    return t.call("write_file", path=path, content="bolts")


RUNS = {
    "script.py": Run(
        [t.call("search_files", text="API_KEY"), t.say("README.md does.")],
        "completed after 2 iterations and 240 tokens\nREADME.md does.",
    ),
    "functions.py": Run(
        [t.call("in_stock", part="bolts"), t.call("reserve", part="bolts", pieces=20), t.say("Reserved.")],
        "Reserved.",
    ),
    "conversation.py": Run(
        [t.call("list_files", path="."), t.say("README.md"), t.say("One.")],
        "call list_files {'path': '.'}\nREADME.md\nOne.",
    ),
    "steering.py": Run(
        [t.call("count", to=60), t.say("J'ai compté."), t.call("count", to=59), t.say("never")],
        "J'ai compté.\ncancelled",
    ),
    "approver.py": Run(
        [write("out/list.txt"), write("notes.txt"), t.say("One of them.")],
        "the model wants write_file on out/list.txt\nthe model wants write_file on notes.txt\nOne of them.",
    ),
    "several.py": Run(
        [{"text": "said", "delay": 0.3}],
        "{'limit': 2, 'used': 2, 'waiting': 3}\n['user-0', 'user-1', 'user-2', 'user-3', 'user-4']",
        {"repeat_last": True},
    ),
    "memory.py": Run([], "['The user prefers tables.'] True"),
    "errors.py": Run(
        [],
        "2 problems: --set limits.slots: must be at least 0, not -1\nsession 'one' is in use\nSessionError",
    ),
    "plugin.py": Run([t.call("send_mail", to="Ada", text="hi"), t.say("A draft.")], "A draft.\n1"),
}  # fmt: skip


def project(folder: Path, replies: list[Any], **script: Any) -> Path:
    """A project of a user: config, the starter skills, a document and a scripted model."""
    (folder / "config").mkdir()
    (folder / "config/runner.toml").write_text(
        f'[model]\nname = "scripted/script.json"\n[paths]\nskills = ["{ROOT / "skills"}"]\n'
    )
    (folder / "README.md").write_text("Set API_KEY first.\n")
    (folder / "script.json").write_text(json.dumps({"replies": replies, **script}))
    for name, text in EXAMPLES.items():
        (folder / name).write_text(text.replace("ollama/qwen2.5:7b", "scripted/script.json"))
    return folder


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in the project; a warning is an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_every_example_is_run_here():
    assert set(EXAMPLES) == {*RUNS, "web.py"}


@pytest.mark.parametrize("name", RUNS)
def test_an_example_prints_what_it_should(tmp_path, name):
    run = RUNS[name]
    done = python(project(tmp_path, run.replies, **run.more), name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == run.prints
    assert "Traceback" not in done.stderr


def test_the_example_with_functions_changed_the_stock_and_the_approver_one_file(tmp_path):
    run = RUNS["approver.py"]
    python(project(tmp_path, run.replies), "approver.py")
    assert (tmp_path / "out/list.txt").read_text() == "bolts"
    assert not (tmp_path / "notes.txt").exists()


def test_the_public_api_is_typed(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    folder = project(tmp_path, [])
    (folder / "more.py").write_text(TYPED)
    names = [name for name in (*EXAMPLES, "more.py") if name != "web.py"]
    (folder / "mypy.ini").write_text(
        f"[mypy]\nstrict = True\nfollow_imports = silent\nmypy_path = {ROOT}\n"
    )
    done = python(folder, "-m", "mypy", *names)
    assert done.returncode == 0, done.stdout
    assert (ROOT / "runner/py.typed").is_file()


TYPED = """
import asyncio
from typing import assert_type

from runner import Decision, Event, Memory, Runner, RunnerError, Session, ToolCall, ToolResult, TurnResult, hookimpl


class Watch:
    @hookimpl
    async def post_tool_use(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
        return None

    @hookimpl
    def pre_tool_use(self, call: ToolCall) -> Decision | None:
        return Decision("allow")


async def main() -> None:
    async with Runner.from_config(None, plugins=[Watch()]) as runner:
        assert_type(await runner.run("go"), TurnResult)
        assert_type(await runner.recall("x"), list[Memory])
        async with runner.session("a") as session:
            assert_type(session, Session)
            async for event in session.stream("go"):
                assert_type(event, Event)
        opened = await runner.session("b")
        assert_type(opened, Session)
        result = await opened.run("go")
        if result.status == "completed":
            print(result.usage.total)


try:
    asyncio.run(main())
except RunnerError as error:
    print(error)
"""


# The web server


STUB = """
class FastAPI:
    def __init__(self, lifespan): self.lifespan, self.routes = lifespan, {}
    def get(self, path): return lambda function: self.routes.setdefault(path, function)
"""
STUB_RESPONSES = """
class StreamingResponse:
    def __init__(self, content, media_type): self.content, self.media_type = content, media_type
"""
SERVED = """
import asyncio, json, web

async def main():
    async with web.app.lifespan(web.app):
        response = await web.app.routes["/ask"](goal="hello", session="s1")
        assert response.media_type == "text/event-stream"
        events = [line async for line in response.content]
        print(json.loads(events[-1].split("data: ")[1])["answer"])
        response = await web.app.routes["/ask"](goal="hang", session="s1")
        async for line in response.content:
            if "model.requested" in line:
                break
        await response.content.aclose()
        print(web.runner.status()["sessions"], web.runner.status()["slots"]["used"])

asyncio.run(main())
"""


def test_the_web_example_streams_and_lets_go_of_a_client_that_leaves(tmp_path):
    folder = project(tmp_path, [t.say("hello yourself"), {"hang": True}])
    (folder / "fastapi").mkdir()
    (folder / "fastapi/__init__.py").write_text(STUB)
    (folder / "fastapi/responses.py").write_text(STUB_RESPONSES)
    done = python(folder, "-c", SERVED)
    assert done.stdout.splitlines() == ["hello yourself", "[] 0"], done.stderr


REALLY_SERVED = """
import asyncio, httpx, web

async def main():
    async with web.lifespan(web.app):
        transport = httpx.ASGITransport(app=web.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            reply = await client.get("/ask", params={"goal": "hello", "session": "s1"})
            print(reply.headers["content-type"].split(";")[0], reply.text.count("event: "), "hello yourself" in reply.text)

asyncio.run(main())
"""


def test_the_web_example_runs_under_fastapi_itself(tmp_path):
    pytest.importorskip("fastapi", reason="FastAPI is not installed; the stub is tested above")
    done = python(project(tmp_path, [t.say("hello yourself")]), "-c", REALLY_SERVED)
    kind, events, told = done.stdout.split()
    assert (kind, told) == ("text/event-stream", "True"), done.stderr
    assert int(events) >= 5


# What goes wrong in the host's hands


def make(folder: Path, *replies: Any, **objects: Any) -> Runner:
    return Runner(
        model=ScriptedModel({"replies": list(replies)}), config=t.config(folder), **objects
    )


def test_two_tasks_may_start_a_runner_at_once(tmp_path):
    async def main() -> list[str]:
        runner = make(tmp_path, t.say("a"), t.say("b"))
        results = await asyncio.gather(runner.run("x"), runner.run("y"))
        await runner.close()
        return sorted(result.answer for result in results)

    assert asyncio.run(main()) == ["a", "b"]


def test_a_script_may_run_one_goal_after_the_other(tmp_path):
    runner = make(tmp_path, t.say("a"), t.say("b"))
    assert [runner.run_sync("x").answer, runner.run_sync("y", session="s").answer] == ["a", "b"]


def test_a_script_wrapper_inside_an_event_loop_says_what_to_do(tmp_path):
    async def main() -> None:
        make(tmp_path).run_sync("x")

    with pytest.raises(SessionError, match=r"await run\(\)"):
        asyncio.run(main())


def test_a_session_can_be_awaited_and_closed_by_hand(tmp_path):
    async def main() -> str:
        async with make(tmp_path, t.say("a"), t.say("b")) as runner:
            session = await runner.session("s1")
            first = await session.run("x")
            await session.close()
            await session.close()
            again = await runner.run("y", session="s1")
            return f"{first.answer}{again.answer}"

    assert asyncio.run(main()) == "ab"


def test_a_stream_that_is_broken_off_ends_its_turn_and_the_session_goes_on(tmp_path):
    async def main() -> tuple[TurnResult, list[str]]:
        statuses = []
        runner = make(tmp_path, {"hang": True}, t.say("went on"))
        async with runner, runner.session("s1") as session:
            note = lambda e: e.type == "turn.finished" and statuses.append(e.data["status"])  # noqa: E731
            session.listen(note)
            async for event in session.stream("x"):
                if event.type == "model.requested":
                    break
            return await session.run("y"), statuses

    result, statuses = asyncio.run(main())
    assert result.answer == "went on"
    assert statuses == ["cancelled", "completed"]


def test_after_a_cancel_the_next_turn_waits_for_the_first_to_end(tmp_path):
    async def main() -> tuple[str, str]:
        runner = make(tmp_path, {"hang": True}, t.say("went on"))
        async with runner, runner.session() as session:
            begun = asyncio.Event()
            session.listen(lambda e: e.type == "model.requested" and begun.set())
            first = asyncio.create_task(session.run("x"))
            await begun.wait()
            session.cancel()
            second = await session.run("y")
            return (await first).status, second.answer

    assert asyncio.run(main()) == ("cancelled", "went on")


def test_two_turns_of_one_session_at_once_are_an_error(tmp_path):
    async def main() -> None:
        async with make(tmp_path, {"hang": True}) as runner, runner.session() as session:
            begun = asyncio.Event()
            session.listen(lambda e: e.type == "model.requested" and begun.set())
            task = asyncio.create_task(session.run("x"))
            await begun.wait()
            try:
                await session.run("y")
            finally:
                session.cancel()
                await task

    with pytest.raises(SessionError, match="in the middle of a turn"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("do", "error", "says"),
    [
        (lambda f: make(f).run_sync(""), SessionError, "the goal is empty"),
        (lambda f: make(f).run_sync(None), SessionError, "the goal is empty"),
        (lambda f: make(f).run_sync("x", session="a/b"), SessionError, "a/b"),
        (lambda f: make(f).status(), SessionError, "not been started"),
        (lambda f: make(f, plugins=[object()]).run_sync("x"), PluginError, "no hooks"),
        (lambda f: make(f, plugins=[Misspelt()]).run_sync("x"), PluginError, "pre_tool_use"),
        (lambda f: make(f, skills=["files"]).run_sync("x"), SkillError, "'files'"),
        (lambda f: make(f, skills=[lambda x: x]).run_sync("x"), SkillError, "use `def`"),
        (lambda f: Runner(model=object()), ConfigError, "neither a Model"),
        (lambda f: Runner(model="gpt"), ConfigError, "PROVIDER/MODEL"),
        (lambda f: Runner(config={"model": {"nme": "x"}}), ConfigError, "did you mean name"),
        (lambda f: Runner.from_config(f / "no.toml"), ConfigError, "no.toml"),
        (lambda f: make(f / "file" / "below").run_sync("x"), RecordError, "cannot be written"),
    ],
)
def test_a_host_that_is_wrong_gets_one_clear_exception(tmp_path, do, error, says):
    (tmp_path / "file").write_text("")
    with pytest.raises(error, match=re.escape(says)) as caught:
        result = do(tmp_path)
        if isinstance(result, Runner):
            result.run_sync("x")
    assert "\n" not in str(caught.value)


class Misspelt:
    @hookimpl
    def pre_tool_uze(self) -> None:
        """Never called."""


def test_a_listener_that_fails_breaks_nothing(tmp_path):
    def broken(event: Event) -> None:
        raise RuntimeError(event.type)

    async def main() -> str:
        async with make(tmp_path, t.say("a")) as runner:
            return (await runner.run("x", listeners=[broken])).answer

    assert asyncio.run(main()) == "a"


def test_events_are_the_lines_of_the_record_and_results_what_json_prints(tmp_path):
    events: list[Event] = []

    async def main() -> TurnResult:
        async with make(tmp_path, t.say("a")) as runner:
            return await runner.run("x", session="s1", listeners=[events.append])

    result = asyncio.run(main())
    assert [e.to_dict() for e in events] == t.records(tmp_path / "state/sessions/s1.jsonl")
    assert result.to_dict() == {
        "session": "s1", "status": "completed", "answer": "a", "iterations": 1, "tool_calls": 0,
        "usage": {"input_tokens": 100, "output_tokens": 20}, "cost": 0.0,
        "duration": result.to_dict()["duration"],
    }  # fmt: skip
    assert events[-1].to_dict()["type"] == "turn.finished"


def test_many_sessions_some_cancelled_some_hanging_leave_nothing_behind(tmp_path):
    """100 sessions through 5 slots; a fifth is cancelled, a tenth hangs in a tool until its deadline."""

    def hang() -> str:
        """Hangs."""
        time.sleep(0.3)
        return "late"

    rules = [{"contains": f"hang {n}.", "replies": [t.call("hang"), t.say("gave up")]} for n in range(0, 100, 10)]  # fmt: skip
    model = ScriptedModel(
        {"replies": [{"text": "done", "delay": 0.01}], "repeat_last": True, "rules": rules}
    )
    settings = t.config(tmp_path, limits={"slots": 5, "tool_timeout": 0.1})
    peak = 0

    async def main() -> list[str]:
        nonlocal peak
        async with Runner(model=model, skills=[hang], config=settings) as runner:

            async def one(number: int) -> str:
                nonlocal peak
                async with runner.session(f"s{number}") as session:
                    goal = f"hang {number}." if number % 10 == 0 else f"go {number}."
                    task = asyncio.create_task(session.run(goal))
                    if number % 5 == 1:
                        await asyncio.sleep(0.001 * number)
                        session.cancel()
                    result = await task
                    peak = max(peak, runner.status()["slots"]["used"])
                    return str(result.status)

            statuses = await asyncio.gather(*map(one, range(100)))
            board = runner.status()
            assert (board["slots"]["used"], board["slots"]["waiting"], board["sessions"]) == (
                0,
                0,
                [],
            )
            return statuses

    before = threading.active_count()
    statuses = asyncio.run(main())
    assert peak <= 5
    assert set(statuses) <= {"completed", "cancelled"}
    assert [statuses[n] for n in range(100) if n % 5 != 1] == ["completed"] * 80
    deadline = time.monotonic() + 5
    while threading.active_count() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= before + 1


def test_the_board_shows_what_runs_waits_rests_and_is_wrong(tmp_path):
    started = threading.Event()
    release = threading.Event()

    def work() -> str:
        """Works until it is told to stop."""
        started.set()
        release.wait(10)
        return "worked"

    def broken() -> str:
        """Crashes."""
        raise RuntimeError("no")

    (tmp_path / "skills/bad").mkdir(parents=True)
    (tmp_path / "skills/bad/skill.toml").write_text("manifest = 1\n")
    config = t.config(
        tmp_path,
        paths={"skills": ["skills"]},
        limits={"slots": 1},
        breaker={"failures": 1},
        loop={"warn": 9, "refuse": 10, "stop": 11},
    )

    async def main() -> dict[str, Any]:
        model = ScriptedModel(
            {"replies": [t.call("broken"), t.call("work"), t.say("a"), t.say("b")]}
        )
        async with Runner(model=model, skills=[work, broken], config=config) as runner:
            first = asyncio.create_task(runner.run("x", session="s1"))
            second = asyncio.create_task(runner.run("y", session="s2"))
            async with asyncio.timeout(5):
                while not started.is_set():  # noqa: ASYNC110 - set on a worker thread
                    await asyncio.sleep(0.005)
            board = runner.status()
            release.set()
            await asyncio.gather(first, second)
            assert runner.status()["calls"] == []
            return board

    board = asyncio.run(main())
    assert json.loads(json.dumps(board)) == board
    assert board["slots"] == {"limit": 1, "used": 1, "waiting": 1}
    assert [(s["id"], s["running"], s["iteration"]) for s in board["sessions"]] == [
        *(("s1", True, 2), ("s2", True, 0))
    ]
    (call,) = board["calls"]
    assert (call["session"], call["tool"]) == ("s1", "work")
    assert list(board["breakers"]) == ["broken"]
    assert [gate["used"] for gate in board["gates"].values()] == [1]
    (problem,) = board["skills"]["problems"]
    assert (problem["name"], problem["state"]) == ("bad", "failed")
    assert "skill.toml" in problem["reason"]
    assert board["watch"] == "off"


# What the pages say


def test_the_agents_page_has_a_config_that_is_one(tmp_path):
    page = (ROOT / "docs/agents.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert set(tomllib.loads(toml)["agents"]) == {"planner", "executor"}
    (tmp_path / "config").mkdir()
    (tmp_path / "config/runner.toml").write_text(toml, encoding="utf-8")
    config = load_config(file=tmp_path / "config/runner.toml")
    known = {path.name for path in (ROOT / "skills").iterdir()}
    assert {name for role in config.agents.values() for name in role.skills} <= known
    assert config.agents["executor"].max_iterations == 8


def test_every_method_of_a_session_and_a_runner_is_told():
    for kind in (package.Session, package.Runner):
        names = [n for n, f in vars(kind).items() if inspect.isfunction(f) and n[0] != "_"]
        assert [n for n in names if n not in PAGE and n not in {"start", "open"}] == []

"""The fault list, row 75: two hundred sessions at once, some cancelled, some hanging."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from pathlib import Path

import pytest
import turn_kit as k

row = pytest.mark.row
SESSIONS, CALLS, SLOTS, PLACES = 200, 5, 20, 8


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0


@row(75)
def test_two_hundred_sessions_keep_every_limit_and_leave_nothing_behind(tmp_path):
    rng = random.Random(7)
    lock, free = threading.Lock(), threading.Event()
    now, most = {"work": 0}, {"work": 0}
    stuck = set(rng.sample(range(SESSIONS), SESSIONS // 10))
    cancelled = set(rng.sample(sorted(set(range(SESSIONS)) - stuck), SESSIONS // 5))

    def work(n: int) -> str:
        """Works."""
        with lock:
            now["work"] += 1
            most["work"] = max(most["work"], now["work"])
        try:
            os.getpid()
            return f"did {n}"
        finally:
            with lock:
                now["work"] -= 1

    def hang(n: int) -> str:
        """Hangs."""
        free.wait(60)
        return "late"

    def replies(n):
        tool = "hang" if n in stuck else "work"
        return [*(k.call(tool, n=n * 10 + i) for i in range(CALLS)), k.say(f"done {n}")]

    async def test():
        rules = [{"contains": f"goal {n};", "replies": replies(n)} for n in range(SESSIONS)]
        tools = (
            k.tool(work, read_only=True, concurrent=True, max_concurrency=PLACES),
            k.tool(
                hang, read_only=True, concurrent=True, timeout=0.05, retries=0, max_concurrency=4
            ),
        )
        config = {
            "limits": {"slots": SLOTS, "gate_wait": 0.02, "tool_timeout": 20.0},
            "model": {"max_concurrency": 10},
            "breaker": {"failures": 10_000},
        }
        async with k.turns(tmp_path, [], *tools, rules=rules, **config) as made:
            files, threads = open_files(), threading.active_count()
            running, most_running = 0, 0

            async def one(n):
                nonlocal running, most_running
                async with made.runner.session(f"s{n}") as session:
                    acquired = asyncio.Event()
                    session.listen(lambda e: acquired.set() if e.type == "slot.acquired" else None)
                    session.listen(count)
                    task = asyncio.ensure_future(session.run(f"goal {n};"))
                    if n in cancelled:
                        if n % 2:
                            await acquired.wait()
                        else:
                            await asyncio.sleep(0)
                        session.cancel()
                    return n, await task

            def count(event):
                nonlocal running, most_running
                running += {"slot.acquired": 1, "turn.finished": -1}.get(event.type, 0)
                most_running = max(most_running, running)

            results = dict(await asyncio.gather(*(one(n) for n in range(SESSIONS))))
            for n, result in results.items():
                if n not in cancelled:
                    assert (result.status, result.answer) == ("completed", f"done {n}")
                else:
                    assert result.status in {"cancelled", "completed"}
            board = made.runner.status()
            assert board["slots"] == {"limit": SLOTS, "used": 0, "waiting": 0}
            assert board["model"] == {"limit": 10, "used": 0, "waiting": 0}
            assert (board["calls"], board["sessions"]) == ([], [])
            assert most["work"] <= PLACES
            assert most_running <= SLOTS
            assert board["abandoned"].count("hang") <= 4
            free.set()
            while made.runner.shared.abandoned:  # noqa: ASYNC110 - their sessions are closed
                await asyncio.sleep(0.005)
            assert made.runner.status()["gates"] == {}
            assert open_files() <= files + 2
            assert threading.active_count() <= threads + SLOTS + 8
        for n in range(SESSIONS):
            kinds = [r["type"] for r in made.records(f"s{n}")]
            assert kinds.count("turn.finished") == 1

    asyncio.run(asyncio.wait_for(test(), 60))

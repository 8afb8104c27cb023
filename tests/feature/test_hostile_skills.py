"""Skills that reach beyond their own call: no other call, turn or output is the worse for it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import turn_kit as k


def come_to(tmp_path: Path, *functions: Any, **flags: Any) -> list[dict[str, Any]]:
    """What one call of each function comes to, one after the other, in one turn."""
    tools = [k.tool(function, **{"retries": 0, **flags}) for function in functions]
    replies = [k.call(function.__name__) for function in functions]
    made = k.run(tmp_path, [*replies, k.say("went on")], *tools)
    assert made.result.answer == "went on"
    assert made.all_valid()
    return made.finished


async def fine() -> str:
    """Works."""
    await asyncio.sleep(0)
    return "fine"


async def stop() -> str:
    """Stops the loop it runs on."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return "stopped"


async def leave_an_exit() -> str:
    """Leaves a task that ends the interpreter."""

    async def task() -> None:
        raise SystemExit(3)

    left = asyncio.create_task(task())
    await asyncio.sleep(0.01)
    return f"left {left.done()}"


async def close() -> str:
    """Closes the loop it runs on, as soon as that can be done."""
    loop = asyncio.get_running_loop()

    def closing() -> None:
        while loop.is_running():
            pass
        with suppress(Exception):  # the runner may end it at the same moment, at any step of it
            loop.close()

    threading.Thread(target=closing, daemon=True).start()
    loop.stop()
    return "closed"


@pytest.mark.parametrize("odd", [stop, leave_an_exit, close], ids=lambda odd: odd.__name__)
def test_an_async_skill_that_ends_its_loop_ends_nobody_elses_call(odd, tmp_path):
    first, second = come_to(tmp_path, odd, fine)
    assert first["kind"] == "ok"
    assert (second["kind"], second["content"]) == ("ok", "fine")


def test_an_async_generator_is_drawn_from_like_a_plain_one(tmp_path):
    async def numbers() -> Any:
        """Counts."""
        number = 0
        while True:
            yield number
            number += 1

    (one,) = come_to(tmp_path, numbers)
    assert one["kind"] == "ok"
    assert "\n[0,1,2,3" in one["content"]


class Slow(Exception):
    def __str__(self) -> str:
        threading.Event().wait(20)
        return "at last"


class Loud(Exception):
    def __str__(self) -> str:
        return "\x1b[2Jred\x00" + "x" * 5_000_000


def test_an_error_that_takes_long_to_say_what_it_is_has_the_calls_deadline(tmp_path):
    def fails() -> str:
        """Fails."""
        raise Slow

    (one,) = come_to(tmp_path, fails, timeout=0.2)
    assert one["kind"] == "outcome_unknown"


def test_what_an_error_says_is_cleaned_and_cut_like_a_result(tmp_path):
    def fails() -> str:
        """Fails."""
        raise Loud

    (one,) = come_to(tmp_path, fails)
    assert one["kind"] == "crashed"
    assert "\x1b" not in one["content"]
    assert len(one["content"]) < 10_000

"""What the context costs an iteration, over a long session in a small window.

    python tests/benchmarks/bench_context.py [--json]

400 iterations with 4 kB results in a window of 4,096 tokens: each is counted, compacted when it must
be, and checked as a history. The cost may not grow with the session: growth is the median of the
last tenth over that of the first tenth after the window is full. Quote the growth, not the times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

from runner.context.history import Checker
from runner.context.loopguard import LoopGuard
from runner.context.tokens import estimate
from runner.context.window import Window
from runner.types import Kind, Message, ToolCall, ToolResult

ITERATIONS, BUDGET = 400, 3072
TEXT = "line of text with words and 12 numbers 45%\n" * 95
LIMIT = 1.2


def session(n: int, budget: int) -> list[float]:
    """Seconds of each iteration: adding a call and its result, fitting and checking."""
    window, checker = Window((Message(role="system", content="Be careful. " * 40),)), Checker()
    window.add(Message(role="user", content="count the lines", mark="goal"))
    took = []
    for i in range(n):
        call = ToolCall(id=f"c{i}", name="dump", arguments={"n": i})
        result = Message(role="tool", content=f"{i} {TEXT}", tool_call_id=call.id, tool="dump")
        began = time.process_time()
        window.add(Message(role="assistant", content="", tool_calls=(call,)))
        window.add(result)
        if window.tokens > budget:
            window.truncate(budget)
            if window.tokens > budget:
                window.slide(budget)
        checker.check(window.messages)
        took.append(time.process_time() - began)
    return took


def growth(took: list[float]) -> float:
    """The last tenth over the first tenth, the very first iterations left out."""
    tenth = len(took) // 10
    return statistics.mean(took[-tenth:]) / statistics.mean(took[tenth : 2 * tenth])


def guard_us(content: Callable[[int], str], arguments: Callable[[int], dict[str, object]]) -> float:
    """Microseconds of the loop guard a round, before and after together."""
    best = float("inf")
    for _ in range(9):
        guard = LoopGuard()
        rounds = [
            (
                [("tool", arguments(i))],
                [ToolResult(call_id="c", tool="tool", kind=Kind.OK, content=content(i))],
            )
            for i in range(300)
        ]
        began = time.process_time()
        for calls, results in rounds:
            guard.before(calls)
            guard.after(calls, results)
        best = min(best, (time.process_time() - began) / len(rounds))
    return best * 1e6


def estimate_us(text: str) -> float:
    """Microseconds to count one text."""
    best = float("inf")
    for _ in range(9):
        began = time.process_time()
        for _ in range(100):
            estimate(text)
        best = min(best, (time.process_time() - began) / 100)
    return best * 1e6


def measure() -> dict[str, float]:
    """All figures."""
    small, large = [session(ITERATIONS, BUDGET) for _ in range(5)], session(ITERATIONS, 10**9)
    return {
        "iteration_us": min(statistics.mean(took) for took in small) * 1e6,
        "growth": statistics.median(growth(took) for took in small),
        "uncompacted_growth": growth(large),
        "guard_small_us": guard_us(lambda i: f"r{i}", lambda i: {"i": i}),
        "guard_4kB_us": guard_us(lambda i: f"{i} {TEXT}", lambda i: {"path": f"src/{i}.py"}),
        "estimate_4kB_us": estimate_us(TEXT),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    found = {name: round(value, 2) for name, value in measure().items()}
    print(
        json.dumps(found)
        if parser.parse_args().json
        else "\n".join(f"{k:20} {v:>8}" for k, v in found.items())
    )
    if found["growth"] > LIMIT:
        raise SystemExit(f"an iteration's cost grows: {found['growth']} > {LIMIT}")


if __name__ == "__main__":
    main()

"""What a warm worker process costs over a thread: `python tests/benchmarks/bench_process.py`."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from process_kit import Kit

from runner.calls.worker import Workers

ROUNDS, CALLS = 12, 200


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        await call()
    return (time.perf_counter() - began) / CALLS


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        kit = Kit(Path(name), "def add(a, b): return a + b\n", recycle_after=10**9)
        threads = Workers()
        entry = kit.tool("add").load()

        tool, context = kit.tool("add"), kit.context()

        def process(*, strict: bool) -> Awaitable[object]:
            arguments = {"a": 1, "b": 2}
            return kit.processes.submit(
                tool, arguments, context, timeout=10.0, strict=strict
            ).future

        async def compare() -> None:
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "thread": lambda: threads.submit(lambda _job: entry.function(a=1, b=2)).future,
                "process": lambda: process(strict=False),
                "strict": lambda: process(strict=True),
            }
            for way, call in ways.items():
                began = time.perf_counter()
                await call()
                print(f"{way:8} first {1e3 * (time.perf_counter() - began):7.1f} ms")
            # taken in turns, so that a busy machine slows all of them alike
            taken: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(ROUNDS):
                for way, call in ways.items():
                    taken[way].append(await _seconds(call))
            for way, seconds in taken.items():
                best, middle = min(seconds), statistics.median(seconds)
                print(f"{way:8} warm  {1e6 * best:7.1f} µs best, {1e6 * middle:7.1f} µs median")

        kit.run(compare)


if __name__ == "__main__":
    main()

"""From a save to the new code in use, for each way of saving, and what watching costs when all is quiet.

`python tests/benchmarks/bench_reload.py [ROUNDS] [COUNT…]`. Measured from the end of the save to
the return of the first call that runs the new code; the debounce of 60 ms is part of it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from saves import SAVES
from skill_kit import one_tool, write

from runner.catalog.registry import Registry
from runner.catalog.watcher import Watcher

ROUNDS, COUNTS = 20, (10, 1_000, 10_000)
LIMIT_S = 10.0
IDLE_S = 10.0
Save = Callable[[Path, str], None]


def code(value: int) -> str:
    return f"def pick():\n    return {value}\n"


def latency(found: Registry, changed: threading.Event, file: Path, save: Save, value: int) -> float:
    """Seconds until the value that was saved is returned; infinite when it never is."""
    changed.clear()
    save(file, code(value))
    began = time.perf_counter()
    while time.perf_counter() - began < LIMIT_S:
        changed.wait(0.5)
        changed.clear()
        tool = found.snapshot.tools.get("pick")
        if tool is not None and tool.load().function() == value:
            return time.perf_counter() - began
    return float("inf")


def measure(count: int, rounds: int) -> None:
    """Prints a row for each way of saving one of so many skills."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project" / "skills"
        write(root, one_tool("pick", code(0)))
        for n in range(count - 1):
            write(root, one_tool(f"other_{n}"))
        found, changed = Registry([root], project=root.parent), threading.Event()
        found.scan()
        watcher = Watcher(found, on_change=lambda _: changed.set())
        began = time.perf_counter()
        watcher.start()
        print(
            f"\n{count:,} skills; the watch began in {1e3 * (time.perf_counter() - began):.0f} ms"
        )
        while found.unexamined:
            time.sleep(0.1)
        value = 0
        for save in SAVES:
            taken = []
            for _ in range(rounds):
                value += 1
                taken.append(latency(found, changed, root / "pick" / "skill.py", save, value))
                time.sleep(0.02)
            _row(save.__name__, taken)
        _idle(watcher)


def _row(name: str, taken: list[float]) -> None:
    seen = [1e3 * t for t in taken if t < LIMIT_S]
    p95 = sorted(seen)[int(0.95 * (len(seen) - 1))] if seen else float("nan")
    p50 = statistics.median(seen) if seen else float("nan")
    missed = f"  missed {len(taken) - len(seen)} of {len(taken)}" if len(seen) < len(taken) else ""
    print(f"  {name:22} p50 {p50:6.0f} ms   p95 {p95:6.0f} ms{missed}", flush=True)


def _idle(watcher: Watcher) -> None:
    cpu = time.process_time()
    time.sleep(IDLE_S)
    share = (time.process_time() - cpu) / IDLE_S
    print(f"  quiet for {IDLE_S:.0f} s: {share:.2%} of a core ({watcher.backend})", flush=True)
    watcher.stop()


def main() -> None:
    """Prints the tables."""
    rounds, *counts = [int(a) for a in sys.argv[1:]] or [ROUNDS]
    for count in counts or COUNTS:
        measure(count, rounds)


if __name__ == "__main__":
    main()

"""The same saves as bench_reload.py, against the tool watcher of strands-agents.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install strands-agents
    /tmp/peer/bin/python tests/benchmarks/peers/strands_reload.py [ROUNDS] [COUNT…]

It watches `./tools` and reloads a tool's module in place. PYTHONDONTWRITEBYTECODE is unset here,
as on a user's machine: stale bytecode shows only then.
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from saves import SAVES

ROUNDS, COUNTS, LIMIT_S = 20, (10, 1_000), 3.0
TOOL = '''\
from strands import tool

@tool
def {name}() -> int:
    """A tool."""
    return {value}
'''


def latency(registry, file: Path, save, value: int) -> float:
    """Seconds until the saved value is returned; infinite when it never is."""
    save(file, TOOL.format(name="pick", value=value))
    began = time.perf_counter()
    while time.perf_counter() - began < LIMIT_S:
        if registry.registry["pick"]() == value:
            return time.perf_counter() - began
        time.sleep(0.001)
    return float("inf")


def measure(count: int, rounds: int) -> None:
    """Prints a row for each way of saving one of so many tools."""
    from strands.tools.registry import ToolRegistry
    from strands.tools.watcher import ToolWatcher

    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "project" / "tools"
        tools.mkdir(parents=True)
        os.chdir(tools.parent)
        (tools / "pick.py").write_text(TOOL.format(name="pick", value=0))
        for n in range(count - 1):
            (tools / f"other_{n}.py").write_text(TOOL.format(name=f"other_{n}", value=0))
        registry = ToolRegistry()
        began = time.perf_counter()
        registry.initialize_tools(load_tools_from_directory=True)
        ToolWatcher(registry)
        print(f"\n{count:,} tools; loaded in {1e3 * (time.perf_counter() - began):.0f} ms")
        value = 0
        for save in SAVES:
            taken = []
            for _ in range(rounds):
                value += 1
                taken.append(latency(registry, tools / "pick.py", save, value))
                time.sleep(0.02)
            _row(save.__name__, taken)
        (tools / "other_0.py").unlink()
        time.sleep(1.0)
        print(f"  a deleted tool is {'still there' if 'other_0' in registry.registry else 'gone'}")
        os.chdir("/")


def _row(name: str, taken: list[float]) -> None:
    seen = sorted(1e3 * t for t in taken if t < LIMIT_S)
    missed = f"missed {len(taken) - len(seen)} of {len(taken)}"
    if not seen:
        print(f"  {name:22} {missed}", flush=True)
        return
    p95 = seen[int(0.95 * (len(seen) - 1))]
    print(
        f"  {name:22} p50 {statistics.median(seen):6.0f} ms   p95 {p95:6.0f} ms   {missed}",
        flush=True,
    )


def main() -> None:
    """Prints the tables."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.execv(sys.executable, [sys.executable, *sys.argv])
    logging.disable(logging.CRITICAL)
    rounds, *counts = [int(a) for a in sys.argv[1:]] or [ROUNDS]
    for count in counts or COUNTS:
        measure(count, rounds)


if __name__ == "__main__":
    main()

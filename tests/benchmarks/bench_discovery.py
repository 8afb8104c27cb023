"""Finding skills at start and looking again: `python tests/benchmarks/bench_discovery.py [ROUNDS]`.

Each figure is the least of several fresh processes: a busy machine makes times longer, never
shorter. `cpu` is what the process itself computed, which depends less on the neighbours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from skill_kit import one_tool, write

COUNTS = (100, 1_000, 10_000)
ROUNDS = 5
PAGE = "---\nname: page-{n}\ndescription: What page {n} does. Use it for {n}; not for others.\n---\n# How\n"


def native(root: Path, count: int) -> None:
    """So many native skills with a tool of two parameters each."""
    parameters = (
        "required = ['text']\nadditionalProperties = false\n"
        "properties.text = { type = 'string', minLength = 1, description = 'The text' }\n"
        "properties.limit = { type = 'integer', minimum = 1, default = 10, description = 'At most' }"
    )
    for n in range(count):
        body = f"from runner import ToolError\n\n\ndef tool_{n}(text, limit=10):\n    return text[:limit]\n"
        write(root, one_tool(f"tool_{n}", body, parameters, "read_only = true\n"))


def pages(root: Path, count: int) -> None:
    """So many Agent Skills."""
    write(root, {f"page-{n}/SKILL.md": PAGE.format(n=n) for n in range(count)})


def measure(root: Path, *, thorough: bool) -> None:
    """Prints, as JSON, what one scan and one look at everything took. Run in a fresh process."""
    from runner.catalog.registry import Registry

    began, cpu = time.perf_counter(), time.process_time()
    found = Registry([root], project=root.parent)
    found.scan(thorough=thorough)
    scanned, scanned_cpu = time.perf_counter() - began, time.process_time() - cpu
    time.sleep(0.2)  # files written a moment ago are read again: not what is measured here
    looked, looked_cpu = [], []
    for _ in range(3):
        began, cpu = time.perf_counter(), time.process_time()
        dirty = found.dirty()
        looked.append(time.perf_counter() - began)
        looked_cpu.append(time.process_time() - cpu)
    assert not dirty, dirty[:3]
    figures = {
        "scan": scanned,
        "scan cpu": scanned_cpu,
        "look": min(looked),
        "look cpu": min(looked_cpu),
    }
    print(json.dumps(figures | {"skills": len(found.snapshot.skills)}))


def best(root: Path, rounds: int, *, thorough: bool) -> dict[str, float]:
    """The least of each figure."""
    command = [sys.executable, __file__, "--one", str(root), *(["thorough"] if thorough else [])]
    runs = [json.loads(subprocess.check_output(command)) for _ in range(rounds)]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def main() -> None:
    """Prints a table in milliseconds."""
    if sys.argv[1:2] == ["--one"]:
        measure(Path(sys.argv[2]), thorough="thorough" in sys.argv)
        return
    rounds = int(sys.argv[1]) if sys.argv[1:] else ROUNDS
    head = "skills            at start   cpu   with all modules   cpu   look again   cpu"
    print(f"{head}   (ms, least of {rounds})")
    for kind, made in (("native", native), ("SKILL.md", pages)):
        for count in COUNTS:
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder) / "skills"
                made(root, count)
                time.sleep(0.2)
                quick = best(root, rounds, thorough=False)
                whole = best(root, rounds, thorough=True) if kind == "native" else quick
                figures = (quick["scan"], quick["scan cpu"], whole["scan"], whole["scan cpu"])
                shown = [1e3 * f for f in (*figures, quick["look"], quick["look cpu"])]
                widths = (12, 6, 19, 6, 13, 6)
                cells = "".join(f"{f:{w}.0f}" for f, w in zip(shown, widths, strict=True))
                print(f"{count:6,} {kind:8}{cells}", flush=True)


if __name__ == "__main__":
    main()

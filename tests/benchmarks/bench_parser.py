"""Measure the parser: medians on the labelled cases, and hostile input that doubles.

Run it as a script: python tests/benchmarks/bench_parser.py
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runner.parsing import read  # noqa: E402

TOOLS = {
    "read_file": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
    "get_time": {"type": "object", "properties": {}},
}
PARTS = (
    "{", "[", '"', "'", "}", "<tool_call>", "```", "```\n", '{"a":', '["', '{"', "{'a ", "\\", '"\\', "<think>", "</think>",
    "<|im_end|>", "[TOOL_CALLS]", "<function=read_file>", "<parameter=path>", "</parameter>", "<invoke ", "functions.", "call:",
    "Action: read_file\n", "Action Input: ", "read_file(", "read_file(path='", "{}", "{} ", '{"tool":"read_file",', "[[]", "> {",
    '{"tool":"read_file","params":{"path":"a"}}\n', "<|channel|>", "<|message|>", "“", "{“", " ", "\n", "\u200b", "{ ", "# ", "/*", "{/*",
    "✿FUNCTION✿", "<read_file>", "<arg_key>", "<|tool_call>call:read_file{", '<|"|>', "{'", "{'a':'", '{"\\', "[{", "|a", "**a", "'''", "<｜tool▁call▁begin｜>",
    "</parameter></function>", "{tool:", "get_time()\n", "print(", "\n```json\n{}\n```", "1", "9" * 50, "-", "_", "a b ", "<", "</", "``", "::",
)  # fmt: skip
PREFIXES = ("", '{"tool": "read_file", "params": {"path": "', "Sure:\n", "<tool_call>", "Action: read_file\nAction Input: {", "read_file(path=", "{'tool': 'read_file', ", "<tool_call>\n<function=read_file>\n<parameter=path>")  # fmt: skip


def accept(name: str, arguments: dict[str, object]) -> bool:
    """Stand in for the schema check, which is not the parser's cost."""
    return True


def seconds(text: str) -> float:
    """Time one reading."""
    begin = time.perf_counter()
    read(text, TOOLS, fits=accept)
    return time.perf_counter() - begin


def best(action: Callable[[], object], repeat: int = 5) -> float:
    """The best time of several."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return min(times)


def cases() -> None:
    """Print medians over the labelled cases and the cost of large whole-JSON replies."""
    strict, rest = [], []
    for line in (ROOT / "tests/data/parser.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        tools = {tool["name"]: tool["parameters"] for tool in case["tools"]}
        took = best(lambda: read(case["text"], tools, fits=accept))  # noqa: B023
        parsed = read(case["text"], tools, fits=accept)
        if len(case["text"]) < 1000:
            (strict if parsed.recogniser == "strict" else rest).append(took)
    print(f"whole JSON below 1 kB: median {1e6 * statistics.median(strict):.0f} µs")
    print(f"text:                  median {1e6 * statistics.median(rest):.0f} µs")
    large = {
        "one long string": {"path": "a\nb" * 350_000},
        "many numbers": {"path": "a", "rows": [1.5 * i for i in range(70_000)]},
        "many objects": {"path": "a", "rows": [{"id": i, "name": f"n{i}"} for i in range(35_000)]},
    }
    for name, arguments in large.items():
        text = json.dumps({"tool": "read_file", "params": arguments})
        plain, ours = best(lambda: json.loads(text)), best(lambda: read(text, TOOLS, fits=accept))  # noqa: B023
        print(f"1 MB, {name}: {1e3 * ours:.1f} ms, {ours / plain:.1f} × json.loads")


def hostile(top: int, least: float) -> None:
    """Print what takes long or grows faster than its size."""
    worst = []
    for prefix in PREFIXES:
        for part in PARTS:
            sizes = [top // 4, top // 2, top]
            times = [seconds(prefix + part * (size // len(part))) for size in sizes]
            per_mb = times[-1] * 1e6 / top
            growth = times[-1] / max(times[-2], 1e-4)
            worst.append((per_mb, growth, prefix, part))
    worst.sort(reverse=True, key=lambda row: row[0])
    print(f"{'s per MB':>9} {'× 2':>5}  input")
    for per_mb, growth, prefix, part in worst:
        if per_mb > least or (growth > 2.5 and per_mb > 0.05):
            print(f"{per_mb:9.3f} {growth:5.2f}  {prefix!r} + {part!r} * n")


if __name__ == "__main__":
    cases()
    hostile(int(sys.argv[1]) if len(sys.argv) > 1 else 256_000, 0.3)

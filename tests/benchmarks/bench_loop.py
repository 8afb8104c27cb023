"""What an iteration costs, as ratios to a bare loop in the same run.

    python tests/benchmarks/bench_loop.py [--runs N] [--json]

The bare loop is json.loads, a jsonschema validator, wait_for and gather: nothing else. Ours runs
with every guard on: trajectory on disk, redaction, loop guard, schema check, history check. The
model is in-process and answers at once; the time between its answer and its next request is what
is measured. Minima of several interleaved runs; quote ratios, not times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jsonschema

from runner import Runner
from runner.catalog.functions import tool_from
from runner.model.base import CallPart, Chunk, ModelInfo, ModelRequest
from runner.types import Usage

now = time.perf_counter
NOOP = {
    "type": "object",
    "properties": {"i": {"type": "integer"}},
    "required": ["i"],
    "additionalProperties": False,
}


class Script:
    """K rounds of calls, then an answer; stamps when it is asked and when it has answered."""

    def __init__(
        self, rounds: list[list[tuple[str, dict[str, Any]]]], model_s: float = 0.0
    ) -> None:
        self.rounds, self.model_s = rounds, model_s
        self.asked: list[float] = []
        self.answered: list[float] = []

    def gaps(self) -> list[float]:
        return [self.asked[i + 1] - self.answered[i] for i in range(len(self.asked) - 1)]


class BenchModel:
    """The script as a model of ours."""

    name = "bench/model"

    def __init__(self, script: Script) -> None:
        self.script = script

    async def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        s = self.script
        s.asked.append(now())
        if s.model_s:
            await asyncio.sleep(s.model_s)
        number = len(s.asked) - 1
        calls = s.rounds[number] if number < len(s.rounds) else []
        s.answered.append(now())
        for index, (name, arguments) in enumerate(calls):
            yield Chunk(
                call=CallPart(
                    index=index, id=f"c{index}", name=name, arguments=json.dumps(arguments)
                )
            )
        yield Chunk(text="" if calls else "done", finish="stop", usage=Usage(0, 0))

    async def describe(self) -> ModelInfo:
        return ModelInfo(name=self.name, context_window=4_000_000, tools=True)

    def cost(self, usage: Usage) -> float:
        return 0.0

    async def close(self) -> None:
        return


async def bare(script: Script, tools: dict[str, Callable[..., Any]]) -> None:
    """The floor: a hand-written loop."""
    validator = jsonschema.Draft202012Validator(NOOP)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]

    async def model() -> dict[str, Any]:
        script.asked.append(now())
        if script.model_s:
            await asyncio.sleep(script.model_s)
        number = len(script.asked) - 1
        calls = script.rounds[number] if number < len(script.rounds) else []
        script.answered.append(now())
        entries = [
            {"id": f"c{i}", "function": {"name": n, "arguments": json.dumps(a)}}
            for i, (n, a) in enumerate(calls)
        ]
        return {"role": "assistant", "content": None, "tool_calls": entries}

    async def call(entry: dict[str, Any]) -> Any:
        arguments = json.loads(entry["function"]["arguments"])
        name = entry["function"]["name"]
        if name == "noop" and not validator.is_valid(arguments):
            return "bad"
        function = tools[name]
        if asyncio.iscoroutinefunction(function):
            return await asyncio.wait_for(function(**arguments), 30)
        if name == "noop":
            return function(**arguments)
        return await asyncio.wait_for(asyncio.to_thread(function, **arguments), 30)

    while True:
        message = await model()
        messages.append(message)
        if not message["tool_calls"]:
            return
        results = await asyncio.gather(*[call(c) for c in message["tool_calls"]])
        messages += [{"role": "tool", "content": r} for r in results]


def tools_of(payload: int) -> dict[str, Callable[..., Any]]:
    text = "x" * payload

    def noop(i: int) -> str:
        return text

    def slow(i: int, ms: float) -> str:
        time.sleep(ms / 1000)
        return f"r{i}"

    async def aslow(i: int, ms: float) -> str:
        await asyncio.sleep(ms / 1000)
        return f"r{i}"

    def write(i: int) -> str:
        return text

    return {"noop": noop, "slow": slow, "aslow": aslow, "write": write}


def make_runner(script: Script, payload: int, folder: Path) -> Runner:
    functions = tools_of(payload)
    reading = {"read_only": True, "idempotent": True, "concurrent": True}
    tools = [
        tool_from(f, max_concurrency=100, **(reading if n != "write" else {"idempotent": True}))
        for n, f in functions.items()
    ]
    config = {
        "limits": {"max_iterations": 10_000, "slots": 1000},
        "loop": {"warn": 10**6, "refuse": 10**6, "stop": 10**6},
        "model": {"max_concurrency": 1000},
        "paths": {"skills": [], "workspace": str(folder / "w"), "state": str(folder / "state")},
        "watch": {"backend": "off"},
    }
    (folder / "w").mkdir(exist_ok=True)
    return Runner(model=BenchModel(script), skills=tools, config=config)


async def ours(script: Script, payload: int, folder: Path) -> None:
    async with make_runner(script, payload, folder) as runner:
        result = await runner.run("go")
        assert result.status == "completed", result


def loop_case(k: int, payload: int, runs: int, tool: str = "noop") -> dict[str, float]:
    """Microseconds per iteration, bare and ours, and the growth from first to last tenth."""
    found: dict[str, list[float]] = {"bare": [], "ours": [], "growth": []}
    for _ in range(runs):
        rounds = [[(tool, {"i": i})] for i in range(k)]
        script = Script(rounds)
        asyncio.run(bare(script, tools_of(payload)))
        found["bare"].append(statistics.median(script.gaps()) * 1e6)
        script = Script(rounds)
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(ours(script, payload, Path(name)))
        gaps, n = script.gaps(), max(5, k // 10)
        found["ours"].append(statistics.median(gaps) * 1e6)
        found["growth"].append(statistics.median(gaps[-n:]) / statistics.median(gaps[:n]))
    return {
        "bare_us": min(found["bare"]),
        "ours_us": min(found["ours"]),
        "ratio": min(found["ours"]) / min(found["bare"]),
        "growth": statistics.median(found["growth"]),
    }


def parallel_case(tool: str, runs: int) -> dict[str, float]:
    """Milliseconds for eight calls of 50 ms in one reply."""
    walls = []
    for _ in range(runs):
        script = Script([[(tool, {"i": i, "ms": 50.0}) for i in range(8)]])
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(ours(script, 64, Path(name)))
        walls.append(script.gaps()[0] * 1e3)
    return {"wall_ms": min(walls), "median_ms": statistics.median(walls)}


def beside_case(runs: int) -> dict[str, float]:
    """Milliseconds by which a session is delayed beside one that blocks for a second."""
    delays = []
    for _ in range(runs):
        quick = [[("noop", {"i": i})] for i in range(20)]

        async def alone_and_beside(quick: list[Any] = quick) -> float:
            with tempfile.TemporaryDirectory() as name:
                async with make_runner(Script(quick), 64, Path(name)) as first:
                    began = now()
                    await first.run("go")
                    alone = now() - began
            with tempfile.TemporaryDirectory() as name:
                blocking = Script([[("slow", {"i": 0, "ms": 1000.0})]])
                async with make_runner(blocking, 64, Path(name)) as runner:
                    task = asyncio.create_task(runner.run("block"))
                    while not blocking.answered:
                        await asyncio.sleep(0.001)
                    other = Script(quick)
                    runner._model.script = other
                    began = now()
                    await runner.run("go")
                    beside = now() - began
                    task.cancel()
                    await asyncio.wait([task])
            return (beside - alone) * 1e3

        delays.append(asyncio.run(alone_and_beside()))
    return {"delay_ms": statistics.median(delays)}


def sessions_case(count: int, iterations: int, model_s: float, *, mixed: bool) -> dict[str, float]:
    """Sessions per second in one runner, kilobytes a session, and how far apart equal ones end.

    `mixed`: two of ten calls take 25 ms, one plain and one async. The spread is in model requests.
    """

    def call(done: int) -> tuple[str, dict[str, Any]]:
        slow = {4: "slow", 8: "aslow"}.get(done % 10) if mixed else None
        return (slow, {"i": done, "ms": 25.0}) if slow else ("noop", {"i": done})

    class Many(BenchModel):
        async def complete(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            await asyncio.sleep(model_s)
            done = sum(m.role == "tool" for m in request.messages)
            if done < iterations:
                name, arguments = call(done)
                part = CallPart(index=0, id="c", name=name, arguments=json.dumps(arguments))
                yield Chunk(call=part, finish="stop")
            else:
                yield Chunk(text="done", finish="stop")

    async def go() -> list[float]:
        ends: list[float] = []

        async def one(runner: Runner) -> None:
            await runner.run("go")
            ends.append(now() - began)

        with tempfile.TemporaryDirectory() as name:
            runner = make_runner(Script([]), 64, Path(name))
            runner._model = Many(Script([]))
            async with runner:
                began = now()
                await asyncio.gather(*[one(runner) for _ in range(count)])
        return ends

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = asyncio.run(go())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "sessions_per_s": count / max(ends),
        "kb_per_session": grown / count,
        "spread_requests": (max(ends) - min(ends)) / model_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases: dict[str, Callable[[], dict[str, float]]] = {
        "K=20": lambda: loop_case(20, 64, options.runs),
        "K=100": lambda: loop_case(100, 64, options.runs),
        "K=400": lambda: loop_case(400, 64, options.runs),
        "K=100, 4 kB": lambda: loop_case(100, 4096, options.runs),
        "K=100, not read-only": lambda: loop_case(100, 64, options.runs, "write"),
        "8 × 50 ms, plain": lambda: parallel_case("slow", options.runs),
        "8 × 50 ms, async": lambda: parallel_case("aslow", options.runs),
        "beside a blocking tool": lambda: beside_case(min(3, options.runs)),
        "100 sessions × 10, 20 ms": lambda: sessions_case(100, 10, 0.02, mixed=False),
        "the same, two calls of 25 ms": lambda: sessions_case(100, 10, 0.02, mixed=True),
    }
    for name, case in cases.items():
        found = {key: round(value, 2) for key, value in case().items()}
        print(
            json.dumps({"case": name, **found}) if options.json else f"{name:26} {found}",
            flush=True,
        )


if __name__ == "__main__":
    main()

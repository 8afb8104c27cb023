"""When the loop guard notices, refuses and stops, over generated call sequences.

    python tests/benchmarks/study_loopguard.py [--json]

Each family holds sequences of up to 24 rounds. For loops: the round of the loop (counted from its
first repetition's start) in which it was noticed and ended, and how many calls ran in vain. For
work that only looks like a loop: how many sequences were noticed, and how many had a call refused.
Refusals of legitimate work are false alarms; a notice is a sentence below a result.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from runner.context.loopguard import LoopGuard
from runner.types import Changes, Kind, ToolResult

ROUNDS, SEQUENCES = 24, 12
Step = tuple[str, dict[str, object], str, Kind, bool]  # tool, arguments, result, kind, changed
WORDS = [
    "config",
    "token",
    "server",
    "window",
    "cache",
    "model",
    "prompt",
    "folder",
    "limit",
    "answer",
    "result",
    "reader",
]


@dataclass
class Outcome:
    """What the guard did to one sequence."""

    noticed: int | None = None
    refused: int | None = None
    stopped: int | None = None
    ran: int = 0
    refusals: int = 0


def play(steps: Iterator[Step]) -> Outcome:
    """Plays a sequence as the loop would."""
    guard, out = LoopGuard(), Outcome()
    for number, (tool, arguments, content, kind, changed) in enumerate(steps, 1):
        calls = [(tool, arguments)]
        if guard.before(calls).action == "refuse":
            out.refused = out.refused or number
            out.refusals += 1
            content, kind, changed = "refused", Kind.LOOP_REFUSED, False
        else:
            out.ran += 1
        changes = Changes(modified=("a.py",)) if changed else None
        result = ToolResult(call_id="c", tool=tool, kind=kind, content=content, changes=changes)
        action = guard.after(calls, [result]).action
        if action == "notice":
            out.noticed = out.noticed or number
        elif action == "stop":
            out.stopped = number
            break
    return out


def ok(tool: str, arguments: dict[str, object], content: str, *, changed: bool = False) -> Step:
    return tool, arguments, content, Kind.OK, changed


@dataclass
class Family:
    """Sequences of one kind. `period` is the loop's, 0 for legitimate work."""

    period: int
    make: Callable[[random.Random], Iterator[Step]]
    outcomes: list[Outcome] = field(default_factory=list)


def cycle(
    period: int, result: Callable[[random.Random, int], str]
) -> Callable[[random.Random], Iterator[Step]]:
    def make(r: random.Random) -> Iterator[Step]:
        calls = [(f"tool{i}", {"q": r.choice(WORDS), "n": i}) for i in range(period)]
        for n in range(ROUNDS):
            tool, arguments = calls[n % period]
            yield ok(tool, dict(arguments), result(r, n % period))

    return make


def constant(r: random.Random, i: int) -> str:
    return f"result {i}"


def timed(r: random.Random, i: int) -> str:
    return f"result {i} at 2026-01-01T00:00:{r.randrange(60):02d}Z in {r.randrange(900)} ms, id {uuid.UUID(int=r.getrandbits(128))}"


def drifting(
    name: str, value: Callable[[random.Random, int], object]
) -> Callable[[random.Random], Iterator[Step]]:
    def make(r: random.Random) -> Iterator[Step]:
        key = r.choice(WORDS)
        for n in range(ROUNDS):
            yield ok("lookup", {"key": key, name: value(r, n)}, "constant")

    return make


def rewording(r: random.Random) -> Iterator[Step]:
    for _ in range(ROUNDS):
        words = [
            "list",
            "every",
            r.choice(["single", "known"]),
            "setting",
            "of",
            "this",
            "project",
            "please",
        ]
        yield ok("search", {"query": " ".join(words)}, "no hits")


def invalid(r: random.Random) -> Iterator[Step]:
    for _ in range(ROUNDS):
        yield (
            "find",
            {"keyword": "x"},
            "missing field query; accepted: query",
            Kind.INVALID_ARGUMENTS,
            False,
        )


def denied(r: random.Random) -> Iterator[Step]:
    for n in range(ROUNDS):
        yield "send", {"to": "a"}, f"denied ({n})", Kind.DENIED, False


def polling(r: random.Random) -> Iterator[Step]:
    done = 0
    while done < 100:
        done = min(100, done + r.randrange(1, 15))
        yield ok("poll", {"job": "j1"}, json.dumps({"progress": f"{done}%"}))


def slow_polling(r: random.Random) -> Iterator[Step]:
    for done in range(10):
        for _ in range(r.randrange(1, 3)):
            yield ok("poll", {"job": "j1"}, json.dumps({"progress": f"{done}0%"}))


def paging(r: random.Random) -> Iterator[Step]:
    for page in range(r.randrange(3, ROUNDS)):
        yield ok(
            "search",
            {"q": "x", "page": page},
            f"hits {page * 10}–{page * 10 + 9}: {r.choice(WORDS)} {page}",
        )


def reading_files(r: random.Random) -> Iterator[Step]:
    for n in range(ROUNDS):
        yield ok(
            "read_file", {"path": f"src/{r.choice(WORDS)}/module_{n}.py"}, f"def f{n}(): return {n}"
        )


def grepping(r: random.Random) -> Iterator[Step]:
    for n, word in enumerate(r.sample(WORDS, 8)):
        yield ok(
            "grep",
            {"pattern": word, "path": "src"},
            "no matches" if n % 3 else f"src/a.py:{n}: {word}",
        )


def existence(r: random.Random) -> Iterator[Step]:
    for word in r.sample(WORDS, 6):
        yield ok("exists", {"path": f"config/{word}.toml"}, "false")


def records(r: random.Random) -> Iterator[Step]:
    for _ in range(8):
        yield ok(
            "get_status",
            {"order_id": str(uuid.UUID(int=r.getrandbits(128)))},
            '{"status":"shipped"}',
        )


def days(r: random.Random) -> Iterator[Step]:
    for day in range(1, 9):
        yield ok("slots", {"date": f"2026-03-{day:02d}"}, "none free")


def windows(r: random.Random) -> Iterator[Step]:
    for hour in range(8):
        yield ok(
            "logs",
            {
                "since": f"2026-03-01T{hour:02d}:00:00Z",
                "until": f"2026-03-01T{hour + 1:02d}:00:00Z",
            },
            "no entries",
        )


def edit_and_test(r: random.Random) -> Iterator[Step]:
    for n in range(ROUNDS // 3):
        yield ok("read_file", {"path": "a.py"}, f"version {n}")
        yield ok(
            "replace_text",
            {"path": "a.py", "old": f"v{n}", "new": f"v{n + 1}"},
            "replaced 1",
            changed=True,
        )
        yield (
            "run_command",
            {"command": "pytest -q"},
            f"1 failed in 0.{r.randrange(99)}s",
            Kind.FAILED,
            False,
        )


def stuck_test(r: random.Random) -> Iterator[Step]:
    """Edits that change nothing in what the test says: legitimate, the files do change."""
    for n in range(ROUNDS // 2):
        yield ok("write_file", {"path": "a.py", "content": f"x = {n}"}, "written", changed=True)
        yield "run_command", {"command": "pytest -q"}, "1 failed in 0.12s", Kind.FAILED, False


def retries(r: random.Random) -> Iterator[Step]:
    for page in range(8):
        for n in range(r.randrange(1, 3)):
            yield (
                "fetch",
                {"url": f"http://host/{page}"},
                f"connection refused {n}",
                Kind.UNAVAILABLE,
                False,
            )
        yield ok("fetch", {"url": f"http://host/{page}"}, f"page {page}")


def looking_again(r: random.Random) -> Iterator[Step]:
    for n in range(8):
        yield ok("git_status", {}, f"{n} files changed")
        yield ok("read_file", {"path": f"{r.choice(WORDS)}{n}.py"}, f"text {n}")


def notes(r: random.Random) -> Iterator[Step]:
    for n, word in enumerate(r.sample(WORDS, 6)):
        yield ok(
            "send_note", {"to": word, "body": f"Dear {word}, here is number {n}."}, f"sent m{n}"
        )


def writing(r: random.Random) -> Iterator[Step]:
    for n in range(10):
        yield ok(
            "write_file",
            {"path": f"out/{n}.txt", "content": r.choice(WORDS) * 5},
            "written",
            changed=True,
        )


FAMILIES = {
    "loop of 1": Family(1, cycle(1, constant)),
    "loop of 2": Family(2, cycle(2, constant)),
    "loop of 3": Family(3, cycle(3, constant)),
    "loop of 4": Family(4, cycle(4, constant)),
    "loop of 1, volatile results": Family(1, cycle(1, timed)),
    "loop of 3, volatile results": Family(3, cycle(3, timed)),
    "timestamp drifts": Family(1, drifting("ts", lambda r, n: f"2026-01-01T00:00:{n:02d}Z")),
    "nonce drifts": Family(1, drifting("nonce", lambda r, n: r.getrandbits(40))),
    "UUID drifts": Family(1, drifting("run", lambda r, n: str(uuid.UUID(int=r.getrandbits(128))))),
    "invalid arguments": Family(1, invalid),
    "denied": Family(1, denied),
    "rewording (noticed only)": Family(1, rewording),
    "page past the end (noticed only)": Family(1, drifting("page", lambda r, n: 100 + n)),
    "polling": Family(0, polling),
    "slow polling": Family(0, slow_polling),
    "paging": Family(0, paging),
    "reading files": Family(0, reading_files),
    "grep for words": Family(0, grepping),
    "does a file exist": Family(0, existence),
    "records by UUID": Family(0, records),
    "day after day": Family(0, days),
    "hour after hour": Family(0, windows),
    "edit and test": Family(0, edit_and_test),
    "edit, test unchanged": Family(0, stuck_test),
    "retries after errors": Family(0, retries),
    "looking again": Family(0, looking_again),
    "notes to people": Family(0, notes),
    "writing files": Family(0, writing),
}


def run() -> dict[str, dict[str, object]]:
    """The table: a row per family."""
    table: dict[str, dict[str, object]] = {}
    for number, (name, family) in enumerate(FAMILIES.items()):
        outcomes = [play(family.make(random.Random(100 * number + i))) for i in range(SEQUENCES)]
        noticed = [o.noticed for o in outcomes if o.noticed]
        ended = [o.stopped for o in outcomes if o.stopped]
        table[name] = {
            "period": family.period,
            "sequences": len(outcomes),
            "noticed": len(noticed),
            "noticed at": statistics.median(noticed) if noticed else None,
            "with refusals": sum(o.refusals > 0 for o in outcomes),
            "stopped": len(ended),
            "stopped at": statistics.median(ended) if ended else None,
            "ran": statistics.median(o.ran for o in outcomes),
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    table = run()
    if parser.parse_args().json:
        print(json.dumps(table))
        return
    columns = list(next(iter(table.values())))
    print(f"{'':34}" + "".join(f"{c:>15}" for c in columns))
    for name, row in table.items():
        print(f"{name:34}" + "".join(f"{'–' if row[c] is None else row[c]:>15}" for c in columns))
    legitimate = [row for row in table.values() if row["period"] == 0]
    print(
        f"{sum(int(str(r['sequences'])) for r in table.values())} sequences; false refusals: "
        f"{sum(int(str(r['with refusals'])) for r in legitimate)} of {sum(int(str(r['sequences'])) for r in legitimate)}"
    )


if __name__ == "__main__":
    main()

"""Runs a tool through slow, broken and lost, without a model, and says which promises were kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from .calls.example import valid
from .calls.schema import checker
from .calls.verdict import limit_of
from .catalog.skill import Skill, Snapshot
from .config import Config
from .drill_bench import DEADLINE, Bench, bench
from .errors import SkillError
from .types import JSON, Entry, Tool

State = Literal["ok", "failed", "not_applicable"]
Check = AsyncIterator["Promise"]
Setup = Callable[..., AbstractAsyncContextManager[Bench]]
TWICE = 2


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing the runner promises of a tool, and what became of it. `figure` is the evidence."""

    fault: Literal["call", "slow", "broken", "lost"]
    name: str
    state: State
    figure: str = ""

    def to_dict(self) -> dict[str, str]:
        """For `--json`."""
        return {
            "fault": self.fault,
            "promise": self.name,
            "state": self.state,
            "figure": self.figure,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """What a tool's drill came to."""

    tool: str
    skill: str
    arguments: JSON
    promises: tuple[Promise, ...]

    @property
    def passed(self) -> bool:
        """Was every promise that applies kept?"""
        return all(promise.state != "failed" for promise in self.promises)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "tool": self.tool,
            "skill": self.skill,
            "passed": self.passed,
            "arguments": self.arguments,
            "promises": [promise.to_dict() for promise in self.promises],
        }


async def drill(
    config: Config,
    snapshot: Snapshot,
    skill: Skill,
    tool: Tool,
    *,
    really: bool = False,
) -> PassRecord:
    """Drills one tool. Its own code runs only with `really`; importing it is part of the drill."""
    record = partial(PassRecord, tool=tool.name, skill=skill.name)
    arguments = arguments_of(tool)
    if arguments is None:
        text = "no arguments that fit its schema; add examples to its manifest"
        return record(arguments={}, promises=(Promise("call", "can be called", "failed", text),))
    try:
        own = await asyncio.to_thread(_loaded, tool)
    except SkillError as error:
        failed = Promise("call", "its code can be loaded", "failed", str(error))
        return record(arguments=arguments, promises=(failed,))
    named = [snapshot.tools[n] for n in tool.flags.fallbacks if n in snapshot.tools]
    make = partial(
        bench, config, skill, tool, arguments, fallbacks=named, asynchronous=own.asynchronous,
        own=own if really else None, really=really,
    )  # fmt: skip
    promises = [promise async for promise in _called(make)]
    if all(promise.state == "ok" for promise in promises):
        for part in (_slow, _broken, _uncounted, _lost, _retried, _settled):
            promises += [promise async for promise in part(make, tool)]
        if really and tool.flags.reconcile:
            promises += [promise async for promise in _own_reconcile(make, tool)]
    return record(arguments=arguments, promises=tuple(promises))


def arguments_of(tool: Tool) -> JSON | None:
    """The first example of the manifest that fits its schema, else one made from the schema."""
    fits = checker(tool.parameters).fits
    for example in tool.examples:
        if fits(example):
            return dict(example)
    if fits({}):
        return {}
    return valid(tool.parameters, fits)


def _loaded(tool: Tool) -> Entry:
    """Imports the tool's own function, and those its manifest names beside it."""
    entry = tool.load()
    for name in (*tool.flags.fallbacks, tool.flags.reconcile):
        if ":" in name and tool.load_named is not None:
            tool.load_named(name)
    return entry


def _safe_to_repeat(tool: Tool) -> bool:
    return tool.flags.idempotent or tool.flags.read_only


def _kept(fault: Any, name: str, kept: bool, figure: str) -> Promise:
    return Promise(fault, name, "ok" if kept else "failed", figure)


def _does_not_apply(fault: Any, names: Sequence[str], why: str) -> list[Promise]:
    return [Promise(fault, name, "not_applicable", why) for name in names]


def _short(result: Mapping[str, Any]) -> str:
    text = " ".join(str(result.get("content", "")).split())
    return f"{result.get('kind')}: {text[:120]}"


async def _called(make: Setup) -> Check:
    async with make() as b:
        result = await b.call()
        yield _kept(
            "call",
            "passes schema and policy, and returns",
            bool(result["ok"]),
            _short(result) if not result["ok"] else f"{result['duration']:.3f} s",
        )


async def _slow(make: Setup, tool: Tool) -> Check:
    wanted = "timeout" if _safe_to_repeat(tool) else "outcome_unknown"
    async with make(retries=0) as b:
        result = await b.call("hangs")
        seconds = float(result.get("duration", 0.0))
        marked = result.get("degraded_by")
        own = _deadline(b, tool)
        yield _kept(
            "slow",
            "ends at its deadline",
            DEADLINE <= seconds < DEADLINE + 1,
            f"{seconds:.2f} s of {DEADLINE:g} s (its own: {own:g} s)",
        )
        told = marked or result["kind"] == wanted
        yield _kept(
            "slow",
            f"comes to {wanted}",
            bool(told),
            f"answered by {marked}" if marked else str(result["kind"]),
        )
        yield _degraded("slow", tool, result, applies=wanted == "timeout")
        held, tool_ends_at_once = b.places(), b.fault.asynchronous
        ended = await b.let_go()
        yield _kept(
            "slow",
            "keeps its place until it really ends",
            (held == 1 or tool_ends_at_once) and ended and not b.places(),
            f"{held} of 1 held, {b.places()} after it ended"
            if held
            else "cancelled at its deadline",
        )
        late = b.heard("tool.late")
        yield _kept(
            "slow", "is reported when it ends late", len(late) == 1, f"{len(late)} tool.late"
        )


def _deadline(b: Bench, tool: Tool) -> float:
    limits = b.runner.config.limits
    limit = limit_of(
        tool,
        tool_timeout=limits.tool_timeout,
        network_timeout=limits.network_timeout,
        most=limits.max_tool_timeout,
        left=None,
    )
    return limit.seconds or 0.0


def _degraded(fault: Any, tool: Tool, result: Mapping[str, Any], *, applies: bool) -> Promise:
    name = "a fallback answers and is marked"
    if not tool.flags.fallbacks:
        return Promise(fault, name, "not_applicable", "it names no fallbacks")
    if not applies:
        kept = result.get("degraded_by") is None
        return _kept(
            fault, "no fallback hides that it may have happened", kept, str(result["kind"])
        )
    by = result.get("degraded_by")
    return _kept(fault, name, bool(by), f"degraded_by {by}" if by else _short(result))


async def _broken(make: Setup, tool: Tool) -> Check:
    async with make() as b:
        c = b.runner.config.breaker
        calls = 0
        result: Mapping[str, Any] = {}
        while b.breaker.state == "closed" and calls < c.failures * 2:
            result = await b.call("breaks")
            calls += 1
        yield _kept(
            "broken",
            f"opens its breaker after {c.failures} failures",
            calls == c.failures and b.breaker.state == "open",
            f"{calls} calls",
        )
        yield _degraded("broken", tool, result, applies=True)
        before = len(b.fault.keys)
        result = await b.call()
        refused = len(b.fault.keys) == before
        kind = "degraded" if result.get("degraded_by") else result["kind"]
        yield _kept(
            "broken", "is not called while it is open", refused, f"{kind} for {c.pause:g} s"
        )
        b.clock.ahead += c.pause + 1
        await b.call("breaks")
        opened = b.heard("breaker.opened")
        doubled, wanted = opened[-1].data["pause"] if opened else 0, min(c.pause * 2, c.max_pause)
        yield _kept(
            "broken",
            "a probe that fails doubles the pause",
            len(opened) == TWICE and doubled == wanted,
            f"{c.pause:g} s, then {doubled:g} s",
        )
        b.clock.ahead += wanted + 1
        result = await b.call()
        closed = b.breaker.state == "closed" and bool(result["ok"])
        yield _kept(
            "broken",
            "a probe that works closes it",
            closed,
            f"{len(b.heard('breaker.probed'))} probes",
        )


async def _uncounted(make: Setup, _tool: Tool) -> Check:
    async with make() as b:
        calls = b.runner.config.breaker.failures + 1
        kinds = {(await b.call("objects"))["kind"] for _ in range(calls)}
        kept = b.breaker.state == "closed" and kinds == {"failed"}
        yield _kept(
            "broken", "wrong arguments do not open it", kept, f"{calls} calls, {b.breaker.state}"
        )


async def _lost(make: Setup, tool: Tool) -> Check:
    names = (
        "its outcome is unknown",
        "the same call is refused until that is known",
        "it keeps its key",
    )
    if _safe_to_repeat(tool):
        for promise in _does_not_apply("lost", names, "it may be repeated"):
            yield promise
        return
    async with make() as b:
        first = await b.call("hangs")
        ran = len(b.fault.keys)
        again = await b.call()
        kinds = [str(result["kind"]) for result in (first, again)]
        yield _kept("lost", names[0], kinds[0] == "outcome_unknown", kinds[0])
        yield _kept(
            "lost",
            names[1],
            kinds[1] == "outcome_unknown" and len(b.fault.keys) == ran == 1,
            f"{kinds[1]}, ran {len(b.fault.keys)} time(s)",
        )
        lost = [entry for entry in b.fault.keys if entry]
        ledger = b.session.state.ledger if b.session.state else None
        fingerprint = ledger.fingerprint(tool.name, b.arguments) if ledger else ""
        held = ledger.lost(fingerprint) if ledger else None
        yield _kept(
            "lost",
            names[2],
            held is not None and lost[:1] == [held.key],
            f"key {lost[0][:8] if lost else 'none'}…",
        )


async def _retried(make: Setup, tool: Tool) -> Check:
    name = "is retried with one key"
    if not _safe_to_repeat(tool):
        async with make() as b:
            result = await b.call("drops")
            once = len(b.fault.keys) == 1
            yield _kept(
                "lost", "is never retried by itself", once, f"{result.get('attempts')} attempt(s)"
            )
        return
    async with make() as b:
        limit = tool.flags.retries
        if (b.runner.config.limits.tool_retries if limit is None else limit) < 1:
            yield Promise("lost", name, "not_applicable", "retries = 0")
            return
        result = await b.call("drops", "works")
        one = len(b.fault.keys) == TWICE and len(set(b.fault.keys)) == 1
        yield _kept(
            "lost",
            name,
            bool(result["ok"]) and one,
            f"{result.get('attempts')} attempts, key {b.fault.keys[0][:8]}…",
        )


async def _settled(make: Setup, tool: Tool) -> Check:
    names = ("reconcile says done: not run again", "reconcile says not done: run with the same key")
    if _safe_to_repeat(tool) or not tool.flags.reconcile:
        why = "it may be repeated" if _safe_to_repeat(tool) else "it names no reconcile"
        for promise in _does_not_apply("lost", names, why):
            yield promise
        return
    for name, answer, runs in zip(names, ("done", "not_done"), (1, 2), strict=True):
        async with make() as b:
            b.reconcile.answers.append("unknown")
            await b.call("hangs")
            await b.let_go()
            b.reconcile.answers.append(answer)
            result = await b.call()
            keys = b.fault.keys
            kept = bool(result["ok"]) and len(keys) == runs and len(set(keys)) == 1
            yield _kept("lost", name, kept, f"ran {len(keys)} time(s), key {keys[0][:8]}…")


async def _own_reconcile(make: Setup, _tool: Tool) -> Check:
    async with make() as b:
        b.reconcile.own = True
        result = await b.call("hangs")
        known = result["kind"] in {"ok", "timeout"}
        yield _kept("lost", "its own reconcile says what became of it", known, _short(result))

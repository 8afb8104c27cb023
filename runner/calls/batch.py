"""The calls of one reply: neighbours that may run together do, all others are barriers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from ..errors import SkillError
from ..state import SessionState, Shared, Turn, TurnCancelled
from ..types import Admitted, Kind, Tool, ToolCall, ToolResult
from .execute import execute
from .finish import Allowance, finish, refused
from .processjob import isolation_of

TOGETHER_SECONDS = 0.02  # calls that end within this of each other are told of in their order
Item = Admitted | ToolResult  # a refusal is already the result


async def run_batch(
    shared: Shared,
    session: SessionState,
    turn: Turn,
    calls: Sequence[ToolCall],
    items: Sequence[Item],
    allowance: Allowance,
) -> list[ToolResult]:
    """One result per call, in the order asked for."""
    for item in items:
        if isinstance(item, Admitted):
            clean = {"arguments": item.shown}
            session.emit("tool.queued", clean=clean, call_id=item.call.id, tool=item.tool.name)
    results: list[ToolResult] = []
    work = list(zip(calls, items, strict=True))
    for group in _groups(work):
        results += await _run_group(shared, session, turn, group, allowance)
        _move(session, [call.id for call, _ in group])
    return results


def _groups(work: Sequence[tuple[ToolCall, Item]]) -> Iterator[list[tuple[ToolCall, Item]]]:
    group: list[tuple[ToolCall, Item]] = []
    for call, item in work:
        if isinstance(item, Admitted) and not item.tool.flags.concurrent:
            if group:
                yield group
            yield [(call, item)]
            group = []
        else:
            group.append((call, item))
    if group:
        yield group


async def _run_group(
    shared: Shared,
    session: SessionState,
    turn: Turn,
    group: Sequence[tuple[ToolCall, Item]],
    allowance: Allowance,
) -> list[ToolResult]:
    if len(group) == 1:
        call, item = group[0]
        result = await _run_one(shared, session, turn, call, item)
        return [await _finish_one(shared, session, call, item, result, allowance)]
    await _loaded(shared, turn, [item.tool for _, item in group if isinstance(item, Admitted)])
    places = asyncio.Semaphore(shared.config.limits.max_parallel)

    async def placed(call: ToolCall, item: Item) -> ToolResult:
        async with places:
            return await _run_one(shared, session, turn, call, item)

    tasks = [asyncio.ensure_future(placed(call, item)) for call, item in group]
    results: dict[int, ToolResult] = {}
    try:
        async for number in _in_order(tasks):
            call, item = group[number]
            result = tasks[number].result()
            results[number] = await _finish_one(shared, session, call, item, result, allowance)
    except BaseException:  # the record cannot be kept: nothing else is begun
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return [results[number] for number in range(len(group))]


async def _loaded(shared: Shared, turn: Turn, tools: Sequence[Tool]) -> None:
    """Imports what is new before the calls start, so that none of them begins late for it."""
    for tool in tools:
        key = (tool.skill, tool.generation)
        if key in shared.loaded or isolation_of(tool, shared.stuck[tool.skill]) != "thread":
            continue
        shared.loaded.add(key)
        try:
            await turn.wait(shared.workers.run(tool.load))
        except (SkillError, TurnCancelled):
            pass  # each call of it will say so


async def _in_order(tasks: Sequence[asyncio.Future[ToolResult]]) -> AsyncIterator[int]:
    """The numbers of the tasks as they end; those that end together, in the order of the calls."""
    waiting = list(range(len(tasks)))
    while waiting:
        first = tasks[waiting[0]]
        if not first.done():
            await asyncio.wait([tasks[n] for n in waiting], return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            await asyncio.wait([first], timeout=TOGETHER_SECONDS)
        number = next(n for n in waiting if tasks[n].done())
        waiting.remove(number)
        yield number


async def _run_one(
    shared: Shared, session: SessionState, turn: Turn, call: ToolCall, item: Item
) -> ToolResult:
    if not isinstance(item, Admitted):
        return item
    if turn.cancelled:
        why = "not run: the turn was cancelled before this call began"
        return refused(call, Kind.CANCELLED, why)
    turn.tool_calls += 1
    shared.in_flight[session.id, call.id] = (item.tool.name, shared.clock())
    try:
        return await execute(shared, session, turn, item)
    finally:
        shared.in_flight.pop((session.id, call.id), None)


async def _finish_one(
    shared: Shared,
    session: SessionState,
    call: ToolCall,
    item: Item,
    result: ToolResult,
    allowance: Allowance,
) -> ToolResult:
    tool = item.tool if isinstance(item, Admitted) else None
    return await finish(shared, session, call, tool, result, allowance)


def _move(session: SessionState, call_ids: Sequence[str]) -> None:
    for call_id in call_ids:
        folder = session.moves.pop(call_id, None)
        if folder is not None:
            session.cwd = folder

"""Pieces of native calls become whole calls, and never parts of two."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable

import pytest

from runner.errors import ModelUnavailable
from runner.model.base import CallPart, Chunk
from runner.model.stream import Calls, collect
from runner.types import ModelReply, Usage

END = Chunk(finish="tool_calls")


async def _feed(chunks: tuple[Chunk, ...]) -> AsyncIterator[Chunk]:
    for chunk in chunks:
        yield chunk


def ids() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"c{next(numbers)}"


def collected(*chunks: Chunk, **options) -> ModelReply:
    return asyncio.run(collect(_feed(chunks), next_id=ids(), **options))


def part(
    arguments="", name: str = "", index: int | None = None, call_id: str | None = None
) -> Chunk:
    return Chunk(call=CallPart(index=index, id=call_id, name=name, arguments=arguments))


def calls_of(*chunks: Chunk) -> list[tuple[str, dict]]:
    reply = collected(*chunks, END)
    assert not any(call.fault for call in reply.tool_calls)
    return [(call.name, call.arguments) for call in reply.tool_calls]


TWO = [("a", {"x": 1}), ("b", {"y": 2})]
SAME = [("a", {"x": 1}), ("a", {"x": 1})]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param(
            [
                part("", "a", 0, "1"),
                part('{"x"', "", 0),
                part(": 1}", "", 0),
                part("", "b", 1, "2"),
                part('{"y": 2}', "", 1),
            ],
            TWO,
            id="indexed",
        ),
        pytest.param(
            [
                part("", "a", 0, "1"),
                part("", "b", 1, "2"),
                part('{"x": 1}', "", 0),
                part('{"y": 2}', "", 1),
            ],
            TWO,
            id="interleaved by index",
        ),
        pytest.param(
            [part('{"x": 1}', "a", 0, "1"), part('{"y": 2}', "b", 0, "2")], TWO, id="all index 0"
        ),
        pytest.param(
            [part('{"x": 1}', "a", None, "1"), part('{"y": 2}', "b", None, "2")], TWO, id="no index"
        ),
        pytest.param(
            [
                part("", "a", 0, "1"),
                part("", "b", 0, "2"),
                part('{"y": 2}', "", 0, "2"),
                part('{"x": 1}', "", 0, "1"),
            ],
            TWO,
            id="interleaved by id at index 0",
        ),
        pytest.param(
            [part("", "a"), part('{"x"', ""), part(": 1}"), part("", "b"), part('{"y": 2}')],
            TWO,
            id="neither index nor id",
        ),
        pytest.param([part({"x": 1}, "a", 0), part({"y": 2}, "b", 0)], TWO, id="complete, index 0"),
        pytest.param([part({"x": 1}, "a", 0), part({"x": 1}, "a", 0)], SAME, id="complete twins"),
        pytest.param([part('{"x": 1}', "a"), part('{"x": 1}', "a")], SAME, id="twins without ids"),
        pytest.param(
            [part('{"x": 1}', "a", 0, "1"), part('{"x": 1}', "a", 1, "1")],
            SAME,
            id="one id for both",
        ),
        pytest.param(
            [part("", "a", 0, "1"), part('{"x"', "a", 0, "1"), part(": 1}", "a", 0, "1")],
            SAME[:1],
            id="name and id in every chunk",
        ),
        pytest.param(
            [part('{"x"', "a", 0, "1"), part(": 1}", "", 0), part('{"x": 1}', "a", 0, "1")],
            SAME[:1],
            id="the whole call again at the end",
        ),
        pytest.param(
            [part("", "a", 0, ""), part({"x": 1}, "", 0)], SAME[:1], id="name, then object"
        ),
        pytest.param([part("", "a", 0, "1")], [("a", {})], id="no arguments at all"),
    ],
)
def test_native_calls_are_put_together_by_id_name_and_index(chunks, expected):
    assert calls_of(*chunks) == expected


def test_a_reply_of_thousands_of_calls_is_put_together_in_one_pass():
    pieces = []
    for number in range(20_000):
        pieces += [
            part('{"x":', "a", number, f"id{number}"),
            part(f"{number}}}", index=number),
        ]
    made = calls_of(*pieces)
    assert made == [("a", {"x": number}) for number in range(20_000)]


def test_every_call_gets_a_fresh_id_whatever_the_provider_sent():
    reply = collected(
        part({}, "a", 0, "call_0"), part({}, "b", 1, "call_0"), part({}, "c", 2, None), END
    )
    assert [call.id for call in reply.tool_calls] == ["c0", "c1", "c2"]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        pytest.param('{"text": ', "truncated", id="cut"),
        pytest.param('{"text":"a"}{"key":"k"}', "two objects", id="two objects glued"),
        pytest.param("[1]", "object", id="array"),
        pytest.param('{"a": NaN}', "", id="not a number"),
    ],
)
def test_unreadable_arguments_become_a_fault_and_an_empty_object(raw, says):
    (call,) = collected(part(raw, "a", 0, "1"), END).tool_calls
    assert call.fault
    assert says in call.fault
    assert call.arguments == {}


@pytest.mark.parametrize("arguments", ['{"path": "x.py"}', {"path": "x.py"}, '{"path": "x'])
def test_a_reply_cut_by_the_output_limit_has_a_fault_on_every_call(arguments):
    reply = collected(part({}, "first", 0), part(arguments, "write", 1), Chunk(finish="length"))
    assert len(reply.tool_calls) == 2
    assert all("max_tokens" in call.fault for call in reply.tool_calls)


def test_text_and_reasoning_are_passed_on_as_they_come_and_joined():
    shown: list[str] = []
    reply = collected(
        Chunk(text="Hel"),
        Chunk(reasoning="hm"),
        Chunk(text="lo"),
        Chunk(finish="stop"),
        Chunk(usage=Usage(3, 4)),
        on_text=shown.append,
        on_reasoning=lambda text: shown.append(f"({text})"),
    )
    assert (reply.text, reply.reasoning, reply.finish) == ("Hello", "hm", "stop")
    assert reply.usage == Usage(3, 4)
    assert shown == ["Hel", "(hm)", "lo"]


def test_a_stream_that_names_no_finish_was_cut():
    with pytest.raises(ModelUnavailable, match="before the reply was complete"):
        collected(Chunk(text="half"))


def test_the_iterator_is_closed_when_a_listener_raises():
    closed: list[bool] = []

    async def source() -> AsyncIterator[Chunk]:
        try:
            yield Chunk(text="a")
            yield Chunk(text="b")
        finally:
            closed.append(True)

    def fail(_text: str) -> None:
        raise KeyError

    async def run() -> None:
        with pytest.raises(KeyError):
            await collect(source(), next_id=ids(), on_text=fail)
        assert closed == [True]

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(200))
def test_calls_streamed_one_after_the_other_are_never_mixed(seed):
    rng = random.Random(seed)
    whole = [
        (rng.choice("abc"), f'{{"n": {number}, "t": "{"x" * rng.randrange(9)}"}}')
        for number in range(rng.randrange(1, 5))
    ]
    index = rng.choice(["right", "zero", "none"])
    with_ids = rng.random() < 0.5
    calls = Calls()
    for number, (name, text) in enumerate(whole):
        at = {"right": number, "zero": 0, "none": None}[index]
        cut = rng.randrange(len(text))
        first_id = f"id{number}" if with_ids else None
        calls.add(CallPart(index=at, id=first_id, name=name, arguments=text[:cut]))
        calls.add(CallPart(index=at, arguments=text[cut:]))
    assert [(call.name, call.arguments) for call in calls.started] == whole

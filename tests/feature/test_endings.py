"""Every way a turn ends: a truthful status, and an answer that says what was found and what is missing."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
import turn_kit as k

from runner import ScriptedModel
from runner.context.tokens import estimate
from runner.errors import ContextOverflow
from runner.model.base import Chunk, ModelInfo
from runner.types import Usage


def look(what: str) -> str:
    return f"found {what}"


def clock_of():
    times = iter(range(10_000))

    def clock() -> str:
        return f"tick {next(times)}"

    return clock


LOOK = k.tool(look, read_only=True, idempotent=True)
NAMES = ["alpha", "the second", "x" * 9, "beta gamma", "delta", "epsilon", "zeta", "eta theta"]
SEARCHES = [k.call("look", what=name) for name in NAMES]


class Priced(ScriptedModel):
    """A scripted model that costs a dollar a request."""

    def cost(self, usage: Usage) -> float:
        return 1.0


def test_the_iteration_limit_asks_once_more_without_tools_and_keeps_the_models_summary(tmp_path):
    made = k.run(
        tmp_path,
        [*SEARCHES[:2], k.say("alpha is there; the rest is missing")],
        LOOK,
        limits={"max_iterations": 2},
    )
    assert (made.result.status, made.result.iterations) == ("max_iterations", 2)
    assert "the rest is missing" in made.result.answer
    assert "2 iterations" in made.result.answer
    assert made.model.requests[-1].tools == ()
    assert made.all_valid()


def test_a_call_in_the_closing_reply_is_not_run_and_the_answer_is_the_runners_own(tmp_path):
    made = k.run(tmp_path, SEARCHES, LOOK, limits={"max_iterations": 2})
    assert made.result.status == "max_iterations"
    assert len(made.finished) == 2
    assert "found the second" in made.result.answer
    assert "not finished" in made.result.answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ('{"tool": "dump", "params": {"part": 9}}', ""),
        ('```json\n{"name": "dump", "arguments": {"part": 9}}\n```', ""),
        ('Two parts were read.\n{"tool": "dump", "params": {"part": 9}}', "Two parts were read."),
        ('Two parts were read.\n<tool_call>{"name": "dump"', "Two parts were read."),
        ("Two parts were read.\n<function=dump><parameter=part>", "Two parts were read."),
        ('{"answer": "Two parts were read."}', "Two parts were read."),
    ],
)
def test_a_call_in_the_text_of_the_closing_reply_is_no_answer(tmp_path, reply, answer):
    config = {"limits": {"max_iterations": 2}, "model": {"tool_mode": "json"}}
    made = k.run(tmp_path, [*DUMPS[:2], k.say(reply)], DUMP, **config)
    assert made.result.status == "max_iterations"
    assert "dump" not in made.result.answer.split("The last results were:")[0]
    assert made.result.answer.startswith(answer or "Stopped after 2 iterations")


def test_a_model_that_fails_at_the_closing_request_does_not_change_the_status(tmp_path):
    made = k.run(
        tmp_path, [*SEARCHES[:2], {"status": 401, "body": "no"}], LOOK, limits={"max_iterations": 2}
    )
    assert made.result.status == "max_iterations"
    assert "found the second" in made.result.answer


def test_an_answer_in_the_last_iteration_is_completed(tmp_path):
    made = k.run(tmp_path, [SEARCHES[0], k.say("done")], LOOK, limits={"max_iterations": 2})
    assert (made.result.status, made.result.answer) == ("completed", "done")


def test_a_loop_is_stopped_with_what_was_found(tmp_path):
    made = k.run(tmp_path, [SEARCHES[0]], LOOK, repeat_last=True)
    assert (made.result.status, made.result.iterations) == ("loop_stopped", 6)
    assert made.kinds == ["ok"] * 3 + ["loop_refused"] * 3
    assert "look" in made.result.answer
    assert "found alpha" in made.result.answer
    assert len(made.of("loop.noticed")) == 1
    assert len(made.of("loop.refused")) == 3
    assert made.all_valid()


def test_a_reply_that_is_never_readable_is_a_loop_too(tmp_path):
    made = k.run(tmp_path, [k.say('{"tool": "look", "params": {"what": ')], LOOK, repeat_last=True)
    assert made.result.status in {"loop_stopped", "max_iterations"}
    assert made.result.answer.strip()
    assert made.finished == [] or set(made.kinds) <= {
        "unparsable",
        "invalid_arguments",
        "loop_refused",
    }


def test_a_token_budget_ends_the_turn_between_two_requests(tmp_path):
    replies = [
        {**reply, "usage": {"prompt_tokens": 900, "completion_tokens": 100}} for reply in SEARCHES
    ]
    made = k.run(tmp_path, replies, LOOK, limits={"max_total_tokens": 3000})
    assert (made.result.status, len(made.model.requests)) == ("budget_exhausted", 3)
    assert "max_total_tokens" in made.result.answer
    assert f"found {NAMES[2]}" in made.result.answer


def test_a_cost_limit_ends_the_turn(tmp_path):
    made = k.run(
        tmp_path, (), LOOK, model_object=Priced({"replies": SEARCHES}), limits={"max_cost": 2.0}
    )
    assert (made.result.status, made.result.cost) == ("budget_exhausted", 2.0)
    assert "max_cost" in made.result.answer


def test_a_turns_time_ends_it(tmp_path):
    slow = [{**reply, "delay": 0.1} for reply in SEARCHES]
    made = k.run(tmp_path, slow, LOOK, limits={"turn_timeout": 0.15})
    assert made.result.status == "budget_exhausted"
    assert "turn_timeout" in made.result.answer
    assert len(made.model.requests) <= 3


def test_a_cancelled_turn_says_so_and_the_session_goes_on(tmp_path):
    async def test():
        replies = [SEARCHES[0], {"hang": True}, k.say("here again")]
        async with k.turns(tmp_path, replies, LOOK) as made, k.opened(made) as session:
            task = asyncio.ensure_future(session.run("go"))
            await made.heard("model.requested", count=2)
            session.cancel()
            result = await task
            assert result.status == "cancelled"
            assert "found alpha" in result.answer
            assert (await session.run("and now?")).answer == "here again"
            assert made.all_valid()

    k.go(test)


def test_a_model_that_refuses_fails_the_turn_with_its_reason(tmp_path):
    made = k.run(tmp_path, [SEARCHES[0], {"status": 401, "body": "bad key"}], LOOK)
    assert made.result.status == "failed"
    assert "401" in made.result.answer
    assert "found alpha" in made.result.answer


@pytest.mark.parametrize(
    "reply",
    [k.say(""), {"thinking": "let me see"}, k.say(" \n ")],
    ids=["empty", "reasoning", "blank"],
)
def test_an_empty_reply_is_nudged_twice_and_then_fails(tmp_path, reply):
    made = k.run(tmp_path, [reply], LOOK, repeat_last=True)
    assert (made.result.status, len(made.model.requests)) == ("failed", 3)
    assert "empty" in made.result.answer
    assert made.all_valid()


def test_an_empty_reply_costs_no_iteration_and_the_nudges_are_counted_anew(tmp_path):
    replies = [k.say(""), k.say(""), SEARCHES[0], k.say(""), k.say("done")]
    made = k.run(tmp_path, replies, LOOK)
    assert (made.result.status, made.result.answer, made.result.iterations) == (
        "completed",
        "done",
        2,
    )


def test_the_record_tells_the_same_ending(tmp_path):
    made = k.run(tmp_path, [SEARCHES[0]], LOOK, repeat_last=True)
    last = made.records()[-1]
    assert (last["type"], last["status"], last["answer"]) == (
        "turn.finished",
        "loop_stopped",
        made.result.answer,
    )


# ---- the context, seen from outside -------------------------------------------------------------------
def dump(part: int | str) -> str:
    return f"part {part} " + "some words of a long report " * 150


DUMP = k.tool(dump, read_only=True)
SMALL = {"model": {"context_window": 3000, "max_tokens": 256}}
DUMPS = [k.call("dump", part=n) for n in range(8)]


class Summarising(ScriptedModel):
    """Answers a request for a summary as it was asked to; `lost`: without the identifiers."""

    lost = False
    asked = 0

    async def complete(self, request):
        if "Summarise each numbered step" not in request.messages[0].content:
            async for chunk in super().complete(request):
                yield chunk
            return
        assert request.tools == (), "a summary request offers no tools"
        self.asked += 1
        steps = re.findall(r"^(\d+)\. (.*?) ->", request.messages[1].content, re.MULTILINE)
        said = "\n".join(f"{n}: {'it' if self.lost else call} gave a report" for n, call in steps)
        yield Chunk(text=said)
        yield Chunk(finish="stop", usage=Usage(100, 20))


@pytest.mark.parametrize("lost", [False, True])
def test_summaries_take_the_place_of_old_iterations_unless_they_lose_identifiers(tmp_path, lost):
    many = [k.call("dump", part=f"report_{n}.txt") for n in range(40)]
    model = Summarising({"replies": [*many, k.say("done")]})
    model.lost = lost
    made = k.run(tmp_path, (), DUMP, model_object=model, limits={"max_iterations": 50}, **SMALL)
    assert made.result.status == "completed"
    assert made.all_valid()
    assert made.result.usage.input_tokens >= 100 * model.asked, "summaries are paid for, too"
    if lost:
        assert model.asked == 2
        assert not made.of("context.summarised")
        assert made.of("context.slid")
    else:
        assert len(made.of("context.summarised")) >= 2, "several in a row"
        assert "[Summary of earlier steps" in made.sent()[1].content
        assert "report_0.txt" in made.sent()[1].content or made.of("context.slid")


def test_a_summariser_that_fails_twice_is_not_asked_again_and_the_window_slides(tmp_path):
    rule = {
        "contains": "Summarise each numbered step",
        "replies": [k.say("I would rather not")] * 9,
    }
    made = k.run(
        tmp_path,
        [*DUMPS * 3, k.say("done")],
        DUMP,
        rules=[rule],
        limits={"max_iterations": 30},
        loop={"warn": 50, "refuse": 60, "stop": 70},
        **SMALL,
    )
    assert made.result.status == "completed"
    asked = [
        r for r in made.model.requests if "Summarise each numbered step" in r.messages[0].content
    ]
    assert len(asked) <= 2
    assert made.of("context.slid")
    assert made.all_valid()


def test_the_goal_is_said_again_after_a_compaction(tmp_path):
    made = k.run(
        tmp_path,
        [*DUMPS, k.say("done")],
        DUMP,
        goals=("GOAL-1 read all",),
        context={"summarise": False},
        **SMALL,
    )
    assert made.of("context.truncated")
    assert any("still: GOAL-1" in r.messages[-1].content for r in made.model.requests)
    assert all(any("GOAL-1" in m.content for m in r.messages) for r in made.model.requests)


OVERFLOW = {
    "status": 400,
    "body": {
        "error": {
            "message": "maximum context length is 2000 tokens",
            "code": "context_length_exceeded",
        }
    },
}


def test_an_overflow_is_answered_with_a_smaller_request_even_when_there_is_one_result_only(
    tmp_path,
):
    made = k.run(tmp_path, [DUMPS[0], OVERFLOW, k.say("done")], DUMP, context={"summarise": False})
    assert (made.result.status, len(made.model.requests)) == ("completed", 3)
    sizes = [sum(len(m.content) for m in r.messages) for r in made.model.requests]
    assert sizes[2] < sizes[1]
    assert made.all_valid()


def test_a_second_overflow_in_a_row_fails_the_turn(tmp_path):
    made = k.run(
        tmp_path, [DUMPS[0], OVERFLOW, OVERFLOW, k.say("done")], DUMP, context={"summarise": False}
    )
    assert (made.result.status, len(made.model.requests)) == ("failed", 3)
    made = k.run(
        tmp_path / "b",
        [DUMPS[0], OVERFLOW, DUMPS[1], OVERFLOW, k.say("done")],
        DUMP,
        context={"summarise": False},
    )
    assert made.result.status == "completed", "one retry for each request"


class Local(ScriptedModel):
    """A local server that evaluates at most `held` tokens, whatever it is sent."""

    held = 2000

    async def describe(self) -> ModelInfo:
        return ModelInfo(name=self.name, context_window=32_000, tools=True, local=True)

    async def complete(self, request):
        async for chunk in super().complete(request):
            if chunk.usage is None:
                yield chunk
                continue
            sent = sum(len(m.content) for m in request.messages) // 4 + 300
            yield Chunk(finish=chunk.finish, usage=Usage(min(sent, self.held), 10))


@pytest.mark.parametrize(("held", "times"), [(2000, 1), (10**6, 0)])
def test_a_prompt_the_server_cut_is_reported_once_with_its_fix(tmp_path, caplog, held, times):
    model = Local({"replies": [*DUMPS, k.say("done")]})
    model.held = held
    made = k.run(tmp_path, (), DUMP, model_object=model)
    assert made.result.status == "completed"
    said = [r for r in caplog.records if "prompt.cut" in r.getMessage()]
    assert len(said) == times
    assert all("context_window" in r.pairs["fix"] for r in said)


class Counting(Local):
    """A local server that counts all it is sent, the tools as well."""

    async def complete(self, request):
        self.held = 10**6
        tools = sum(len(f"{tool.description}{tool.parameters}") for tool in request.tools)
        async for chunk in super().complete(request):
            if chunk.usage is not None:
                chunk.usage = Usage(chunk.usage.input_tokens + tools // 4, 10)
            yield chunk


def test_the_closing_request_is_not_taken_for_a_cut_one_because_it_has_no_tools(tmp_path, caplog):
    tool = replace(DUMP, description="Gives a part of the dump. " * 400)
    model = Counting({"replies": [*DUMPS[:2], k.say("what was found")]})
    made = k.run(tmp_path, (), tool, model_object=model, limits={"max_iterations": 2})
    assert made.result.status == "max_iterations"
    assert not [r for r in caplog.records if "prompt.cut" in r.getMessage()]


class Refusing(ScriptedModel):
    """A server that holds less than it said, and names how much when it is sent more."""

    refused = 0

    async def complete(self, request):
        size = sum(estimate(m.content) for m in request.messages)
        if size > 4000:
            self.refused += 1
            raise ContextOverflow("This model's maximum context length is 4000 tokens.")
        async for chunk in super().complete(request):
            yield chunk


def test_a_window_the_server_names_is_kept_to_from_then_on(tmp_path):
    model = Refusing({"replies": [*DUMPS, k.say("done")]})
    made = k.run(tmp_path, (), DUMP, model_object=model, context={"summarise": False})
    assert (made.result.status, model.refused) == ("completed", 1)
    assert made.all_valid()


class Reserving(ScriptedModel):
    """A server that counts the room asked for the reply as well, as most do."""

    refused = 0

    async def complete(self, request):
        if request.max_tokens + sum(estimate(m.content) for m in request.messages) > 4096:
            self.refused += 1
            raise ContextOverflow(
                "This model's maximum context length is 4096 tokens. However, you requested 4500 "
                "tokens (404 in the messages, 4096 in the completion)."
            )
        async for chunk in super().complete(request):
            yield chunk


def test_a_request_that_was_too_large_with_its_reply_only_keeps_its_whole_context(tmp_path):
    model = Reserving({"replies": [k.say("done")]})
    settings = {"context_window": 32_000, "max_tokens": 4096}
    made = k.run(tmp_path, (), model_object=model, model=settings)
    assert (made.result.status, model.refused) == ("completed", 1)
    assert not [kind for kind in made.types if kind.startswith("context.")]


def test_a_closing_request_that_is_too_large_is_sent_again_smaller(tmp_path):
    replies = [DUMPS[0], OVERFLOW, k.say("what was found")]
    limits = {"max_iterations": 1}
    made = k.run(tmp_path, replies, DUMP, limits=limits, context={"summarise": False})
    assert (made.result.status, len(made.model.requests)) == ("max_iterations", 3)
    assert made.result.answer.startswith("what was found")


def test_a_request_whose_messages_are_too_large_is_made_smaller_even_when_it_seems_to_fit(tmp_path):
    said = "maximum context length is 8192 tokens. However, your messages resulted in 9120 tokens."
    refused = {"status": 400, "body": {"error": {"message": said}}}
    tables = {"model": {"context_window": 100_000}, "context": {"summarise": False}}
    made = k.run(tmp_path, [*DUMPS[:2], refused, k.say("done")], DUMP, **tables)
    assert made.result.status == "completed"
    sizes = [sum(len(m.content) for m in r.messages) for r in made.model.requests]
    assert sizes[3] < sizes[2]

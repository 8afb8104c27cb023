"""Asking again is for failures that may pass, with growing pauses and an end."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from fake_server import FakeServer
from model_kit import ids, request

from runner.errors import ContextOverflow, ModelError, ModelRefused, ModelUnavailable
from runner.model.ask import ask
from runner.model.base import Chunk
from runner.model.ollama import OllamaModel
from runner.model.scripted import ScriptedModel


class Asked:
    """What one call of `ask` came to, with a clock that only `sleep` moves."""

    def __init__(self, replies: list[dict], **options) -> None:
        self.model = ScriptedModel({"replies": replies})
        self.events: list[tuple[str, dict]] = []
        self.shown: list[str] = []
        self.now = 100.0
        self.reply = None
        self.error: ModelError | None = None
        fields = options.pop("fields", {})
        asyncio.run(self._run(fields, options))

    async def _run(self, fields: dict, options: dict) -> None:
        try:
            self.reply = await ask(
                self.model,
                request(**fields),
                next_id=ids(),
                emit=lambda kind, **data: self.events.append((kind, data)),
                on_text=self.shown.append,
                on_restart=lambda: self.shown.append("<again>"),
                rng=random.Random(1),
                sleep=self._sleep,
                clock=lambda: self.now,
                **options,
            )
        except ModelError as error:
            self.error = error

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def delays(self) -> list[float]:
        return [data["delay"] for kind, data in self.events if kind == "model.retried"]


def test_a_passing_failure_is_tried_again_with_growing_pauses():
    asked = Asked([{"status": 503}] * 6 + [{"text": "ok"}], retries=6)
    assert asked.reply.text == "ok"
    longest = [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert all(most / 2 <= delay <= most for delay, most in zip(asked.delays, longest, strict=True))
    assert asked.now == pytest.approx(100 + sum(asked.delays), abs=0.01)
    assert "503" in asked.events[0][1]["reason"]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_there_are_exactly_so_many_further_attempts(retries):
    asked = Asked([{"status": 500}] * 9, retries=retries)
    assert type(asked.error) is ModelUnavailable
    assert len(asked.model.requests) == retries + 1
    assert len(asked.delays) == retries


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"status": 401}, ModelRefused),
        ({"status": 404, "body": {"error": "model 'x' not found"}}, ModelRefused),
        ({"status": 400, "body": {"error": "prompt is too long"}}, ContextOverflow),
    ],
)
def test_a_lasting_failure_is_asked_once(reply, kind):
    asked = Asked([reply, {"text": "never"}])
    assert type(asked.error) is kind
    assert len(asked.model.requests) == 1
    assert not asked.events


def test_the_pause_the_server_names_is_kept_up_to_a_minute():
    asked = Asked([{"status": 429, "headers": {"retry-after": "60"}}, {"text": "ok"}])
    assert asked.delays == [60.0]
    asked = Asked([{"status": 429, "headers": {"retry-after": "61"}}, {"text": "ok"}])
    assert type(asked.error) is ModelUnavailable
    assert not asked.events


def test_nothing_is_tried_again_past_the_deadline():
    asked = Asked([{"status": 503}] * 9, retries=9, deadline=103.0)
    assert type(asked.error) is ModelUnavailable
    assert asked.now < 103.0
    assert 1 <= len(asked.delays) < 5


def test_what_a_broken_attempt_showed_is_called_void_before_the_next():
    asked = Asked([{"text": "x" * 30, "cut": 1}, {"text": "whole"}])
    assert asked.shown == ["x" * 12, "<again>", "whole"]
    assert asked.reply.text == "whole"
    asked = Asked([{"status": 503}, {"text": "whole"}])
    assert asked.shown == ["whole"]


def test_a_silent_model_is_given_up_after_its_timeout_and_asked_again():
    asked = Asked([{"hang": True}, {"text": "ok"}], fields={"timeout": 0.05})
    assert asked.reply.text == "ok"
    assert "nothing for 0.05 s" in asked.events[0][1]["reason"]


def test_the_timeout_is_the_time_without_a_byte_not_the_whole_time():
    class Slow(ScriptedModel):
        async def complete(self, request):
            async for chunk in super().complete(request):
                await asyncio.sleep(0.2)
                yield chunk

    async def run():
        reply = {"thinking": "a", "text": "b", "calls": [{"name": "t"}] * 4}
        return await ask(
            Slow({"replies": [reply]}), request(timeout=0.6), next_id=ids(), emit=print, retries=0
        )

    assert asyncio.run(run()).text == "b"


def test_a_server_that_hangs_sees_one_request_and_loses_it_in_time():
    async def run(server: FakeServer) -> None:
        model = OllamaModel("m", base_url=server.url)
        with pytest.raises(ModelUnavailable, match="sent nothing"):
            await ask(model, request(timeout=0.3), next_id=ids(), emit=print, retries=0)

    with FakeServer({"replies": [{"hang": True}], "repeat_last": True}) as server:
        begun = time.monotonic()
        asyncio.run(run(server))
        assert time.monotonic() - begun < 3
        assert len(server.chats()) == 1


def test_cancelling_the_caller_is_not_a_timeout():
    async def run() -> None:
        model = ScriptedModel({"replies": [{"hang": True}], "repeat_last": True})
        task = asyncio.ensure_future(ask(model, request(), next_id=ids(), emit=print))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(model.requests) <= 1

    asyncio.run(run())


def test_a_cancel_while_a_silent_request_is_taken_down_is_not_lost():
    class Lingering(ScriptedModel):
        async def complete(self, request):
            try:
                await asyncio.Event().wait()
            finally:
                closing.set()
                await asyncio.Event().wait()
            yield Chunk()

    async def run() -> None:
        model = Lingering({"replies": []})
        asking = ask(model, request(timeout=0.01), next_id=ids(), emit=lambda *_, **__: None)
        task = asyncio.ensure_future(asking)
        await closing.wait()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done
        assert task.cancelled()

    closing = asyncio.Event()
    asyncio.run(run())

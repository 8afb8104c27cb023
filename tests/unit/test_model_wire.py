"""One HTTP request over a real socket: what a server may send, and what we say when it does not."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from fake_server import FakeServer
from model_kit import ids, outcome, request

from runner.errors import ModelRefused, ModelUnavailable
from runner.model.ask import ask
from runner.model.ollama import OllamaModel
from runner.model.wire import CutError, exchange
from runner.types import Message

HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
DONE = '{"message": {"content": "ok"}, "done": true}\n'


@asynccontextmanager
async def serving(*pieces: bytes, pause: float = 0.0):
    """A server that reads a request and sends these pieces; yields its address."""

    handling: set[asyncio.Task] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.add(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        finally:
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.wait(handling)


def lines_of(*pieces: bytes) -> list[str]:
    async def run() -> list[str]:
        async with serving(*pieces) as url, exchange("GET", url) as answer:
            return [line async for line in answer.lines() if line]

    return asyncio.run(run())


def failure_of(*pieces: bytes) -> str:
    async def run() -> None:
        async with serving(*pieces) as url, exchange("GET", url, advice="do this"):
            pass

    with pytest.raises(ModelUnavailable) as caught:
        asyncio.run(run())
    assert str(caught.value).endswith("; do this")
    return str(caught.value)


def test_a_line_ends_at_a_line_feed_and_at_no_other_sign():
    text = "a\u2028b\x85c\x0cd"
    assert lines_of(HEAD, b"\r\n", f"{text}\r\n\n  \nlast".encode()) == [text, "last"]


def test_lines_are_the_same_however_the_bytes_arrive():
    data = "eins\n\nzwei ü\n".encode() + b"drei" * 3 + b"\r\nvier"
    pieces = [data[i : i + 1] for i in range(len(data))]
    assert lines_of(HEAD, b"\r\n", *pieces) == ["eins", "zwei ü", "dreidreidrei", "vier"]


def test_a_compressed_answer_is_read():
    body = gzip.compress(b"one\ntwo\n")
    assert lines_of(HEAD, b"content-encoding: gzip\r\n\r\n", body) == ["one", "two"]


@pytest.mark.parametrize(
    "rest",
    [
        b"content-length: 99\r\n\r\none\n",
        b"transfer-encoding: chunked\r\n\r\n4\r\none\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n4\r\none\n\r\nxyz\r\n",
        b"content-encoding: gzip\r\n\r\nno gzip at all\n",
    ],
    ids=["length", "chunks", "bad chunk", "bad gzip"],
)
def test_an_answer_that_breaks_off_is_cut_and_its_text_is_what_came(rest):
    async def text(url: str) -> str:
        async with exchange("GET", url) as answer:
            return await answer.text()

    async def run() -> str:
        async with serving(HEAD, rest) as url:
            return await text(url)

    with pytest.raises(CutError):
        lines_of(HEAD, rest)
    assert asyncio.run(run()) in {"one\n", ""}


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ((), "closed without an answer"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n\r\n",), "does not speak HTTP"),
        ((b"\x00\x01\x02\r\n\r\n",), "does not speak HTTP"),
    ],
)
def test_a_server_of_another_kind_is_unreachable_and_says_why(pieces, says):
    assert says in failure_of(*pieces)


def test_a_redirect_is_not_followed():
    with FakeServer([{"status": 302, "headers": {"location": "/api/tags"}}]) as server:
        error = outcome(OllamaModel("m", base_url=server.url))
        assert server.paths == ["/api/chat"]
    assert type(error) is ModelRefused
    assert "redirects elsewhere (302)" in str(error)


def test_bytes_of_a_long_line_are_a_sign_of_life():
    line = DONE.replace("ok", "x" * 20).encode()
    pieces = [line[at : at + 10] for at in range(0, len(line), 10)]

    async def run() -> str:
        async with serving(HEAD, b"\r\n", *pieces, pause=0.15) as url:
            model = OllamaModel("m", base_url=url)
            reply = await ask(model, request(timeout=0.6), next_id=ids(), emit=print, retries=0)
            return reply.text

    assert len(pieces) * 0.15 > 0.6
    assert asyncio.run(run()) == "x" * 20


def test_a_text_that_is_no_unicode_is_sent_all_the_same():
    with FakeServer([{"text": "ok"}]) as server:
        said = (Message(role="user", content="a\ud800b é"),)
        outcome(OllamaModel("m", base_url=server.url), messages=said)
        assert server.chats()[0]["messages"][0]["content"] == "a?b é"


def test_an_answer_to_a_request_larger_than_a_buffer_arrives():
    with FakeServer([{"text": "ok"}]) as server:
        said = (Message(role="user", content="z" * 3_000_000),)
        outcome(OllamaModel("m", base_url=server.url), messages=said)
        assert server.chats()[0]["messages"][0]["content"] == said[0].content


@pytest.mark.parametrize("key", ["sekrit\n", "sekrité"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key):
    with FakeServer([{"text": "never"}]) as server:
        error = outcome(OllamaModel("m", base_url=server.url, api_key=key))
    assert type(error) is ModelRefused
    assert "api_key_env" in str(error)
    assert "sekrit" not in str(error)


@pytest.mark.parametrize("url", ["http://[::1", "http://x\x00y", "http://h:0", "x://h"])
def test_an_address_that_is_none_is_refused_in_one_line(url):
    async def run() -> None:
        async with exchange("GET", url):
            pass

    with pytest.raises(ModelRefused, match="base_url") as caught:
        asyncio.run(run())
    assert "\n" not in str(caught.value)


def test_a_password_in_the_address_is_not_shown():
    with FakeServer([]) as server:
        url = server.url.replace("://", "://me:sekrit@")
    error = outcome(OllamaModel("m", base_url=url))
    assert "connection refused" in str(error)
    assert "sekrit" not in str(error)


def test_a_server_elsewhere_is_asked_through_the_proxy_and_one_here_is_not(monkeypatch):
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with FakeServer([{"text": "here"}]) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        assert outcome(OllamaModel("m", base_url=server.url)).text == "here"
        outcome(OllamaModel("m", base_url="http://ollama.invalid:11434"))
        assert server.paths == ["/api/chat", "http://ollama.invalid:11434/api/chat"]


@pytest.mark.parametrize("proxy", ["nothing://x", "http://x:y"])
def test_a_proxy_variable_that_is_wrong_is_named_as_the_cause(monkeypatch, proxy):
    monkeypatch.setenv("HTTP_PROXY", proxy)
    error = outcome(OllamaModel("m", base_url="http://ollama.invalid:11434"))
    assert type(error) is ModelRefused
    assert "proxy" in str(error)


def test_the_first_request_loads_httpx_without_its_command_line():
    script = """
import asyncio, json, sys
from runner.model.ollama import OllamaModel
assert "httpx" not in sys.modules
asyncio.run(OllamaModel("m", base_url=sys.argv[1]).describe())
print(json.dumps([name in sys.modules for name in ("httpx", "httpx._main", "rich", "pygments")]))
"""
    with FakeServer([]) as server:
        done = subprocess.run(
            [sys.executable, "-c", script, server.url], capture_output=True, text=True, check=True
        )
    assert json.loads(done.stdout) == [True, False, False, False]

"""The in-process model: its protocol against a stand-in library, and a real file when one is given."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fake_server import FakeServer
from model_kit import TOOL, called, outcome, reply_of

from runner.errors import ConfigError, ContextOverflow, ModelRefused, ModelUnavailable
from runner.model.llamacpp import LlamacppModel
from runner.types import Message, ModelReply, Usage

FILE = os.environ.get("RUNNER_TEST_GGUF", "")
LIBRARY = """
from types import SimpleNamespace as CommonParams_
def CommonParams():
    part = lambda: CommonParams_(n_threads=0)
    return CommonParams_(model=CommonParams_(path=""), cpuparams=part(), cpuparams_batch=part())
class Server:
    def __init__(self, parameters):
        if "bad" in parameters.model.path:
            raise RuntimeError("failed to load\\nthe model")
        self.listening_address = ADDRESS
        SEEN.append(parameters)
SEEN = []
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Puts a library of that name first on the path, whose server is at the given address."""

    def install(address: str):
        folder = tmp_path / "library"
        folder.mkdir()
        (folder / "xllamacpp.py").write_text(f"ADDRESS = {address!r}\n{LIBRARY}")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)

    yield install
    sys.modules.pop("xllamacpp", None)


def model_file(tmp_path: Path, name: str = "m.gguf") -> Path:
    (tmp_path / name).write_bytes(b"GGUF")
    return tmp_path / name


def against(library, tmp_path, reply: dict, **fields):
    with FakeServer([reply]) as server:
        library(server.url)
        found = outcome(LlamacppModel(model_file(tmp_path)), **fields)
        return found, server.chats()[0], server.headers[0]


def test_a_reply_with_calls_is_read_and_the_port_has_a_key(library, tmp_path):
    calls = [{"name": "a", "arguments": {"x": 1}}, {"name": "a", "arguments": {"x": 1}}]
    schema = {"type": "object"}
    fields = {"context_window": 4096, "stop": ("X",), "schema": schema}
    reply, body, headers = against(library, tmp_path, {"thinking": "hm", "calls": calls}, **fields)
    assert called(reply) == [("a", {"x": 1})] * 2
    assert isinstance(reply, ModelReply)
    assert (reply.reasoning, reply.usage) == ("hm", Usage(100, 20))
    (parameters,) = sys.modules["xllamacpp"].SEEN
    assert (parameters.n_ctx, parameters.hostnames) == (4096, ["127.0.0.1"])
    assert headers["authorization"] == f"Bearer {parameters.api_keys[0]}"
    assert len(parameters.api_keys[0]) >= 32
    assert body["tools"][0]["function"]["name"] == TOOL.name
    assert (body["stop"], body["response_format"]["json_schema"]["schema"]) == (["X"], schema)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"status": 500}, ModelUnavailable),
        (
            {"status": 400, "body": {"error": {"code": 400, "message": "exceed_context_size"}}},
            ContextOverflow,
        ),
        ({"text": "x" * 40, "cut": 2}, ModelUnavailable),
        ({"text": "x" * 40, "cut": 2, "framing": "close"}, ModelUnavailable),
        ({"text": "x", "error": "decode failed"}, ModelUnavailable),
    ],
)
def test_its_failures_are_classified_like_any_servers(library, tmp_path, reply, kind):
    error, _, _ = against(library, tmp_path, reply)
    assert type(error) is kind, error


def test_a_file_that_is_missing_or_cannot_be_loaded_is_one_clear_line(library, tmp_path):
    with pytest.raises(ConfigError, match=r"none\.gguf"):
        LlamacppModel(tmp_path / "none.gguf")
    library("nowhere")
    error = outcome(LlamacppModel(model_file(tmp_path, "bad.gguf")))
    assert type(error) is ModelRefused
    assert "bad.gguf: failed to load the model" in str(error)


@pytest.mark.skipif(find_spec("xllamacpp") is not None, reason="xllamacpp is installed")
def test_without_the_library_the_extra_is_named(tmp_path):
    error = outcome(LlamacppModel(model_file(tmp_path)))
    assert type(error) is ModelRefused
    assert "slotrunner[local]" in str(error)


@pytest.mark.skipif(not FILE, reason="RUNNER_TEST_GGUF names no model file")
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
def test_a_real_model_answers_within_its_schema_and_its_window():
    async def run() -> tuple[ModelReply, object]:
        model = LlamacppModel(Path(FILE), threads=1)
        schema = {
            "type": "object",
            "properties": {"colour": {"type": "string", "maxLength": 20}},
            "required": ["colour"],
            "additionalProperties": False,
        }
        fields = {"context_window": 1024, "max_tokens": 60, "timeout": 120.0}
        reply = await reply_of(model, schema=schema, tools=(), **fields)
        try:
            await reply_of(model, messages=reply_messages(), **fields)
        except ContextOverflow as error:
            return reply, error
        finally:
            await model.close()
        return reply, None

    reply, error = asyncio.run(run())
    assert '"colour"' in reply.text
    assert isinstance(error, ContextOverflow)


def reply_messages():
    """One message larger than the window."""
    return (Message(role="user", content="word " * 3000),)

"""The model the config names, or the first one at hand."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_server import FakeServer

from runner.errors import ConfigError
from runner.model.choose import choose, make_model
from runner.model.ollama import OllamaModel
from runner.model.scripted import ScriptedModel


@dataclass(frozen=True)
class Settings:
    name: str = ""
    base_url: str = ""
    api_key_env: str = ""


def chosen(environ: dict[str, str], settings: Settings | None = None) -> str:
    return asyncio.run(choose(settings or Settings(), environ=environ, limit_s=5))


def nowhere() -> str:
    with FakeServer([]) as server:
        return server.url


@pytest.mark.parametrize(
    ("able", "expected"),
    [
        (
            {"plain": ["completion"], "able": ["completion", "tools"], "other": ["tools"]},
            "ollama/able",
        ),
        ({"nomic-embed": ["embedding"], "plain": ["completion"]}, "ollama/plain"),
    ],
)
def test_a_running_ollama_gives_its_first_model_that_can_use_tools(able, expected):
    with FakeServer({"models": list(able), "capabilities": able}) as server:
        assert chosen({"OLLAMA_HOST": server.url}) == expected
        assert chosen({}, Settings(base_url=server.v1)) == expected


def test_the_provider_whose_key_is_set_comes_next():
    url = nowhere()
    assert chosen({"OLLAMA_HOST": url, "OPENAI_API_KEY": "k"}).startswith("openai/")
    both = {"OLLAMA_HOST": url, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    assert chosen(both).startswith("anthropic/")
    with FakeServer({"models": ["plain"], "capabilities": {"plain": ["completion"]}}) as server:
        assert chosen({"OLLAMA_HOST": server.url, "GEMINI_API_KEY": "k"}).startswith("gemini/")


def test_nothing_at_hand_is_one_message_with_the_ways_out():
    url = nowhere()
    with pytest.raises(ConfigError) as caught:
        chosen({"OLLAMA_HOST": url, "OPENAI_API_KEY": ""})
    text = str(caught.value)
    assert "\n" not in text
    assert all(
        way in text for way in (url, "ollama pull", "OPENAI_API_KEY", "--model", "runner demo")
    )


def test_a_server_that_does_not_answer_costs_the_limit_and_no_more():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ = {"OLLAMA_HOST": f"127.0.0.1:{silent.getsockname()[1]}", "OPENAI_API_KEY": "k"}
        begun = time.monotonic()
        name = asyncio.run(choose(Settings(), environ=environ, limit_s=0.1))
        assert name.startswith("openai/")
        assert time.monotonic() - begun < 3


def test_a_scripted_model_is_a_file_of_the_project(tmp_path: Path):
    (tmp_path / "demo.json").write_text(json.dumps({"replies": []}))
    for name in ("scripted/demo.json", f"scripted/{tmp_path / 'demo.json'}"):
        model = make_model(Settings(name=name), project=tmp_path, environ={})
        assert isinstance(model, ScriptedModel)
        assert model.name == name


def test_an_ollama_model_takes_its_address_from_the_config_else_from_the_environment(
    tmp_path: Path,
):
    def address(settings: Settings) -> str:
        model = make_model(settings, project=tmp_path, environ={"OLLAMA_HOST": "h:1"})
        assert isinstance(model, OllamaModel)
        assert model.name == "ollama/qwen2.5:7b"
        return model.url

    assert address(Settings(name="ollama/qwen2.5:7b")) == "http://h:1"
    assert address(Settings(name="ollama/qwen2.5:7b", base_url="http://x:2/v1")) == "http://x:2"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings(name="qwen2.5:7b"), "PROVIDER/MODEL"),
        (Settings(name="ollama/"), "PROVIDER/MODEL"),
        (Settings(name="/x"), "PROVIDER/MODEL"),
        (Settings(name="scripted/none.json"), "none.json"),
        (Settings(name="llamacpp/none.gguf"), "none.gguf"),
        (Settings(name="openai/x", api_key_env="NOT_SET"), "NOT_SET"),
        (Settings(name="anthropic/x"), "ANTHROPIC_API_KEY is not set; export"),
    ],
)
def test_a_wrong_name_file_or_key_is_a_config_error(tmp_path: Path, settings, says):
    with pytest.raises(ConfigError, match=says):
        make_model(settings, project=tmp_path, environ={})


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        (Settings(name="openai/x", base_url="http://127.0.0.1:9/v1"), {}),
        (Settings(name="openai/x"), {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}),
        (Settings(name="gemini/x"), {"GOOGLE_API_KEY": "k"}),
        (Settings(name="some_other_provider/x"), {}),
    ],
)
def test_no_key_is_asked_for_where_none_may_be_needed(tmp_path: Path, settings, environ):
    assert make_model(settings, project=tmp_path, environ=environ).name == settings.name

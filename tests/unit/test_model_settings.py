"""The settings of another model: what is about one provider's server stays with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import ConfigError, Runner, ScriptedModel
from runner.config import config_from
from runner.settings import ModelConfig

LOCAL = ModelConfig(
    name="ollama/qwen2.5:7b", base_url="http://10.0.0.5:11434", api_key_env="OLLAMA_KEY",
    context_window=16384, tool_mode="json", temperature=0.5, timeout=60.0,
)  # fmt: skip


def test_another_model_of_the_same_provider_is_at_the_same_place() -> None:
    other = LOCAL.named("ollama/llama3.2:3b")
    assert other.name == "ollama/llama3.2:3b"
    assert (other.base_url, other.context_window) == (LOCAL.base_url, 16384)


@pytest.mark.parametrize("name", ["anthropic/claude-sonnet-4-5", "ollama2/x", "scripted/a.json"])
def test_another_provider_gets_neither_address_nor_key_nor_window_of_this_one(name: str) -> None:
    other = LOCAL.named(name)
    assert (other.base_url, other.api_key_env) == ("", "")
    assert (other.context_window, other.tool_mode) == (0, "auto")
    assert (other.temperature, other.timeout) == (0.5, 60.0)


def test_without_a_name_the_address_is_that_of_ollama() -> None:
    unnamed = ModelConfig(base_url="http://10.0.0.5:11434")
    assert unnamed.named("ollama/qwen2.5:7b").base_url == unnamed.base_url
    assert unnamed.named("openai/gpt").base_url == ""


def test_an_agent_may_have_no_settings_of_its_own(tmp_path: Path) -> None:
    config = config_from({"agents": {"helper": {}}}, project=tmp_path)
    assert config.agents["helper"].max_iterations == 10


def test_a_name_may_stand_for_the_model(tmp_path: Path) -> None:
    runner = Runner(model="openai/gpt", config={"model": {"temperature": 0.3}})
    assert (runner.config.model.name, runner.config.model.temperature) == ("openai/gpt", 0.3)
    with pytest.raises(ConfigError):
        Runner(model=ScriptedModel)  # type: ignore[arg-type] # the class and not an object of it

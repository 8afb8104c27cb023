"""Which model: the one the config names, or the first that is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import ConfigError
from .base import Model

LIMIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Provider:
    """A cloud provider: the variable its key is in, and the model taken when none is named."""

    key_env: str
    default: str


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider("ANTHROPIC_API_KEY", "claude-sonnet-5-5"),
    "openai": Provider("OPENAI_API_KEY", "gpt-5.2"),
    "gemini": Provider("GEMINI_API_KEY", "gemini-flash-latest"),
    "mistral": Provider("MISTRAL_API_KEY", "mistral-medium-latest"),
    "deepseek": Provider("DEEPSEEK_API_KEY", "deepseek-chat"),
    "xai": Provider("XAI_API_KEY", "grok-4.5-latest"),
    "groq": Provider("GROQ_API_KEY", "openai/gpt-oss-120b"),
}
NOTHING_FOUND = (
    "no model: no Ollama with a model answers at {url} and no provider's key is set. "
    "Either run `ollama serve` and `ollama pull qwen2.5:7b`, or set one of {keys}, "
    "or name a model with --model PROVIDER/MODEL or [model] name; "
    "`runner demo` shows a run without any model"
)


class Settings(Protocol):
    """The part of `[model]` that says which model and where."""

    @property
    def name(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def api_key_env(self) -> str: ...


def make_model(settings: Settings, *, project: Path, environ: Mapping[str, str]) -> Model:
    """The model of that name. Raises `ConfigError` when the name, its file or its key is wrong.

    Only the adapter in use is imported: a run is on its way to its first request here.
    """
    provider, slash, rest = settings.name.partition("/")
    if not (provider and slash and rest):
        raise ConfigError(
            f"[model] name: {settings.name!r} is not PROVIDER/MODEL, such as 'ollama/qwen2.5:7b'"
        )
    if provider == "scripted":
        from .scripted import ScriptedModel, read_script

        return ScriptedModel(read_script(project / rest), settings.name)
    if provider == "llamacpp":
        from .llamacpp import LlamacppModel

        return LlamacppModel(project / rest, settings.name)
    key, key_env = _key(settings, provider, environ)
    if provider in {"ollama", "ollama_chat"}:
        from .ollama import OllamaModel

        url = settings.base_url or environ.get("OLLAMA_HOST", "")
        return OllamaModel(rest, base_url=url, api_key=key)
    from .litellm import LitellmModel

    return LitellmModel(settings.name, base_url=settings.base_url, api_key=key, key_env=key_env)


async def choose(
    settings: Settings, *, environ: Mapping[str, str], limit_s: float = LIMIT_S
) -> str:
    """The name of a model at hand when the config names none.

    A running Ollama's first model that can use tools, else the provider whose key is set, else
    an Ollama model that cannot. Raises `ConfigError` when there is none.
    """
    from .ollama import OllamaModel, list_models, mend_url

    url, _ = mend_url(settings.base_url or environ.get("OLLAMA_HOST", ""))
    plain = ""
    for name in await list_models(url, timeout_s=limit_s):
        info = await OllamaModel(name, base_url=url).describe()
        if info.tools:
            return f"ollama/{name}"
        if info.tools is False and not plain and "embed" not in name:
            plain = f"ollama/{name}"
    for provider, known in PROVIDERS.items():
        if environ.get(known.key_env):
            return f"{provider}/{known.default}"
    if plain:
        return plain
    keys = ", ".join(known.key_env for known in PROVIDERS.values())
    raise ConfigError(NOTHING_FOUND.format(url=url, keys=keys))


def _key(settings: Settings, provider: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The key and the variable it is in; another server than the provider's own never gets its key."""
    if settings.api_key_env:
        key = environ.get(settings.api_key_env, "")
        if not key:
            raise ConfigError(
                f"[model] api_key_env: the environment variable {settings.api_key_env} is not set"
            )
        return key, settings.api_key_env
    known = PROVIDERS.get(provider)
    if known is None or settings.base_url:
        return "", ""
    key = environ.get(known.key_env, "")
    if not key and not any(environ.get(name) for name in _other_ways(provider)):
        raise ConfigError(
            f"{known.key_env} is not set; export {known.key_env}=…, or name the variable that "
            "holds the key in [model] api_key_env, or another model with --model"
        )
    return key, known.key_env


def _other_ways(provider: str) -> tuple[str, ...]:
    """Variables by which litellm itself finds a key, or a server that may need none."""
    upper = provider.upper()
    tokens = {"gemini": ("GOOGLE_API_KEY",), "anthropic": ("ANTHROPIC_AUTH_TOKEN",)}
    return (f"{upper}_API_BASE", f"{upper}_BASE_URL", *tokens.get(provider, ()))

"""`runner doctor`: is everything a run needs there, and what would fix what is not?"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial

import click

from ..config import Config, ModelConfig
from ..errors import ConfigError, RunnerError
from ..model.base import ModelInfo
from ..plugin_loading import unknown_disabled
from . import surroundings
from .common import Common
from .options import command
from .skills import scanned
from .surroundings import Check, Level
from .text import table

_SMALL_WINDOW = 4096
_MOST_NAMED = 8
_LIMIT_S = 1.0  # a server that takes longer to say what it has is called silent
_OLLAMA = frozenset({"ollama", "ollama_chat"})
_QUICK = _OLLAMA | {"scripted", "llamacpp"}
_MODEL_FIX = (
    "ollama serve in another terminal, then: ollama pull qwen2.5:7b; or export ANTHROPIC_API_KEY=… "
    "(or another provider's) and name a model of it in [model] name; runner demo needs none"
)
_MARKS = {"ok": "ok", "warning": "WARN", "error": "FAIL"}


@command("runner doctor", "runner doctor --json", "runner doctor --model ollama/qwen2.5:7b")
@click.option("--json", "as_json", is_flag=True, help="A list of {name, level, found, fix}.")
def doctor(common: Common, as_json: bool) -> int:
    """Check config, model, skills, folders and surroundings. Exit 1 when something is broken."""
    checks = list(_all(common))
    if as_json:
        common.console.json([asdict(check) for check in checks], indent=2)
    else:
        rows = [(_MARKS[check.level], check.name, check.found) for check in checks]
        for check, line in zip(checks, table(rows), strict=True):
            common.console.answer(line)
            if check.fix:
                common.console.answer(f"      fix: {check.fix}")
    return int(any(check.level == "error" for check in checks))


def _all(common: Common) -> Iterator[Check]:
    try:
        config = common.load(warn=False)
    except ConfigError as error:
        for problem in error.problems:
            yield Check("config", "error", problem, "correct that line; see: runner config show")
        return
    parts = [partial(_model, thorough=common.verbose > 0) if p is _model else p for p in _PARTS]
    offset = time.time() - time.monotonic()
    with ThreadPoolExecutor(len(parts)) as pool:  # the longest of them is all one waits for
        for checks in pool.map(lambda part: list(part(config)), parts):
            yield from (replace(c, fix="") if c.level == "ok" else c for c in checks)
    yield from surroundings.jumped(offset, time.time() - time.monotonic())


def _config(config: Config) -> Iterator[Check]:
    where = str(config.file) if config.file else "none: built-in defaults"
    changed = [f"{key} ({origin})" for key, origin in config.origins.items() if _by_hand(origin)]
    yield Check("config", "ok", "; ".join([where, *changed]))
    for warning in config.warnings:
        yield Check("config", "warning", warning, "correct the value")


def _by_hand(origin: str) -> bool:
    return origin != "default" and not origin.startswith("file:")


def _model(config: Config, *, thorough: bool = False) -> Iterator[Check]:
    from ..model.choose import choose

    try:
        name = config.model.name or asyncio.run(choose(config.model, environ=os.environ))
        yield from asyncio.run(_described(config, name, thorough=thorough))
    except RunnerError as error:
        said, semicolon, way = str(error).partition(" is not set; ")  # it names the fix itself
        yield (
            Check("model", "error", f"{said} is not set", way)
            if semicolon
            else Check("model", "error", said, _MODEL_FIX)
        )


async def _described(config: Config, name: str, *, thorough: bool) -> list[Check]:
    from ..model.choose import make_model

    settings = replace(config.model, name=name)
    provider = name.partition("/")[0]
    model = make_model(settings, project=config.project, environ=os.environ)
    chosen = "" if config.model.name else ", chosen because [model] name is empty"
    found = [Check("model", "ok", f"{name}{chosen}")]
    if provider not in _QUICK and not thorough:
        await model.close()
        said = "not looked up: litellm takes seconds to load; runner doctor -v does it"
        return [*found, Check("tools", "ok", said), *await _server(settings, name)]
    try:
        async with asyncio.timeout(None if thorough else _LIMIT_S):
            info = await model.describe()
    except TimeoutError:
        info = ModelInfo(name=name)
    finally:
        await model.close()
    if provider in _OLLAMA and info.tools is None:
        url = getattr(model, "url", "its server")
        said = f"{name} is not known at {url}, or nothing answers there"
        fix = f"ollama serve in another terminal, then: ollama pull {name.partition('/')[2]}"
        return [Check("model", "error", said, fix)]
    found += _abilities(config, info, sent=provider in _OLLAMA)
    return found if provider in _QUICK else [*found, *await _server(settings, name)]


def _abilities(config: Config, info: ModelInfo, *, sent: bool) -> Iterator[Check]:
    from ..opening import mode_of, window_of

    can = {True: "native calls", False: "no native calls", None: "not known"}[info.tools]
    fix = "choose a model that lists 'tools' in `ollama show`"
    level: Level = "warning" if info.tools is False else "ok"
    yield Check("tools", level, f"{can}; tool mode {mode_of(config, info)}", fix)
    window, most = window_of(config, info), info.context_window or 0
    can = f" of {most:,} the model can" if most else ""
    said = f"{window:,} tokens{can}{', sent as num_ctx' if sent else ''}"
    if most and window > most:
        fix = f"set [model] context_window to {most} or less"
        yield Check("context window", "warning", said, fix)
        return
    level = "warning" if window < _SMALL_WINDOW else "ok"
    fix = "set [model] context_window to 8192 or more"
    yield Check("context window", level, said, fix)


async def _server(settings: ModelConfig, name: str) -> list[Check]:
    from ..errors import ModelError
    from ..model.choose import PROVIDERS
    from ..model.wire import exchange

    known = PROVIDERS.get(name.partition("/")[0])
    if settings.base_url:
        try:
            async with (
                asyncio.timeout(_LIMIT_S),
                exchange("GET", settings.base_url) as answer,
            ):
                return [Check("server", "ok", f"{settings.base_url} answers ({answer.status})")]
        except (ModelError, TimeoutError) as error:
            said = str(error) or f"{settings.base_url} does not answer"
            return [Check("server", "error", said, "start it, or correct [model] base_url")]
    if known is not None and not settings.api_key_env and not os.environ.get(known.key_env):
        fix = f"export {known.key_env}=…, or name another variable in [model] api_key_env"
        return [Check("server", "error", f"{known.key_env} is not set", fix)]
    if known is None:
        return []
    return [Check("server", "ok", "not asked: a cloud provider's requests cost money")]


def _skills(config: Config) -> Iterator[Check]:
    found = scanned(config).skills
    ready = [skill for skill in found if skill.live]
    fix = "runner init, or runner skills new NAME"
    tools = sum(len(skill.tools) for skill in ready)
    level: Level = "ok" if ready else "warning"
    yield Check("skills", level, f"{len(ready)} ready with {tools} tools", fix)
    wrong = sorted((s for s in found if not s.live), key=lambda s: s.state != "failed")
    for skill in wrong[:_MOST_NAMED]:
        level = _LEVELS.get(skill.state, "warning")
        said = f"{skill.name} is {skill.state}: {skill.reason}"
        yield Check("skills", level, said, f"runner skills check {skill.location}")
    if (more := len(wrong) - _MOST_NAMED) > 0:
        yield Check("skills", "warning", f"{more} more are not ready", "runner skills list")
    for text in unknown_disabled(config, [skill.name for skill in found]):
        yield Check("skills", "warning", text, "correct the name in [plugins] disabled")
    for root in config.paths.skills:
        if not root.is_dir():
            yield Check("skills", "warning", f"there is no folder {root}", f"mkdir -p {root}")


_LEVELS: Mapping[str, Level] = {"failed": "error", "disabled": "ok"}
_PARTS: tuple[Callable[[Config], Iterator[Check]], ...] = (
    *(_config, _model, _skills, surroundings.folders, surroundings.watch),
    *(surroundings.isolation, surroundings.system, surroundings.python),
)

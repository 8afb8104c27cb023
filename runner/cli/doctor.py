"""`runner doctor`: is everything a run needs there, and what would fix what is not?"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import click

from ..config import Config, ModelConfig
from ..errors import ConfigError, RunnerError
from ..model.base import ModelInfo
from .common import Common
from .options import command
from .skills import scanned
from .text import table

_OLDEST_CLOCK = 1_735_689_600  # 2025: before it, keys and certificates are refused
_SMALL_WINDOW = 4096
_SERVER_LIMIT_S = 5.0
Level = Literal["ok", "warning", "error"]
_MARKS = {"ok": "ok", "warning": "WARN", "error": "FAIL"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `fix` says what to do about it."""

    name: str
    level: Level
    found: str
    fix: str = ""


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
    for part in _PARTS:
        yield from (replace(c, fix="") if c.level == "ok" else c for c in part(config))


def _config(config: Config) -> Iterator[Check]:
    where = str(config.file) if config.file else "none: built-in defaults"
    changed = [f"{key} ({origin})" for key, origin in config.origins.items() if _by_hand(origin)]
    yield Check("config", "ok", "; ".join([where, *changed]))
    for warning in config.warnings:
        yield Check("config", "warning", warning, "correct the value")


def _by_hand(origin: str) -> bool:
    return origin != "default" and not origin.startswith("file:")


def _model(config: Config) -> Iterator[Check]:
    from ..model.choose import choose

    try:
        name = config.model.name or asyncio.run(choose(config.model, environ=os.environ))
        yield from asyncio.run(_described(config, name))
    except RunnerError as error:
        yield Check(
            "model", "error", str(error), 'see the README, "A model"; runner demo needs none'
        )


async def _described(config: Config, name: str) -> list[Check]:
    from ..model.choose import make_model

    settings = replace(config.model, name=name)
    model = make_model(settings, project=config.project, environ=os.environ)
    try:
        info = await model.describe()
    finally:
        await model.close()
    ollama = name.startswith("ollama")
    if ollama and info.tools is None:
        url = getattr(model, "url", "its server")
        said = f"{name} is not known at {url}, or nothing answers there"
        fix = f"ollama serve; ollama pull {name.partition('/')[2]}"
        return [Check("model", "error", said, fix)]
    chosen = "" if config.model.name else ", chosen because [model] name is empty"
    found = [Check("model", "ok", f"{name}{chosen}"), *_abilities(config, info)]
    return found if ollama else [*found, *await _server(settings, name)]


def _abilities(config: Config, info: ModelInfo) -> Iterator[Check]:
    from ..opening import mode_of, window_of

    can = {True: "native calls", False: "no native calls", None: "not known"}[info.tools]
    fix = "choose a model that lists 'tools' in `ollama show`"
    level: Level = "warning" if info.tools is False else "ok"
    yield Check("tools", level, f"{can}; tool mode {mode_of(config, info)}", fix)
    window = window_of(config, info)
    most = f" of {info.context_window:,} the model can" if info.context_window else ""
    level = "warning" if window < _SMALL_WINDOW else "ok"
    fix = "set [model] context_window to 8192 or more"
    yield Check("context window", level, f"{window:,} tokens{most}", fix)


async def _server(settings: ModelConfig, name: str) -> list[Check]:
    from ..errors import ModelError
    from ..model.choose import PROVIDERS
    from ..model.wire import exchange

    known = PROVIDERS.get(name.partition("/")[0])
    if settings.base_url:
        try:
            async with (
                asyncio.timeout(_SERVER_LIMIT_S),
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
    for skill in found:
        if not skill.live:
            level = "error" if skill.state == "failed" else "warning"
            said = f"{skill.name} is {skill.state}: {skill.reason}"
            yield Check("skills", level, said, f"runner skills check {skill.location}")
    for root in config.paths.skills:
        if not root.is_dir():
            yield Check("skills", "warning", f"there is no folder {root}", f"mkdir -p {root}")


def _folders(config: Config) -> Iterator[Check]:
    workspace, state = config.paths.workspace, config.paths.state
    if not workspace.is_dir():
        yield Check(
            "workspace", "error", f"there is no folder {workspace}", f"mkdir -p {workspace}"
        )
    else:
        yield Check("workspace", "ok", str(workspace))
    nearest = next(p for p in (state, *state.parents) if p.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        yield Check(
            "state", "error", f"{nearest} cannot be written", "--state DIR, or [paths] state"
        )
        return
    yield from _private(state)


def _private(state: Path) -> Iterator[Check]:
    kept = [path for path in state.rglob("*") if path.is_file()] if state.is_dir() else []
    loose = [path for path in kept if path.stat().st_mode & 0o077]
    if loose:
        said = f"{len(loose)} of {len(kept)} files in {state} can be read by others"
        yield Check("state", "warning", said, f"chmod -R go= {state}")
    else:
        yield Check("state", "ok", f"{state}, {len(kept)} file(s), yours alone")


def _watch(config: Config) -> Iterator[Check]:
    from ..catalog.filesystems import events_here, silent_mount

    if config.watch.backend in {"off", "poll"}:
        yield Check("watch", "ok", f"{config.watch.backend}, as configured")
        return
    for root in config.paths.skills:
        kind = silent_mount(root)
        if kind:
            fix = "nothing to do: edits are polled for; or move the skills to a local disk"
            yield Check("watch", "warning", f"{root} is on {kind}, which tells of no edits", fix)
            return
    yield Check("watch", "ok", f"file events by {events_here()}")


def _environment(_config: Config) -> Iterator[Check]:
    yield Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    strays = sorted(stray_pth_files())
    for path in strays:
        fix = "look inside: it runs code whenever Python starts; remove it unless you put it there"
        yield Check("pth files", "warning", f"{path} belongs to no installed package", fix)
    if not strays:
        yield Check("pth files", "ok", "each belongs to an installed package")
    if time.time() < _OLDEST_CLOCK:
        yield Check("clock", "error", time.strftime("%Y-%m-%d"), "set the clock: certificates fail")
    else:
        yield Check("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %z"))


def stray_pth_files() -> set[str]:
    """`.pth` files beside the installed packages that none of them put there."""
    from importlib.metadata import distributions

    folders = {
        Path(p).resolve() for p in sys.path if p.endswith(("site-packages", "dist-packages"))
    }
    there = {path for folder in folders for path in folder.glob("*.pth")}
    for distribution in distributions():
        for file in distribution.files or ():
            if file.suffix == ".pth":
                there.discard(Path(str(distribution.locate_file(file))).resolve())
    return {str(path) for path in there if path.name not in _KNOWN_PTH}


_KNOWN_PTH = {"_virtualenv.pth", "easy-install.pth"}
_PARTS: tuple[Callable[[Config], Iterator[Check]], ...] = (
    *(_config, _model, _skills, _folders, _watch, _environment),
)

"""A skill's own hooks: registered when it is loaded, swapped on reload, gone with it."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from .calls.worker import Workers
from .catalog.skill import Skill, Snapshot
from .errors import PluginError, SkillError
from .log import get_logger
from .plugins import Plugins

log = get_logger()


class SkillHooks:
    """Keeps the registered hooks in step with the snapshot. The old ones stay until the new ones are in."""

    def __init__(self, plugins: Plugins, workers: Workers) -> None:
        self._plugins = plugins
        self._workers = workers
        self._registered: dict[str, tuple[int, _Hooks]] = {}
        self._following = asyncio.Lock()  # one reload after the other: the newest is the last

    async def follow(self, snapshot: Snapshot) -> None:
        """Registers, swaps and removes. A skill whose module fails keeps its last good hooks."""
        async with self._following:
            await self._follow(snapshot)

    async def _follow(self, snapshot: Snapshot) -> None:
        wanted = {s.name: s for s in snapshot.skills if s.live and s.hooks}
        for name in [n for n in self._registered if n not in wanted]:
            self._plugins.unregister(_label(name))
            del self._registered[name]
        for name, skill in wanted.items():
            generation, _hooks = self._registered.get(name, (None, None))
            if generation != skill.generation:
                await self._swap(name, skill)

    async def _swap(self, name: str, skill: Skill) -> None:
        if skill.load_module is None:
            return
        _generation, before = self._registered.get(name, (0, None))
        try:
            hooks = _Hooks(await self._workers.run(skill.load_module), skill.hooks)
            self._plugins.unregister(_label(name))
            self._plugins.register(hooks, _label(name))
        except (SkillError, PluginError) as error:
            if before is not None:
                self._plugins.unregister(_label(name))
                self._plugins.register(before, _label(name))
            log.warning("skill.hooks_failed", skill=name, reason=str(error))
            return
        self._registered[name] = skill.generation, hooks


class _Hooks:
    """The hooks the manifest names, and nothing else of the module. Keeps its generation alive."""

    def __init__(self, module: Any, names: tuple[str, ...]) -> None:
        self.module = module
        for name in names:
            function = getattr(module, name, None)
            if not callable(function) or not hasattr(function, "runner_impl"):
                raise PluginError(f"the manifest names the hook {name!r}; mark it with @hookimpl")
            setattr(self, name, _off_the_core(function))


def _off_the_core(function: Callable[..., Any]) -> Callable[..., Any]:
    """A skill's `async def` hook runs on a thread of its own: skill code never runs on our loop."""
    if not inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return asyncio.run(function(*arguments))

    return call


def _label(name: str) -> str:
    return f"skill {name}"

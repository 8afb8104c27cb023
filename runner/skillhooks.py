"""A skill's own hooks: registered when it is loaded, swapped on reload, gone with it."""

from __future__ import annotations

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
        self._registered: dict[str, int] = {}

    async def follow(self, snapshot: Snapshot) -> None:
        """Registers, swaps and removes. A skill whose module fails keeps its last good hooks."""
        wanted = {s.name: s for s in snapshot.skills if s.live and s.hooks}
        for name in [n for n in self._registered if n not in wanted]:
            self._plugins.unregister(_label(name))
            del self._registered[name]
        for name, skill in wanted.items():
            if self._registered.get(name) != skill.generation:
                await self._swap(name, skill)

    async def _swap(self, name: str, skill: Skill) -> None:
        if skill.load_module is None:
            return
        try:
            module = await self._workers.run(skill.load_module)
            hooks = _Hooks(module, skill.hooks)
            self._plugins.unregister(_label(name))
            self._plugins.register(hooks, _label(name))
        except (SkillError, PluginError) as error:
            log.warning("skill.hooks_failed", skill=name, reason=str(error))
            return
        self._registered[name] = skill.generation


class _Hooks:
    """The hooks the manifest names, and nothing else of the module. Keeps its generation alive."""

    def __init__(self, module: Any, names: tuple[str, ...]) -> None:
        self.module = module
        for name in names:
            setattr(self, name, getattr(module, name))


def _label(name: str) -> str:
    return f"skill {name}"

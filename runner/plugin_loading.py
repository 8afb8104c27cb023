"""Where plugins come from: entry points, the config's modules and shell commands, objects."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .config import Config
from .errors import PluginError
from .plugins import Plugins
from .shellhooks import ShellHooks


def load_plugins(plugins: Plugins, config: Config, objects: Iterable[Any]) -> None:
    """Registers them all, in this order; raises `PluginError` for the first that is wrong."""
    disabled = set(config.plugins.disabled)
    if _entry_points():
        plugins.load_entry_points(disabled)
    for name in config.plugins.modules:
        if name not in disabled:
            module = _module(name, config.project)
            own = hasattr(module, "make_plugin")  # a plugin with a state of its own, one per runner
            plugins.register(_made(module, name) if own else module, name, owned=own)
    if config.hooks.pre_tool_use or config.hooks.post_tool_use:
        shell = ShellHooks(
            config.hooks.pre_tool_use, config.hooks.post_tool_use, config.plugins.hook_timeout
        )
        plugins.register(shell, "hooks in the config")
    for number, plugin in enumerate(objects):
        plugins.register(plugin, f"{type(plugin).__name__}-{number}")


def unknown_disabled(config: Config, skills: Iterable[str]) -> list[str]:
    """Disabled names that nothing has: the usual sign of a typing error."""
    if not config.plugins.disabled:
        return []
    known = {*skills, *config.plugins.modules, *_entry_points()}
    found = []
    for name in config.plugins.disabled:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            found.append(f"plugins.disabled: there is no skill and no plugin {name!r}{hint}")
    return found


def _made(module: Any, name: str) -> Any:
    try:
        return module.make_plugin()
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            f"[plugins] modules: make_plugin() of {name!r} raised {type(error).__name__}: {error}"
        ) from error


def _entry_points() -> list[str]:
    from importlib.metadata import entry_points

    return [point.name for point in entry_points(group="runner.plugins")]


def _module(name: str, project: Path) -> Any:
    try:
        return _from_file(name, project) if name.endswith(".py") else importlib.import_module(name)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            f"[plugins] modules: {name!r} cannot be imported ({type(error).__name__}: {error}); "
            "it must be importable from here, or a .py path relative to the project"
        ) from error


def _from_file(name: str, project: Path) -> Any:
    path = project / name
    if not path.is_file():
        raise PluginError(f"[plugins] modules: there is no file {path}")
    module_name = f"_runner_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"[plugins] modules: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module

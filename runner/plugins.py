"""The only code that calls a hook: one implementation at a time, each with a deadline."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

import pluggy

from . import hookspecs
from .calls.worker import Workers
from .errors import PluginError
from .log import get_logger
from .types import Raised, Returned

MOST_HANGING = 3  # calls of one implementation that never ended
log = get_logger()


class HookFailed(Exception):
    """An implementation raised, took too long or answered nonsense. The text names hook and plugin."""


class Plugins:
    """All registered plugins. A misspelt hook or argument is an error at registration."""

    def __init__(self, workers: Workers, *, timeout: float = 5.0) -> None:
        self._workers = workers
        self._timeout = timeout
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._heard: frozenset[str] = frozenset()
        self._hanging: Counter[Callable[..., Any]] = Counter()
        self._owned: dict[str, Callable[[], Any]] = {}

    def register(self, plugin: Any, name: str, *, owned: bool = False) -> None:
        """Adds a plugin, or raises `PluginError` and leaves nothing of it behind.

        `owned`: it was made for this runner, whose end closes it.
        """
        problem = misspelt(plugin) or _without_hooks(plugin)
        if problem:
            raise PluginError(f"plugin {name}: {problem}")
        try:
            self._manager.register(plugin, name=name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            if self._manager.has_plugin(name):
                self._manager.unregister(name=name)
            raise PluginError(f"plugin {name}: {error}") from error
        finally:
            self._note_hooks()
        if owned and callable(getattr(plugin, "close", None)):
            self._owned[name] = plugin.close

    async def close(self, seconds: float) -> None:
        """Closes the plugins that were made for this runner; each gets so long, failures are logged."""
        for name, end in self._owned.items():
            try:
                async with asyncio.timeout(seconds):
                    await self._on_a_thread(end, [])
            except Exception as error:  # noqa: BLE001 - a plugin may raise anything
                log.warning("plugin.close_failed", plugin=name, reason=repr(error))
        self._owned.clear()

    def unregister(self, name: str) -> None:
        """Takes a plugin out; unknown names are fine."""
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)
            self._note_hooks()

    def load_entry_points(self, disabled: Collection[str] = ()) -> None:
        """Registers what installed distributions offer as `runner.plugins`."""
        for name in disabled:
            self._manager.set_blocked(name)
        try:
            self._manager.load_setuptools_entrypoints("runner.plugins")
            self._manager.check_pending()
        except Exception as error:
            raise PluginError(f"an installed plugin cannot be loaded: {error}") from error
        finally:
            self._note_hooks()

    def has(self, hook: str) -> bool:
        """Is anybody listening? Cheap: asked several times on every call."""
        return hook in self._heard

    def _note_hooks(self) -> None:
        hooks = self._manager.hook
        self._heard = frozenset(n for n in hookspecs.NAMES if getattr(hooks, n).get_hookimpls())

    async def first(self, hook: str, expected: type | tuple[type, ...], **arguments: Any) -> Any:
        """The first answer that is not None. Raises `HookFailed`: guards stay shut."""
        async for name, call in self._implementations(hook, arguments):
            answer = await call()
            if answer is None:
                continue
            if not isinstance(answer, expected):
                raise HookFailed(f"{hook} of plugin {name} answered {type(answer).__name__}")
            return answer
        return None

    async def fold(self, hook: str, key: str, value: Any, **arguments: Any) -> Any:
        """Each implementation sees the last value; one that fails is skipped and logged."""
        expected = type(value)
        for implementation in self._listed(hook):
            call = self._bound(hook, implementation, {key: value, **arguments})
            answer = await self._safely(hook, implementation.plugin_name, call)
            if isinstance(answer, expected):
                value = answer
            elif answer is not None:
                log.warning(
                    "hook.failed", hook=hook, plugin=implementation.plugin_name, reason="wrong type"
                )
        return value

    async def notify(self, hook: str, **arguments: Any) -> None:
        """Tells everybody; whoever fails is logged."""
        async for name, call in self._implementations(hook, arguments):
            await self._safely(hook, name, call)

    async def collect(self, hook: str, *, strict: bool = False, **arguments: Any) -> list[Any]:
        """Every answer. `strict`: the first failure is raised, else it is logged."""
        answers = []
        async for name, call in self._implementations(hook, arguments):
            answer = await call() if strict else await self._safely(hook, name, call)
            if answer is not None:
                answers.append(answer)
        return answers

    async def _safely(self, hook: str, name: str, call: Callable[[], Any]) -> Any:
        try:
            return await call()
        except HookFailed as error:
            log.warning("hook.failed", hook=hook, plugin=name, reason=str(error))
            return None

    async def _implementations(
        self, hook: str, arguments: dict[str, Any]
    ) -> AsyncIterator[tuple[str, Callable[[], Any]]]:
        for implementation in self._listed(hook):
            yield implementation.plugin_name, self._bound(hook, implementation, arguments)

    def _listed(self, hook: str) -> Sequence[Any]:
        return list(reversed(getattr(self._manager.hook, hook).get_hookimpls()))

    def _bound(
        self, hook: str, implementation: Any, arguments: dict[str, Any]
    ) -> Callable[[], Any]:
        wanted = [arguments[name] for name in implementation.argnames]

        async def call() -> Any:
            try:
                return await self._answer(implementation.function, wanted)
            except asyncio.CancelledError:
                raise
            except TimeoutError:
                reason = f"did not answer in {self._timeout:g} s"
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything; it becomes a HookFailed
                reason = f"raised {type(error).__name__}: {error}"
            raise HookFailed(f"{hook} of plugin {implementation.plugin_name} {reason}")

        return call

    async def _answer(self, function: Callable[..., Any], wanted: list[Any]) -> Any:
        async with asyncio.timeout(self._timeout):
            if inspect.iscoroutinefunction(function):
                return await function(*wanted)
            return await self._on_a_thread(function, wanted)

    async def _on_a_thread(self, function: Callable[..., Any], wanted: list[Any]) -> Any:
        """A call that is given up on keeps its thread: after a few of them no more are begun."""
        if self._hanging[function] >= MOST_HANGING:
            raise RuntimeError(f"nothing: {MOST_HANGING} earlier calls of it still hang")
        job = self._workers.submit(lambda _job: function(*wanted))
        try:
            outcome = await job.future
        except asyncio.CancelledError:
            self._hanging[function] += 1
            job.when_late(lambda _outcome: self._hanging.subtract((function,)))
            raise
        if isinstance(outcome, Raised):
            if isinstance(outcome.error, Exception):
                raise outcome.error
            raise RuntimeError(f"{type(outcome.error).__name__}: {outcome.error}")  # noqa: TRY004
        return outcome.value if isinstance(outcome, Returned) else None


def _without_hooks(plugin: Any) -> str:
    """A guard that was never marked would be silently absent."""
    marked = (getattr(plugin, name, None) for name in dir(plugin))
    if any(hasattr(one, f"{hookspecs.PROJECT}_impl") for one in marked):
        return ""
    return "it has no hooks; mark its functions with @hookimpl"


def misspelt(plugin: Any) -> str:
    """What is wrong with a plugin's hook names and arguments, with the right ones; empty when nothing."""
    from difflib import get_close_matches

    specs = arguments_of_hooks()
    for name in dir(plugin):
        function = getattr(plugin, name, None)
        if getattr(function, f"{hookspecs.PROJECT}_impl", None) is None or not callable(function):
            continue
        if name not in specs:
            near = get_close_matches(name, specs, 1, 0.5)
            return f"there is no hook {name!r}; did you mean {near[0] if near else ', '.join(specs)!r}?"
        for argument in inspect.signature(function).parameters:
            if argument not in specs[name]:
                return f"hook {name} has no argument {argument!r}; it has {', '.join(specs[name]) or 'none'}"
    return ""


def arguments_of_hooks() -> dict[str, tuple[str, ...]]:
    """Hook name → argument names, as declared."""
    return {
        name: tuple(inspect.signature(getattr(hookspecs, name)).parameters)
        for name in hookspecs.NAMES
    }

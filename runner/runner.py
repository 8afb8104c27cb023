"""Builds and owns everything: model, skills, workers, plugins, slots. The library's front door."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from .board import board
from .builtins import standard_built_ins
from .calls.locks import PathLocks
from .calls.output import capture
from .calls.permissions import Policy
from .calls.process import Processes
from .calls.worker import SkillLoop, Workers
from .catalog.functions import as_skill
from .catalog.registry import Registry
from .catalog.skill import Change, Skill
from .catalog.watcher import Watcher
from .config import Config, ModelConfig, config_from, load_config
from .errors import ConfigError, SessionError
from .events import Listener
from .log import get_logger
from .memory import Memory, find, keep, memory_tools
from .model.base import Model, ModelInfo
from .model.choose import choose, make_model
from .observing import EventPump
from .opening import Plan, new_id
from .plugin_loading import load_plugins, unknown_disabled
from .plugins import Plugins, arguments_of_hooks
from .redact import Redactor
from .session import Session
from .skillhooks import SkillHooks
from .slots import ModelGate, Slots
from .state import Approver, Shared
from .subagent import agent_tool, unknown_skills
from .types import TurnResult

LOCAL_SLOTS, CLOUD_SLOTS = 2, 5
PLUGIN_SECONDS = 2.0  # for a plugin to send what it holds before the runner is gone
T = TypeVar("T")
log = get_logger()


class Runner:
    """Runs turns with a model and skills. Use as `async with Runner.from_config() as runner`.

    Everything may be given as an object instead of a file: `model` a `Model` or its name, `skills` functions
    or `Skill`s, `plugins` objects with hook implementations, `approver` an async function of
    `(call, tool, session)` that answers with a bool, 'allow', 'allow_session' or 'deny'.
    """

    def __init__(
        self,
        *,
        model: Model | str | None = None,
        skills: Iterable[Any] = (),
        plugins: Iterable[Any] = (),
        config: Config | Mapping[str, Any] | None = None,
        approver: Approver | None = None,
        environ: Mapping[str, str] | None = None,
        record: bool = True,
    ) -> None:
        if not isinstance(config, Config):
            config = config_from(config or {}, project=Path.cwd())
        if isinstance(model, str):
            config, model = replace(config, model=config.model.named(model)), None
        elif model is not None and not isinstance(model, Model):
            raise ConfigError(f"model: {model!r} is neither a Model nor the name of one")
        self.config = config
        self._model: Model | None = model
        self._skills = tuple(skills)
        self._plugin_objects = tuple(plugins)
        self._approver = approver
        self._environ = os.environ if environ is None else environ
        self._record = record
        self._shared: Shared | None = None
        self._starting = asyncio.Lock()
        self._slots: Slots | None = None
        self._info: ModelInfo | None = None
        self._policy: Policy | None = None
        self._watcher: Watcher | None = None
        self._pump: EventPump | None = None
        self._skill_hooks: SkillHooks | None = None
        self._other_models: dict[str, Model] = {}
        self.warnings: list[str] = list(config.warnings)

    @classmethod
    def from_config(
        cls,
        file: str | Path | None = None,
        *,
        sets: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        **objects: Any,
    ) -> Self:
        """A runner as a config file describes it. Raises `ConfigError` with all problems."""
        path = Path(file) if file is not None else None
        config = load_config(file=path, sets=sets, options=options or {})
        return cls(config=config, **objects)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Loads plugins, skills and the model. Called by the first `run`, too."""
        async with self._starting:
            if self._shared is not None:
                return
            workers = Workers()
            capture.begin()
            try:
                await self._start(workers)
            except BaseException:
                capture.end()
                workers.close()
                self._shared = None
                raise

    async def run(
        self, goal: str, *, session: str | None = None, listeners: Sequence[Listener] = ()
    ) -> TurnResult:
        """One turn in a session of its own, or in the one of that id."""
        async with self.session(session, listeners=listeners) as opened:
            return await opened.run(goal)

    def run_sync(self, goal: str, **options: Any) -> TurnResult:
        """`run` for scripts without an event loop; starts and closes the runner."""

        async def once() -> TurnResult:
            async with self:
                return await self.run(goal, **options)

        if _in_a_loop():
            raise SessionError("run_sync() is for scripts; here is an event loop: await run()")
        self._starting = asyncio.Lock()  # of the loop that begins now
        return asyncio.run(once())

    def session(
        self,
        id: str | None = None,  # noqa: A002 - the field's word
        *,
        listeners: Sequence[Listener] = (),
        stream: bool = True,
    ) -> _Opening:
        """A conversation: `async with runner.session() as session`. Its id resumes it."""
        return _Opening(self, id or new_id(), tuple(listeners), stream=stream)

    def status(self) -> dict[str, Any]:
        """The board: slots, queues, calls in flight, breakers, gates, skills and their problems."""
        return board(self.shared, self._slots, self._watcher)

    async def remember(self, text: str, tags: Sequence[str] = ()) -> Memory:
        """Keeps a text between sessions, secrets masked. Raises `RecordError` when it cannot."""
        await self.start()
        return await keep(self.shared, text, tags)

    async def recall(self, query: str, limit: int = 5) -> list[Memory]:
        """What was kept and fits the words best."""
        await self.start()
        return await find(self.shared, query, limit)

    @property
    def shared(self) -> Shared:
        """What all sessions share; for the command line and tests."""
        return _started(self._shared)

    @property
    def info(self) -> ModelInfo:
        """What is known about the model."""
        return _started(self._info)

    async def open(
        self, session_id: str, listeners: Sequence[Listener], *, stream: bool
    ) -> Session:
        """A session, opened. `session()` is the usual way."""
        await self.start()
        plan = Plan(
            id=session_id,
            config=self.config,
            model=_started(self._model),
            info=self.info,
            policy=_started(self._policy),
            workspace=_real(self.config.paths.workspace),
            record=self._record,
            listeners=[*listeners, *([self._pump.put] if self._pump else ())],
            stream=stream,
        )
        session = Session(self.shared, _started(self._slots), plan)
        return await session.__aenter__()

    async def close(self) -> None:
        """Ends everything this runner started; calls that hang are left behind, never waited for."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        if self._watcher is not None:
            await shared.workers.run(self._watcher.stop)
            self._watcher = None
        if self._pump is not None:
            await self._pump.close()
        await shared.plugins.close(PLUGIN_SECONDS)
        for model in filter(None, (self._model, *self._other_models.values())):
            await model.close()
        await shared.processes.close()
        shared.registry.close()
        shared.skill_loop.close()
        shared.workers.close()
        capture.end()

    async def _start(self, workers: Workers) -> None:
        c = self.config
        plugins = Plugins(workers, timeout=c.plugins.hook_timeout)
        load_plugins(plugins, c, self._plugin_objects)
        patterns = [
            p for many in await plugins.collect("secret_patterns", strict=True) for p in many
        ]
        keys = [c.model.api_key_env] if c.model.api_key_env else []
        redactor = Redactor(self._environ, keys, patterns)
        registry = await self._registry(plugins)
        self._shared = Shared(
            config=c,
            registry=registry,
            workers=workers,
            skill_loop=SkillLoop(),
            processes=Processes(environ=self._environ),
            plugins=plugins,
            redactor=redactor,
            locks=PathLocks(),
            model_gate=ModelGate(1),
            protected=_protected(c),
            approver=self._approver,
            environ=self._environ,
            spills=c.paths.state / "spills",
            snapshot_skip=frozenset({str(_real(c.paths.state))}),
            built_ins={**standard_built_ins(), **memory_tools(), "agent": agent_tool(c)},
            model_for=self._other_model,
        )
        self._pump = EventPump(plugins)
        self._skill_hooks = SkillHooks(plugins, workers)
        snapshot = await workers.run(registry.scan)
        await self._skill_hooks.follow(snapshot)
        self._policy = _policy(c)
        self.warnings += unknown_skills(c, snapshot)
        self.warnings += unknown_disabled(c, [skill.name for skill in snapshot.skills])
        self.warnings += self._policy.unmatched(tuple(snapshot.tools))
        self._watch(registry)
        await self._ready_model(plugins)

    async def _ready_model(self, plugins: Plugins) -> None:
        c, shared = self.config, self.shared
        if self._model is None:
            name = c.model.name or await choose(c.model, environ=self._environ)
            self._model = await self._made(plugins, c.model.named(name))
        self.warnings += getattr(self._model, "warnings", [])
        self._info = info = await self._model.describe()
        slots = c.limits.slots or (LOCAL_SLOTS if info.local else CLOUD_SLOTS)
        self._slots, shared.model_gate = Slots(slots), shared.asking_gate(info, self._model.name)

    async def _other_model(self, name: str) -> Model:
        """A model for an agent that names its own; made once and closed with the runner."""
        if name not in self._other_models:
            made = await self._made(self.shared.plugins, self.config.model.named(name))
            self._other_models.setdefault(name, made)
        return self._other_models[name]

    async def _made(self, plugins: Plugins, settings: ModelConfig) -> Model:
        made: Model | None = await plugins.first("make_model", object, settings=settings)
        return made or make_model(settings, project=self.config.project, environ=self._environ)

    async def _registry(self, plugins: Plugins) -> Registry:
        given = [as_skill(s) for s in self._skills]
        for many in await plugins.collect("register_skills"):
            given += [as_skill(s) for s in many]
        c = self.config
        return Registry(
            c.paths.skills,
            project=c.project,
            extra=[s for s in given if isinstance(s, Skill)],
            disabled=c.plugins.disabled,
            environ=self._environ,
            hookspecs=arguments_of_hooks(),
        )

    def _watch(self, registry: Registry) -> None:
        if self.config.watch.backend == "off" or not self.config.paths.skills:
            return
        loop = asyncio.get_running_loop()
        watch = self.config.watch

        def changed(change: Change) -> None:
            try:
                loop.call_soon_threadsafe(self._changed, change)
            except RuntimeError:
                pass  # the host's loop has ended; so will the watcher

        self._watcher = Watcher(
            registry,
            backend=watch.backend,  # type: ignore[arg-type] # the config checked the choice
            debounce=watch.debounce,
            on_change=changed,
        )
        self._watcher.start()
        watcher = self._watcher
        self.shared.edits_pending = lambda: watcher.busy

    def _changed(self, change: Change) -> None:
        shared = self._shared
        if shared is None:
            return
        data = change.to_dict()
        for state in list(shared.sessions.values()):
            if state.parent is None:  # a sub-agent's events are its parent's
                state.emit("skills.changed", **data)
        log.info("skills.changed", **data)
        task = asyncio.ensure_future(self._follow(shared, data))
        shared.tasks.add(task)
        task.add_done_callback(shared.tasks.discard)

    async def _follow(self, shared: Shared, data: dict[str, Any]) -> None:
        """After a reload: the skills' own hooks are swapped, then plugins hear of it."""
        if self._skill_hooks is not None:
            await self._skill_hooks.follow(shared.registry.snapshot)
        if shared.plugins.has("skills_changed"):
            del data["generation"]
            await shared.plugins.notify("skills_changed", **data)


class _Opening:
    """`async with` opens the session; `await` does so without closing it."""

    def __init__(
        self, runner: Runner, id_: str, listeners: Sequence[Listener], *, stream: bool
    ) -> None:
        self._runner, self._id, self._listeners, self._stream = runner, id_, listeners, stream
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._runner.open(self._id, self._listeners, stream=self._stream)
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()


def _protected(config: Config) -> tuple[Path, ...]:
    """Folders whose change asks, whatever the policy allows: skills, config and state."""
    places = [*config.paths.skills, config.paths.state]
    places.append(config.file.parent if config.file is not None else config.project / "config")
    return tuple(map(_real, places))


def _real(place: Path) -> Path:
    """Where it really is; unlike `Path.resolve`, without an error for a link to itself."""
    return Path(os.path.realpath(place))


def _started(part: T | None) -> T:
    if part is None:
        raise SessionError("the runner has not been started; use `async with`")
    return part


def _policy(config: Config) -> Policy:
    p = config.permissions
    capabilities = {
        "fs.read": p.fs_read, "fs.write": p.fs_write, "net": p.net, "exec": p.exec, "env": p.env,
    }  # fmt: skip
    return Policy(capabilities, p.tools, p.scoped)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

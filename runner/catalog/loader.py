"""Import a skill's code: a private package for each version, compiled from bytes already read.

Never from a `.pyc` and never by `sys.path`: an edit of the same size in the same second is seen,
and two skills may both have a `helper.py`.
"""

from __future__ import annotations

import contextvars
import importlib
import importlib.abc
import importlib.util
import inspect
import re
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..errors import SkillError
from ..log import get_logger
from ..types import Entry
from . import siblings, signature, source

LOAD_SECONDS = 10.0
TEARDOWN_SECONDS = 2.0
PREFIX = "_skill_"
log = get_logger()


class Generation:
    """One version of a skill's code. Each module is imported at most once, by whoever comes first.

    Whoever holds it may import from it; when nobody does, its modules leave `sys.modules`.
    """

    __slots__ = (
        "__weakref__",
        "_imports",
        "_lock",
        "files",
        "folder",
        "number",
        "package",
        "seconds",
        "skill",
    )

    def __init__(
        self,
        skill: str,
        number: int,
        folder: str,
        files: Mapping[str, bytes],
        seconds: float = LOAD_SECONDS,
    ) -> None:
        self.skill = skill
        self.number = number
        self.folder = folder
        self.files = files
        self.seconds = seconds
        self.package = ""
        self._imports: dict[str, Future[ModuleType | str]] = {}
        self._lock = threading.Lock()

    @property
    def loaded(self) -> bool:
        """True once somebody asked for its code."""
        return bool(self._imports)

    def module(self, name: str) -> ModuleType:
        """The module of that name, imported on first use; raises `SkillError`."""
        with self._lock:
            future = self._imports.get(name)
            if future is None:
                future = self._imports[name] = Future()
                _register(self)
                self._start(name, future)
        try:
            found = future.result(self.seconds)
        except TimeoutError:
            found = f"{name}.py: the import did not end within {self.seconds:g} s; move the work into a function"
        if isinstance(found, str):
            raise self._failure(found)
        return found

    def entry(self, reference: str) -> Entry:
        """The function `module:function`, ready to be called; raises `SkillError`."""
        module_name, _, function_name = reference.partition(":")
        module = self.module(module_name)
        function = getattr(module, function_name, None)
        if not callable(function):
            what = (
                "has no function" if function is None else "has something else than a function as"
            )
            raise self._failure(f"{_file(module_name, self.files)}: {what} {function_name!r}")
        return Entry(
            function=_Held(function, self),
            context_parameter=_context_parameter(function),
            asynchronous=_asynchronous(function),
        )

    def find(self, name: str) -> tuple[str, bool] | None:
        """The file of a module inside the package and whether it is a package itself."""
        path = name.replace(".", "/")
        init = f"{path}/__init__.py" if path else "__init__.py"
        if init in self.files:
            return init, True
        if path and f"{path}.py" in self.files:
            return f"{path}.py", False
        inside = f"{path}/" if path else ""
        return ("", True) if any(file.startswith(inside) for file in self.files) else None

    def _start(self, name: str, future: Future[ModuleType | str]) -> None:
        context = contextvars.copy_context()
        worker = threading.Thread(
            target=context.run,
            args=(self._import, name, future),
            name=f"load {self.skill}",
            daemon=True,
        )
        worker.start()

    def _import(self, name: str, future: Future[ModuleType | str]) -> None:
        try:
            module = importlib.import_module(f"{self.package}.{name}")
        except BaseException as error:  # noqa: BLE001  # a skill may raise anything, sys.exit included
            # the reason as text: the error's frames would keep the generation alive
            reason = _reason(error, self)
            _forget(self.package)
            future.set_result(reason)
        else:
            future.set_result(module)

    def _failure(self, reason: str) -> SkillError:
        return SkillError(f"skill {self.skill} failed to load: {reason}")


def load_entry(folder: Path, reference: str, skill: str = "") -> Entry:
    """A function of the skill folder as it is on disk now; for processes without a registry."""
    files = source.read(str(folder), source.look(str(folder))).files
    return Generation(skill or folder.name, 1, str(folder), files).entry(reference)


def compile_module(files: Mapping[str, bytes], name: str, folder: str) -> CodeType:
    """The code of a module, sibling imports made relative; raises `SyntaxError` or `ValueError`."""
    path = f"{folder}/{name}"
    tree = siblings.relative(files, name, path)
    return compile(files[name] if tree is None else tree, path, "exec", dont_inherit=True)


def syntax_fault(name: str, error: Exception) -> str:
    """One line that says where the module is not Python."""
    if isinstance(error, SyntaxError):
        return f"{name}:{error.lineno or 1}: {type(error).__name__}: {error.msg}"
    return f"{name}: {error}"


class _Held:
    """A skill's function that keeps its generation alive while somebody may still call it."""

    __slots__ = ("__wrapped__", "_generation")

    def __init__(self, function: Callable[..., Any], generation: Generation) -> None:
        self.__wrapped__ = function
        self._generation = generation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of all generations in use, and nothing else."""

    def __init__(self) -> None:
        self.live: weakref.WeakValueDictionary[str, Generation] = weakref.WeakValueDictionary()
        self.lock = threading.Lock()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PREFIX):
            return None
        package, _, name = fullname.partition(".")
        generation = self.live.get(package)
        found = generation.find(name) if generation else None
        if generation is None or found is None:
            return None
        file, is_package = found
        loader = _Loader(generation.files, generation.folder, file)
        origin = f"{generation.folder}/{file}" if file else None
        spec = ModuleSpec(fullname, loader, origin=origin, is_package=is_package)
        spec.has_location = origin is not None
        return spec


class _Loader(importlib.abc.Loader):
    """Runs one module from the bytes of its generation."""

    def __init__(self, files: Mapping[str, bytes], folder: str, file: str) -> None:
        self._files = files
        self._folder = folder
        self._file = file

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self._file:
            exec(compile_module(self._files, self._file, self._folder), module.__dict__)  # noqa: S102  # this is the loader


_FINDER = _Finder()


def _register(generation: Generation) -> None:
    """Gives the generation a package name of its own and lets imports find it."""
    if generation.package:
        return
    slug = re.sub(r"\W", "_", generation.skill)
    base = f"{PREFIX}{slug}_g{generation.number}"
    with _FINDER.lock:
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
        name, count = base, 1
        while name in _FINDER.live or name in sys.modules:
            count += 1
            name = f"{base}_{count}"
        generation.package = name
        _FINDER.live[name] = generation
    weakref.finalize(generation, _release, name, generation.skill).atexit = False


def _release(package: str, skill: str) -> None:
    """Runs when the last holder is gone: forgets the modules and lets them tear down."""
    for module in _forget(package):
        teardown = module.__dict__.get("teardown")
        if callable(teardown):
            _in_thread(_tear_down, teardown, skill)


def _forget(package: str) -> list[ModuleType]:
    names = [n for n in list(sys.modules) if n == package or n.startswith(f"{package}.")]
    return [m for m in (sys.modules.pop(name, None) for name in names) if m is not None]


def _tear_down(teardown: Callable[[], object], skill: str) -> None:
    worker = _in_thread(_quietly, teardown, skill)
    worker.join(TEARDOWN_SECONDS)
    if worker.is_alive():
        log.warning("skill.teardown_hung", skill=skill, seconds=TEARDOWN_SECONDS)


def _quietly(teardown: Callable[[], object], skill: str) -> None:
    try:
        teardown()
    except Exception as error:  # noqa: BLE001  # somebody else's code, at a time nobody waits for it
        log.warning("skill.teardown_failed", skill=skill, error=repr(error))


def _in_thread(target: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name="teardown", daemon=True)
    thread.start()
    return thread


def _file(module: str, files: Mapping[str, bytes]) -> str:
    path = module.replace(".", "/")
    return f"{path}.py" if f"{path}.py" in files else f"{path}/__init__.py"


def _reason(error: BaseException, generation: Generation) -> str:
    """FILE:LINE and what happened there, in words that hide the private package's name."""
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(generation.folder):
        return syntax_fault(str(error.filename)[len(generation.folder) + 1 :], error)
    inside = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{generation.folder}/")
    ]
    where = (
        f"{inside[-1].filename[len(generation.folder) + 1 :]}:{inside[-1].lineno}: "
        if inside
        else ""
    )
    text = (
        _said(error).replace(f"{generation.package}.", "").replace(generation.package, "the skill")
    )
    hint = siblings.hint(error, generation.files)
    return f"{where}{type(error).__name__}{f': {text}' if text else ''}{hint}"


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  # the skill's own class; whoever waits must be told all the same
        return "<unprintable>"


def _context_parameter(function: Callable[..., Any]) -> str | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return None
    for parameter in parameters:
        annotation = parameter.annotation
        named = (
            annotation
            if isinstance(annotation, str)
            else getattr(annotation, "__name__", str(annotation))
        )
        if signature.is_context(parameter.name, "" if annotation is parameter.empty else named):
            return parameter.name
    return None


def _asynchronous(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # an object whose call is a coroutine
    )

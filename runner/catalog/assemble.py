"""Make a skill of a manifest and the bytes beside it: tools checked, nothing imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

from ..errors import SkillError
from ..types import JSON, NOTHING, Entry, Tool
from . import drift, hooknames, manifest, parameters, requirements, signature
from .loader import LOAD_SECONDS, Generation, compile_module, syntax_fault
from .manifest import Manifest, ToolSpec
from .skill import Form, Origin, Skill
from .source import Source

MODULES = ("skill.py", "main.py", "__init__.py")
Report = Callable[[Generation, str], None]
HookSpecs = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a skill is judged by: the environment, the known hooks and who hears of a failed load.

    Without `examine` modules are neither compiled nor compared with the manifest; loading does it.
    """

    environ: Mapping[str, str]
    report: Report
    hookspecs: HookSpecs = field(default_factory=lambda: NOTHING)
    examine: bool = True
    load_seconds: float = LOAD_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All that one version of a native or JSON skill is made of."""

    manifest: Manifest
    file: str
    form: Form
    source: Source
    number: int
    origin: Origin
    terms: Terms
    generation: Generation
    codes: dict[str, CodeType] = field(default_factory=dict)
    modules: dict[str, signature.Module] = field(default_factory=dict)


def assemble(parts: Parts) -> Skill:
    """The skill, ready or ineligible; raises `SkillError` beginning with the file's name."""
    said = parts.manifest
    if not said.tools and not said.hooks and "SKILL.md" not in parts.source.files:
        raise SkillError(f"{parts.file}: declares no tool; add [[tools]] or 'entry'")
    schemas = [_given_schema(spec, parts) for spec in said.tools]
    if parts.terms.examine:
        _examine(parts)
    tools = tuple([_tool(*pair, parts) for pair in zip(said.tools, schemas, strict=True)])
    missing = requirements.unmet(said.requires, parts.terms.environ) if said.requires else []
    folder = Path(parts.source.folder)
    return Skill(
        name=said.name,
        form=parts.form,
        path=folder / parts.file,
        location=folder,
        state="ineligible" if missing else "ready",
        reason="; ".join(missing),
        generation=parts.number,
        description=said.description,
        tools=tools,
        hooks=said.hooks,
        digest=parts.source.digest,
        body_path=folder / "SKILL.md" if "SKILL.md" in parts.source.files else None,
        origin=parts.origin,
        load_module=_module_loader(parts),
    )


def _module_loader(parts: Parts) -> Callable[[], ModuleType] | None:
    if not any(name.endswith(".py") for name in parts.source.files):
        return None
    first = next((spec.entry for spec in parts.manifest.tools if spec.entry), "")
    name = first.partition(":")[0] or _default_module(parts)
    generation, report = parts.generation, parts.terms.report

    def load() -> ModuleType:
        try:
            return generation.module(name)
        except SkillError as error:
            report(generation, str(error))
            raise

    return load


def _tool(spec: ToolSpec, given: JSON | None, parts: Parts) -> Tool:
    reference = spec.entry or f"{_default_module(parts)}:{_default_function(spec, parts)}"
    schema = _derived(spec, reference, parts) if given is None else given
    if spec.examples:
        _check_examples(spec, schema, parts.file)
    if parts.terms.examine:
        _check_function(spec, reference, schema, parts)
    generation, report = parts.generation, parts.terms.report
    return Tool(
        name=spec.name,
        description=spec.description,
        parameters=schema,
        flags=spec.flags,
        skill=parts.manifest.name,
        generation=parts.number,
        entry=reference,
        examples=spec.examples,
        origin=parts.origin,
        folder=parts.source.folder,
        load=lambda: _entry(generation, report, reference, (spec.name, schema)),
        load_named=lambda name: _entry(generation, report, name, None),
        code=generation,
    )


def _entry(
    generation: Generation, report: Report, reference: str, said: tuple[str, JSON] | None
) -> Entry:
    """Loads a function; the first failure is reported so that the skill's state says so."""
    try:
        return _loaded(generation, reference, said)
    except SkillError as error:
        if said:
            report(generation, str(error))
        raise


def _loaded(generation: Generation, reference: str, said: tuple[str, JSON] | None) -> Entry:
    entry = generation.entry(reference)
    faults = drift.faults_of_loaded(*said, entry.function) if said else []
    if faults:
        raise SkillError(f"skill {generation.skill} failed to load: {'; '.join(faults)}")
    return entry


def _given_schema(spec: ToolSpec, parts: Parts) -> JSON | None:
    where = f"{parts.file}: tool {spec.name!r}: parameters"
    given = spec.parameters
    if given is None:
        return None
    if isinstance(given, str):
        where = given
        given = manifest.load_json(given, parts.source.files[given])
    if faults := parameters.problems(given):
        raise SkillError(f"{where}: {'; '.join(faults[:4])}")
    return parameters.normal(given)


def _derived(spec: ToolSpec, reference: str, parts: Parts) -> JSON:
    module, _, name = reference.partition(":")
    function = _module(module, parts).functions.get(name)
    if function is None:
        raise _no_function(spec, reference, parts)
    if function.decorated:
        raise SkillError(
            f"{parts.file}: tool {spec.name!r}: 'parameters' must be written: {name}() is decorated, "
            "so its source does not say what it takes"
        )
    return signature.derive(function)


def _check_examples(spec: ToolSpec, schema: JSON, file: str) -> None:
    for index, example in enumerate(spec.examples):
        unknown = example.keys() - schema["properties"].keys()
        missing = set(schema.get("required", ())) - example.keys()
        closed = schema.get("additionalProperties") is False
        if missing or (unknown and closed):
            what = f"lacks {sorted(missing)}" if missing else f"has unknown {sorted(unknown)}"
            raise SkillError(f"{file}: tool {spec.name!r}: examples[{index}] {what}")


def _check_function(spec: ToolSpec, reference: str, schema: JSON, parts: Parts) -> None:
    module, _, name = reference.partition(":")
    quick = signature.quick_names(_code(module, parts), name)
    if quick is not None and drift.agree(schema, quick):
        return
    read = _module(module, parts)
    function = read.functions.get(name)
    if function is None and name not in read.names and "*" not in read.names:
        raise _no_function(spec, reference, parts)
    faults = drift.faults(spec.name, schema, function) if function else []
    if faults:
        raise SkillError(f"{_file_of(module, parts)}: {'; '.join(faults)}")


def _examine(parts: Parts) -> None:
    """Compiles every module at the top of the folder, and looks at the hooks they mark."""
    for name in parts.source.files:
        if name.endswith(".py") and "/" not in name:
            _compiled(name, parts)
    if not parts.terms.hookspecs:
        return
    faults = hooknames.faults(parts.source.files, parts.manifest.hooks, parts.terms.hookspecs)
    if faults:
        raise SkillError("; ".join(faults))


def _code(module: str, parts: Parts) -> CodeType:
    return _compiled(_file_of(module, parts), parts)


def _compiled(name: str, parts: Parts) -> CodeType:
    if name not in parts.codes:
        try:
            parts.codes[name] = compile_module(parts.source.files, name, parts.source.folder)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise SkillError(syntax_fault(name, error)) from error
    return parts.codes[name]


def _module(module: str, parts: Parts) -> signature.Module:
    name = _file_of(module, parts)
    if name not in parts.modules:
        try:
            parts.modules[name] = signature.read(parts.source.files[name], name)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise SkillError(syntax_fault(name, error)) from error
    return parts.modules[name]


def _file_of(module: str, parts: Parts) -> str:
    path = module.replace(".", "/")
    for name in (f"{path}.py", f"{path}/__init__.py"):
        if name in parts.source.files:
            return name
    raise SkillError(
        f"{parts.file}: 'entry' names the module {module!r}, but there is no {path}.py in the folder"
    )


def _default_module(parts: Parts) -> str:
    tops = [name for name in parts.source.files if name.endswith(".py") and "/" not in name]
    for name in MODULES:
        if name in tops:
            return name.removesuffix(".py")
    if len(tops) == 1:
        return tops[0].removesuffix(".py")
    raise SkillError(
        f"{parts.file}: there is no skill.py in the folder; add it or name a module by 'entry'"
    )


def _default_function(spec: ToolSpec, parts: Parts) -> str:
    """The function named like the tool, else the only public one."""
    read = _module(_default_module(parts), parts)
    wanted = spec.name.replace("-", "_")
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", wanted).lower()
    known = [
        name for name in (wanted, snake, "run") if name in read.functions or name in read.names
    ]
    if known:
        return known[0]
    if len(read.public) == 1:
        return read.public[0]
    return wanted


def _no_function(spec: ToolSpec, reference: str, parts: Parts) -> SkillError:
    module, _, name = reference.partition(":")
    public = ", ".join(_module(module, parts).public) or "none"
    return SkillError(
        f"{_file_of(module, parts)}: tool {spec.name!r}: there is no function {name!r} (public functions: {public})"
    )

"""Find skill folders below the roots and build each, whatever is in it. Never imports skill code."""

from __future__ import annotations

# ruff: noqa: PTH100  # names as text: Path objects would be half the time
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import SkillError
from ..starter import starter_skills
from . import agentskills, manifest, source
from .assemble import Parts, Terms, assemble
from .loader import Generation
from .skill import Form, Origin, Skill
from .source import Listing

# a skill, the generation of its code and the further files its manifest names
Made = tuple[Skill, Generation | None, tuple[str, ...]]
MAX_FOLDERS = 20_000
MAX_LOOKED_INTO = 60  # folders below one that is no skill itself


@dataclass(frozen=True, slots=True)
class Place:
    """A folder directly under a root. `problem`: why it is not even looked into."""

    folder: str
    shown: str
    origin: Origin = "project"
    linked: str = ""
    problem: str = ""

    @property
    def name(self) -> str:
        return self.folder.rpartition(os.sep)[2]


@dataclass(frozen=True, slots=True)
class Built:
    """A skill as built from its folder, with what tells whether the folder has changed since.

    `broken`: it was built well and failed when it was imported.
    """

    place: Place
    listing: Listing
    skill: Skill
    generation: Generation | None = None
    references: tuple[str, ...] = ()
    examined: bool = True
    read_at: int = 0
    broken: bool = False

    @property
    def settled(self) -> bool:
        """False when a file was written so shortly before that a later write may look the same."""
        return self.listing.newest() + source.RACY_NS < self.read_at


def places(roots: Sequence[Path], project: Path) -> list[Place]:
    """The folders below the roots, roots in order and folders by name; a root named twice once."""
    found: list[Place] = []
    seen: set[str] = set()
    home, ours = os.path.realpath(project), os.path.realpath(starter_skills())
    for root in roots:
        real = os.path.realpath(root)
        if real in seen:
            continue
        seen.add(real)
        inside = _within(os.path.abspath(root), os.path.abspath(project)) or _within(real, home)
        inside = inside or real == ours  # what ships with the program is no stranger's code
        found += _places_in(os.path.abspath(root), real, os.path.abspath(project), inside=inside)
        if len(found) > MAX_FOLDERS:
            return found[:MAX_FOLDERS]
    return found


def build(place: Place, listing: Listing, number: int, terms: Terms, now: int) -> Built | None:
    """The skill in a folder, failed with its reason if need be; None when there is no skill at all."""
    try:
        made = _made(place, listing, number, terms)
    except SkillError as error:
        made = _failed(place, listing, number, str(error)), None, ()
    if made is None:
        return None
    skill, generation, references = made
    examined = terms.examine or not skill.live
    return Built(place, listing, skill, generation, references, examined, now)


def _made(place: Place, listing: Listing, number: int, terms: Terms) -> Made | None:
    if problem := place.problem or listing.problem:
        raise SkillError(problem)
    manifests = listing.manifests or {}
    foreign = _foreign(place, listing)
    for right in ("skill.toml", "skill.json"):
        if right in manifests and not foreign:
            if manifests[right] != right:
                raise SkillError(f"{manifests[right]}: must be named {right}; rename it")
            return _with_manifest(place, listing, right, number, terms)
    if "SKILL.md" in manifests:
        read = source.read(place.folder, listing)
        skill = agentskills.build(read, manifests["SKILL.md"], number, place.origin, terms.environ)
        return _noted(skill, place, foreign or _second_page(listing)), None, ()
    _without_manifest(place, listing)
    return None


def _second_page(listing: Listing) -> str:
    pages = [name for name in listing.names if name.lower() == "skill.md"]
    read = (listing.manifests or {})["SKILL.md"]
    return "; ".join(f"{name} is not read: {read} counts" for name in pages if name != read)


def _foreign(place: Place, listing: Listing) -> str:
    """A note when the skill.json beside a SKILL.md is another tool's; dozens of collections have one."""
    manifests = listing.manifests or {}
    if "skill.toml" in manifests or not {"skill.json", "SKILL.md"} <= manifests.keys():
        return ""
    file = manifests["skill.json"]
    data = source.read_file(place.folder, file, source.MANIFEST_BYTES, inside=True)
    if not manifest.is_foreign(file, data, listing.modules):
        return ""
    return f"{file} describes no tool, so it is another program's; SKILL.md counts"


def _with_manifest(place: Place, listing: Listing, file: str, number: int, terms: Terms) -> Made:
    native = file == "skill.toml"
    read = source.read(place.folder, listing)
    said = (manifest.read_toml if native else manifest.read_json)(file, read.files[file])
    read = source.extend(read, said.files)
    parts = Parts(
        manifest=said,
        file=file,
        form="native" if native else "json",
        source=read,
        number=number,
        origin=place.origin,
        terms=terms,
        generation=Generation(said.name, number, place.folder, read.files, terms.load_seconds),
    )
    try:
        skill = _noted(assemble(parts), place, expects_folder=native)
    except SkillError as error:
        failed = _failed(place, listing, number, str(error))
        skill = replace(failed, name=said.name, description=said.description, digest=read.digest)
        return skill, None, said.files
    return skill, parts.generation, said.files


def _without_manifest(place: Place, listing: Listing) -> None:
    modules = [name for name in listing.modules if "/" not in name]
    if modules:
        raise SkillError(f"no manifest beside {modules[0]}; add skill.toml, see: runner skills new")
    if nested := _nested(place.folder, listing.folders):
        folder = nested.rpartition("/")[0]
        levels = "one level" if "/" not in folder else f"{folder.count('/') + 1} levels"
        above = f"{place.shown}/{folder}".rpartition("/")[0]
        raise SkillError(
            f"{nested} lies {levels} too deep; move the folder {folder} up, or add {above!r} to "
            "[paths] skills"
        )


def _nested(top: str, folders: Sequence[str]) -> str:
    """The first manifest below a folder that is no skill, as a path inside it; empty when none."""
    queue = list(folders)
    for folder in queue:
        try:
            with os.scandir(f"{top}/{folder}") as entries:
                listed = sorted((e.name, e.is_dir(follow_symlinks=False)) for e in entries)
        except OSError:
            continue
        for name, is_folder in listed:
            if name.lower() in {"skill.toml", "skill.json", "skill.md"}:
                return f"{folder}/{name}"
            deep = folder.count("/") >= source.MAX_DEPTH or len(queue) >= MAX_LOOKED_INTO
            if is_folder and not deep and name[0] != "." and name not in source.SKIPPED:
                queue.append(f"{folder}/{name}")
    return ""


def _failed(place: Place, listing: Listing, number: int, reason: str) -> Skill:
    manifests = listing.manifests or {}
    file = next((manifests[m] for m in source.MANIFESTS if m in manifests), "")
    form: Form = "json" if file.lower() == "skill.json" else "native"
    if file.lower() == "skill.md":
        form = "agent-skill"
    return Skill(
        name=place.name,
        form=form,
        path=Path(place.folder) / file,
        location=Path(place.folder),
        state="failed",
        reason=f"{place.shown}/{reason}" if _names_a_file(reason) else f"{place.shown}: {reason}",
        generation=number,
        origin=place.origin,
    )


def _names_a_file(reason: str) -> bool:
    """True when the reason begins with a file inside the folder, as those of the readers do."""
    first = reason.split(": ", 1)[0].split(":", 1)[0]
    return first.lower().endswith((".toml", ".json", ".md", ".py")) and " " not in first


def _noted(skill: Skill, place: Place, note: str = "", *, expects_folder: bool = False) -> Skill:
    notes = [note] if note else []
    if expects_folder and skill.name != place.name:
        notes.append(f"name {skill.name!r} differs from its folder {place.name!r}")
    if place.linked:
        notes.append(f"the folder is a link to {place.linked}")
    return replace(skill, warnings=(*skill.warnings, *notes)) if notes else skill


def absolute(path: Path) -> str:
    """The path as `places` names it: links are kept."""
    return os.path.abspath(path)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _places_in(root: str, real: str, project: str, *, inside: bool) -> Iterator[Place]:
    origin: Origin = "project" if inside else "installed"
    base = os.path.relpath(root, project) if _within(root, project) else root
    try:
        with os.scandir(root) as entries:
            listed = sorted(
                (e.name, e.path, e.is_symlink(), _is_folder(e)) for e in entries if e.name[0] != "."
            )
    except OSError:
        return
    for name, path, linked, folder in listed:
        if name in source.SKIPPED or not (folder or linked):
            continue
        place = Place(path, f"{base}/{name}" if base != "." else name, origin)
        yield _linked(place, real, project) if linked else place


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _linked(place: Place, root: str, project: str) -> Place:
    """A linked folder is fine, watched and told; one that leaves project and root is not the project's."""
    try:
        target = os.path.realpath(place.folder, strict=True)
    except OSError:
        return replace(place, problem="is a link that leads nowhere; remove it or mend its target")
    if _within(root, target):
        return replace(place, problem="is a link to a folder that contains it; remove it")
    inside = _within(target, root) or _within(target, os.path.realpath(project))
    return replace(place, origin=place.origin if inside else "installed", linked=target)

"""Skills in the Agent Skills form: a folder with a `SKILL.md` that the model opens when it needs it."""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import SkillError
from ..types import NOTHING
from . import frontmatter, requirements, source
from .skill import Origin, Skill
from .source import Source

MAX_NAME = 64
MAX_DESCRIPTION = 1_024
MAX_LISTED = 200
_RULE = "lower-case letters, digits and single hyphens, at most 64 characters"
_VENDORS = ("openclaw", "clawdbot", "clawdis", "nanobot")
_SYSTEMS = {"macos": "darwin", "win32": "windows"}


def build(
    read: Source, file: str, number: int, origin: Origin, environ: Mapping[str, str]
) -> Skill:
    """The catalogue entry of a SKILL.md; raises `SkillError` beginning with the file's name."""
    page = frontmatter.parse(file, source.decode(file, read.files[file]))
    folder = Path(read.folder)
    name, name_warning = _name(page.fields.get("name"), folder.name, file)
    mixed = _mixed(name)
    description, warning = _description(page.fields.get("description"), file)
    missing = requirements.unmet(_requires(page.fields), environ)
    return Skill(
        name=name,
        form="agent-skill",
        path=folder / file,
        location=folder,
        state="ineligible" if missing else "ready",
        reason="; ".join(missing),
        generation=number,
        description=description,
        warnings=tuple(filter(None, (*page.warnings, name_warning, mixed, warning))),
        digest=read.digest,
        body_path=folder / file,
        origin=origin,
    )


def skill_body(skill: Skill) -> str:
    """The instructions of a skill, without the front matter; raises `SkillError`."""
    if skill.body_path is None:
        raise SkillError(f"skill {skill.name} has no SKILL.md")
    file = skill.body_path.name
    data = source.read_file(str(skill.location), file, source.PAGE_BYTES, inside=True)
    text = source.decode(file, data)
    if not text.lstrip().startswith("---"):
        return text  # beside a skill.toml a SKILL.md needs no front matter
    return frontmatter.split(file, text.lstrip())[1]


def skill_files(skill: Skill) -> tuple[str, ...]:
    """The files of the skill's folder beside its SKILL.md, as paths inside it; at most 200."""
    found: list[str] = []
    for name in _files(str(skill.location), "", 0):
        if skill.body_path is None or name != skill.body_path.name:
            found.append(name)
        if len(found) == MAX_LISTED:
            break
    return tuple(found)


def read_skill_file(skill: Skill, name: str, limit: int = source.PAGE_BYTES) -> str:
    """One file of the skill's folder as text; raises `SkillError` for anything outside it."""
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "~")) or ".." in parts or "\0" in name or not name.strip():
        raise SkillError(f"{name!r} is not a path inside the skill's folder")
    real = os.path.realpath(skill.location)
    if os.path.commonpath([real, os.path.realpath(skill.location / name)]) != real:
        raise SkillError(f"{name!r} leads out of the skill's folder")
    if not os.path.isfile(skill.location / name):  # noqa: PTH113  # a pipe is none either
        raise SkillError(f"{name!r} is no file of the skill; {_nearest(skill, name)}")
    return source.decode(name, source.read_file(str(skill.location), name, limit))


def _nearest(skill: Skill, name: str) -> str:
    listed = skill_files(skill)
    ends = [file for file in listed if file.endswith(name.rsplit("/", 1)[-1])]
    near = ends[:3] or difflib.get_close_matches(name, listed, 3, 0.4) or list(listed[:20])
    return f"there are: {', '.join(near)}" if near else "it has no other files"


def _name(value: Any, folder: str, file: str) -> tuple[str, str]:
    """The name it gives itself when that is one, else the folder's, with the rule it broke."""
    name = unicodedata.normalize("NFKC", value.strip()) if isinstance(value, str) else ""
    own = unicodedata.normalize("NFKC", folder)
    if _is_name(name):
        return name, "" if name == own else f"name {name!r} differs from its folder {folder!r}"
    slug = re.sub(r"[\s_-]+", "-", name.lower()).strip("-")
    if _is_name(slug):
        return slug, f"name {value!r} breaks the rule ({_RULE}); it is listed as {slug!r}"
    if value is None and _is_name(own):
        return own, "has no name; the folder's is used"
    if _is_name(own):
        return own, f"name {value!r:.80} breaks the rule ({_RULE}); the folder's is used"
    raise SkillError(f"{file}: name {value!r:.80} breaks the rule: {_RULE}")


def _is_name(name: str) -> bool:
    """The standard's rule, letters of any script included, as its reference checker has it."""
    plain = all(c == "-" or (c.isalnum() and c == c.lower()) for c in name)
    return plain and 0 < len(name) <= MAX_NAME and name.strip("-") == name and "--" not in name


def _mixed(name: str) -> str:
    """Letters that look like Latin ones beside Latin ones make a name that is not what it seems."""
    scripts = {unicodedata.name(c, "").split(" ")[0] for c in name if c.isalpha()}
    foreign = sorted(scripts & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"})
    if "LATIN" not in scripts or not foreign:
        return ""
    return f"name {name!a} mixes Latin and {' and '.join(s.capitalize() for s in foreign)} letters"


def _description(value: Any, file: str) -> tuple[str, str]:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise SkillError(
            f"{file}: 'description' is missing; say what the skill does and when to use it"
        )
    if not isinstance(value, str | int | float):
        raise SkillError(f"{file}: 'description' must be text, not a {type(value).__name__}")
    text = re.sub(r"\s+", " ", str(value)).strip()
    shown = "".join(
        c for c in text if unicodedata.category(c) not in {"Cc", "Cf", "Co", "Cs"} or c == "\u200d"
    )
    warning = (
        "" if shown == text else "the description holds invisible characters; they are left out"
    )
    if len(shown) > MAX_DESCRIPTION:
        return (
            f"{shown[: MAX_DESCRIPTION - 1]}…",
            f"the description is longer than {MAX_DESCRIPTION} characters and is cut",
        )
    return shown, warning


def _requires(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What older formats ask for in `metadata`: programs, variables and systems."""
    metadata = fields.get("metadata")
    vendor = (
        next((metadata[v] for v in _VENDORS if isinstance(metadata.get(v), dict)), None)
        if isinstance(metadata, dict)
        else None
    )
    if vendor is None:
        return NOTHING
    wanted = vendor.get("requires")
    asked = (
        {key: _texts(wanted.get(key)) for key in ("bins", "env")}
        if isinstance(wanted, dict)
        else {}
    )
    return {**asked, "os": [_SYSTEMS.get(name, name) for name in _texts(vendor.get("os"))]}


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _files(folder: str, prefix: str, depth: int) -> Iterator[str]:
    if depth > source.MAX_DEPTH:
        return
    for entry in _entries(f"{folder}/{prefix}"):
        if entry.name[0] == "." or entry.name in source.SKIPPED:
            continue
        if _is_file(entry):
            yield prefix + entry.name
        elif entry.is_dir(follow_symlinks=False):
            yield from _files(folder, f"{prefix}{entry.name}/", depth + 1)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # gone, or not to be read: it has nothing for the model
        return []


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False

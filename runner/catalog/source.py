"""Read a skill folder: bounded, regular files only, with a signature to notice changes by."""

from __future__ import annotations

# ruff: noqa: PTH114  # names as text: Path objects would be half the time
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..errors import SkillError

MANIFESTS = ("skill.toml", "skill.json", "SKILL.md")
SKIPPED = frozenset({"node_modules", "__pycache__"})
MANIFEST_BYTES = 256_000
PAGE_BYTES = 1_000_000  # a SKILL.md: real ones reach 300 kB
MODULE_BYTES = 2_000_000
MAX_FILES = 500
MAX_DEPTH = 5
RACY_NS = 100_000_000  # a file written within this time of being read may change unseen
_RIGHT = {name.lower(): name for name in MANIFESTS}
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would block for ever
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)

Stat = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a skill folder that matter, with what tells an unchanged one.

    `manifests` maps the right name of a manifest to the name it has on disk.
    """

    stats: tuple[Stat, ...] = ()
    manifests: Mapping[str, str] | None = None
    folders: tuple[str, ...] = ()
    problem: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry[0] for entry in self.stats)

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(entry[0] for entry in self.stats if entry[0].endswith(".py"))

    def newest(self) -> int:
        """When the youngest file was last touched; cannot be set back by a user."""
        return max((entry[4] for entry in self.stats), default=0)


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes one version of a skill is built from: manifest and code are never of two versions."""

    folder: str
    files: Mapping[str, bytes]
    digest: str


def look(folder: str) -> Listing:
    """Lists what matters in the folder without opening a file."""
    try:
        top, folders = _scan(folder, "")
    except OSError as error:
        return Listing(problem=f"cannot be read: {error.strerror}")
    manifests = {
        right: entry[0] for entry in reversed(top) if (right := _RIGHT.get(entry[0].lower()))
    }
    if "skill.toml" not in manifests and "skill.json" not in manifests:
        kept = top if manifests.keys() != {"SKILL.md"} else [e for e in top if _is_manifest(e[0])]
        return Listing(tuple(kept), manifests, tuple(folders))
    try:
        deeper = list(_below(folder, folders, 1)) if folders else []
    except SkillError as error:
        return Listing(tuple(top), manifests, tuple(folders), str(error))
    return Listing(tuple(top + deeper), manifests, tuple(folders))


def read(folder: str, listing: Listing, more: tuple[str, ...] = ()) -> Source:
    """Reads manifests and modules; `more` names further files, such as a parameters file.

    Raises `SkillError` whose text begins with the file's name inside the folder.
    """
    manifests = (listing.manifests or {}).values()
    files: dict[str, bytes] = {}
    for name, *_ in listing.stats:
        if name.endswith(".py"):
            files[name] = read_file(folder, name, MODULE_BYTES)
        elif name in manifests:
            limit = PAGE_BYTES if name.lower() == "skill.md" else MANIFEST_BYTES
            files[name] = read_file(folder, name, limit, inside=True)
    return _with(folder, files, more)


def extend(source: Source, names: tuple[str, ...]) -> Source:
    """The source with these files too, such as the parameters files its manifest names."""
    return _with(source.folder, source.files, names) if names else source


def read_file(folder: str, name: str, limit: int, *, inside: bool = False) -> bytes:
    """The file's bytes. Never blocks on a pipe; `inside` refuses links that leave the folder."""
    try:
        handle = _open_inside(folder, name) if inside else os.open(f"{folder}/{name}", _READ)
        try:
            return _read_handle(handle, name, limit)
        finally:
            os.close(handle)
    except OSError as error:
        reason = "is a link that leads nowhere" if error.errno == errno.ELOOP else error.strerror
        raise SkillError(f"{name}: cannot be read: {reason}") from error


def decode(name: str, data: bytes) -> str:
    """The text of a human-written file: UTF-8, a byte order mark and any line ends allowed."""
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        guess = "it looks like UTF-16" if wide else f"byte {error.start + 1} is wrong"
        raise SkillError(f"{name}: is not UTF-8 ({guess}); save it as UTF-8") from error
    if "\0" in text:
        raise SkillError(f"{name}: holds a NUL character; is it a text file?")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _with(folder: str, files: Mapping[str, bytes], names: tuple[str, ...]) -> Source:
    if names:
        more = {name: read_file(folder, name, MANIFEST_BYTES, inside=True) for name in names}
        files = {**files, **more}
    return Source(folder, files, _digest(files))


def _digest(files: Mapping[str, bytes]) -> str:
    parts: list[bytes] = []
    for name in sorted(files):
        data = files[name]
        parts += (b"%b\0%d\0" % (name.encode("utf-8", "surrogateescape"), len(data)), data)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _scan(folder: str, below: str) -> tuple[list[Stat], list[str]]:
    files: list[Stat] = []
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name[0] == "." or name in SKIPPED:
                continue
            lower = name.lower()
            if lower.endswith((".py", ".json")) or (not below and lower in _RIGHT):
                _add(files, entry, below + name)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(name)
    files.sort()
    folders.sort()
    return files, folders


def _add(files: list[Stat], entry: os.DirEntry[str], name: str) -> None:
    try:
        found = entry.stat()
    except OSError:  # a dangling link: named when it is read
        files.append((name, 0, 0, 0, 0))
        return
    if stat.S_ISREG(found.st_mode) or _is_manifest(name):
        files.append((name, found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns))


def _below(folder: str, names: list[str], depth: int, prefix: str = "") -> Iterator[Stat]:
    count = 0
    for name in names if depth <= MAX_DEPTH else ():
        files, folders = _scan(f"{folder}/{prefix}{name}", f"{prefix}{name}/")
        for entry in [*files, *_below(folder, folders, depth + 1, f"{prefix}{name}/")]:
            count += 1
            if count > MAX_FILES:
                raise SkillError(f"holds more than {MAX_FILES} Python and JSON files")
            yield entry


def _is_manifest(name: str) -> bool:
    return name.lower() in _RIGHT


def _open_inside(folder: str, name: str) -> int:
    """Opens a plain file at once, and a link only when it stays in the folder."""
    path = f"{folder}/{name}"
    if _NOFOLLOW and "/" not in name:
        try:
            return os.open(path, _READ | _NOFOLLOW)
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.EMLINK}:  # the latter on FreeBSD
                raise
    if _leaves(folder, name):
        raise SkillError(f"{name}: leads out of the skill's folder; copy the file into it")
    return os.open(path, _READ)


def _leaves(folder: str, name: str) -> bool:
    path = f"{folder}/{name}"
    if "/" not in name and not os.path.islink(path):
        return False
    real = os.path.realpath(folder)
    return os.path.commonpath([real, os.path.realpath(path)]) != real


def _read_handle(handle: int, name: str, limit: int) -> bytes:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise SkillError(f"{name}: is not a regular file")
    if found.st_size > limit:
        raise SkillError(f"{name}: has {found.st_size:,} bytes; at most {limit:,} are read")
    data = os.read(handle, found.st_size + 1)
    while len(data) < found.st_size and (part := os.read(handle, found.st_size)):
        data += part
    return data

"""Confine this process: what it may read, write, run and reach. Landlock, seccomp and limits.

Applied by a worker to itself before it loads a skill, and never undone. Where Landlock is missing
the file system is bounded by bubblewrap around the worker instead.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ..types import JSON
from . import seccomp

Level = Literal["process", "landlock+seccomp", "bwrap"]
_PR_SET_NO_NEW_PRIVS = 38
_M_ARENA_MAX = -8
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every machine
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ = _READ_FILE | _READ_DIR
_SPECIAL = (1 << 6) | (1 << 11)  # making devices is never allowed
_ABI_TRUNCATE, _ABI_NETWORK, _ABI_SCOPES = 3, 4, 6
_LIBRARIES = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache",
    "/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom", "/dev/zero",
)  # fmt: skip
_NETWORKING = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf",
    "/etc/services", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates",
    "/run/systemd/resolve",
)  # fmt: skip
_PROGRAMS = (
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/share",
    "/etc/alternatives",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a confined worker may do; everything else it may not. Paths are absolute."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    network: bool = False

    def to_dict(self) -> JSON:
        """As it crosses to the worker."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: JSON) -> Terms:
        """The terms as the worker got them."""
        paths = {key: tuple(data[key]) for key in ("readable", "writable", "programs")}
        return cls(network=bool(data["network"]), **paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What any worker may use."""

    memory_mb: int = 1024
    cpu_seconds: int = 1200
    open_files: int = 1024


def terms_of(needs: Iterable[str], folder: str, workspace: str, path: str = "") -> Terms:
    """The terms for a tool with these permissions: Python and the skill itself, and what it needs.

    `path` is the PATH whose programs `exec` may run.
    """
    readable = [*_python(), *_LIBRARIES, folder]
    writable = ["/dev/null"]
    programs: list[str] = []
    network = False
    for need in needs:
        capability, _, scope = need.partition(":")
        match capability:
            case "fs.read":
                readable.append(_inside(workspace, scope))
            case "fs.write":
                writable.append(_inside(workspace, scope))
            case "net":
                network = True
                readable += _NETWORKING
            case "exec":
                programs += [*_PROGRAMS, *_LIBRARIES, *_python(), *path.split(os.pathsep)]
    return Terms(
        readable=tuple(dict.fromkeys(readable)),
        writable=tuple(dict.fromkeys(writable)),
        programs=tuple(dict.fromkeys(p for p in programs if p)),
        network=network,
    )


def limit(limits: Limits) -> None:
    """Bounds this process's memory, processor time and open files; no core dumps."""
    import resource

    _few_arenas()
    memory = limits.memory_mb * 1024 * 1024
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_NOFILE, limits.open_files),
    ):
        _soft, hard = resource.getrlimit(what)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(what, (allowed, allowed))
        except (ValueError, OSError):
            if sys.platform.startswith("linux"):
                raise  # macOS refuses RLIMIT_AS; there is nothing better there


def _few_arenas() -> None:
    """glibc reserves 64 MB of addresses for a thread's memory, which would use up the limit."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 2)


def apply(terms: Terms, *, landlock: bool = True) -> None:
    """Confines this process for good; raises `OSError` when any part cannot be had.

    `landlock=False`: somebody else, such as bubblewrap, bounds the file system.
    """
    _no_new_privileges()
    abi = version() if landlock else 0
    if landlock:
        _restrict(terms, abi)
    seccomp.apply(
        network=terms.network,
        outside_signals=landlock and abi < _ABI_SCOPES,
        truncate=landlock and abi < _ABI_TRUNCATE,
    )


def version() -> int:
    """The Landlock ABI of this kernel; 0 when it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(
        0, int(_libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)))
    )


def bubblewrap(terms: Terms, needed: Iterable[str]) -> list[str]:
    """The command line that puts a worker into a namespace of its own with these terms."""
    program = shutil.which("bwrap") or "bwrap"
    command = [program, "--unshare-all", "--proc", "/proc", "--dev", "/dev"]
    command += ["--share-net"] if terms.network else []
    seen = [(path, "--ro-bind") for path in (*needed, *terms.readable, *terms.programs)]
    seen += [(path, "--bind") for path in terms.writable]
    for path, how in dict(seen).items():
        if not path.startswith("/dev/") and os.access(path, os.F_OK):
            command += [how, path, path]
    return [*command, "--remount-ro", "/", "--chdir", "/", "--"]


def self_test(*, landlock: bool) -> None:
    """In a process of its own: applies terms that allow next to nothing; raises unless they hold."""
    import socket

    apply(Terms(readable=_python(), writable=("/dev/null",)), landlock=landlock)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: Path("/etc/passwd").read_bytes(),
        lambda: Path("/runner-self-test").mkdir(),
        socket.socket,
    )
    for number, attempt in enumerate(attempts):
        try:
            attempt()
        except OSError:
            continue
        raise OSError(f"attempt {number} was not refused")


def _restrict(terms: Terms, abi: int) -> None:
    if abi < 1:
        raise OSError("Landlock is not available")
    every = _every_access(abi)
    scoped = 3 if abi >= _ABI_SCOPES else 0  # abstract sockets, signals
    network = 3 if abi >= _ABI_NETWORK and not terms.network else 0  # bind, connect
    size = {False: 8, True: 16}[abi >= _ABI_NETWORK] if abi < _ABI_SCOPES else 24
    attributes = (ctypes.c_uint64 * 3)(every, network, scoped)
    ruleset = _call(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path in terms.readable:
            _allow(ruleset, path, _READ)
        for path in terms.programs:
            _allow(ruleset, path, _READ | _EXECUTE)
        for path in terms.writable:
            _allow(ruleset, path, every & ~_EXECUTE & ~_SPECIAL & ~_IOCTL)
        _call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _every_access(abi: int) -> int:
    bits = 13 + (abi >= 2) + (abi >= _ABI_TRUNCATE) + (abi >= 5)  # noqa: PLR2004 - see landlock(7)
    return (1 << bits) - 1


def _allow(ruleset: int, path: str, access: int) -> None:
    """Adds a rule for the path; one that does not exist needs none."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            access &= _ON_FILES
        packed = bytearray(access.to_bytes(8, sys.byteorder) + handle.to_bytes(4, sys.byteorder))
        beneath = (ctypes.c_char * 12).from_buffer(packed)
        _call(
            _ADD,
            ctypes.c_int(ruleset),
            ctypes.c_int(_PATH_BENEATH),
            ctypes.byref(beneath),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(handle)


def _no_new_privileges() -> None:
    if not sys.platform.startswith("linux"):
        raise OSError(f"confinement needs Linux, and this is {sys.platform}")
    if not seccomp.supported():
        raise OSError("confinement knows no system calls of this machine")
    if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")


def _call(number: int, *arguments: Any) -> int:
    found = int(_libc().syscall(number, *arguments))
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return found


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _python() -> tuple[str, ...]:
    """Python's own folders, those of installed packages and this package; not the rest of `sys.path`."""
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own += [p for p in sys.path if p.rstrip("/").endswith(("site-packages", "dist-packages"))]
    library = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    own += ["/".join(library)] if all(library) else []
    return (str(Path(__file__).resolve().parent.parent), *own)


def _inside(workspace: str, scope: str) -> str:
    """The folder or file a scope begins with, as far as it exists; the workspace without one."""
    root = place = Path(workspace).resolve()
    for part in Path(scope).parts:
        deeper = (place / part).resolve()
        if any(sign in part for sign in "*?[") or not os.access(deeper, os.F_OK):
            break
        if not deeper.is_relative_to(root):  # an absolute scope, "..", or a link that leads out
            break
        place = deeper
    return str(place)

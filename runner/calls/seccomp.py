"""The system calls a confined worker may not make, as a seccomp filter."""

from __future__ import annotations

import ctypes
import errno
import os
import platform

_X86, _ARM = 0, 1
_ARCHES = {"x86_64": (_X86, 0xC000003E), "aarch64": (_ARM, 0xC00000B7)}
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_X32 = 0x40000000
_NAMESPACES = 0x7E020000  # CLONE_NEWNS … CLONE_NEWNET
_INET, _INET6, _NETLINK = 2, 10, 16

# name: number on x86-64, number on arm64 (-1: there is none)
_DENIED = {
    # other processes' memory and descriptors
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30),
    # ways around the other rules
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "personality": (135, 92),
    "modify_ldt": (154, -1), "unshare": (272, 97), "setns": (308, 268),
    # what Landlock does not see: modes, owners, attributes and times by path
    "chmod": (90, -1), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1),
    "lchown": (94, -1), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "setxattrat": (463, 463),
    "removexattrat": (466, 466), "file_setattr": (469, 469), "utime": (132, -1),
    "utimes": (235, -1), "futimesat": (261, -1),
    # memory and queues shared by key with any process of the user
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # the machine itself
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, -1), "ioperm": (173, -1), "syslog": (103, 116),
    "vhangup": (153, 58),
}  # fmt: skip
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_UTIMENSAT, _PRLIMIT, _SETAFFINITY, _TRUNCATE = (280, 88), (302, 261), (203, 122), (76, 45)
_SIGNALS = ((62, 129), (129, 138), (200, 130), (234, 131), (297, 240))
_PIDFD_SIGNAL = (424, 424)

Instruction = tuple[int, int, int, int]


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def supported() -> bool:
    """True where the numbers of the system calls are known here."""
    return platform.machine() in _ARCHES


def apply(*, network: bool, outside_signals: bool, truncate: bool) -> None:
    """Confines this thread and what it starts, for good; raises `OSError`.

    Needs no_new_privs. `outside_signals` and `truncate` deny what an older Landlock leaves open.
    """
    program = build(
        network=network,
        own_pid=os.getpid() if outside_signals else 0,
        truncate=truncate,
        machine=platform.machine(),
    )
    array = (_Instruction * len(program))(*(_Instruction(*one) for one in program))
    wrapped = _Program(len(program), array)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(wrapped), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def build(*, network: bool, own_pid: int, truncate: bool, machine: str) -> list[Instruction]:
    """The filter as instructions: everything is allowed but what is listed here."""
    column, audit = _ARCHES[machine]
    code: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
    ]
    if column == _X86:
        code += [(_AT_LEAST, 0, 1, _X32), _deny(errno.ENOSYS)]
    denied = [numbers[column] for numbers in _DENIED.values()]
    denied += [_TRUNCATE[column]] if truncate else []
    denied += [_PIDFD_SIGNAL[column]] if own_pid else []
    denied += [] if network else [_SOCKET[column]]
    for number in denied:
        if number >= 0:
            code += [(_EQUAL, 0, 1, number), _deny()]
    code += [(_EQUAL, 0, 1, _CLONE3[column]), _deny(errno.ENOSYS)]  # clone can be looked into
    code += _when(_CLONE[column], 0, [(_ANY_BIT, 0, 1, _NAMESPACES), _deny()])
    # times by descriptor (no path) are harmless: both words of the path's address are zero
    both = [(_EQUAL, 1, 0, 0), _deny(), (_LOAD, 0, 0, 16 + 8 + 4), *_unless(0)]
    code += _when(_UTIMENSAT[column], 1, both)
    code += _when(_PRLIMIT[column], 0, _unless(0))
    code += _when(_SETAFFINITY[column], 0, _unless(0))
    if network:
        code += _when(_SOCKET[column], 0, _unless(_INET, _INET6, _NETLINK))
    for numbers in _SIGNALS if own_pid else ():
        code += _when(numbers[column], 0, _unless(own_pid))
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _deny(number: int = errno.EPERM) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _when(number: int, argument: int, checks: list[Instruction]) -> list[Instruction]:
    """For that system call alone: looks at an argument's low word, then goes on or returns."""
    body = [(_LOAD, 0, 0, 16 + 8 * argument), *checks, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(body), number), *body]


def _unless(*allowed: int) -> list[Instruction]:
    """Denies any value but these."""
    jumps: list[Instruction] = [
        (_EQUAL, len(allowed) - index, 0, value) for index, value in enumerate(allowed)
    ]
    return [*jumps, _deny()]

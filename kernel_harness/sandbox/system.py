"""System calls that Python's os module lacks."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
# PyDLL keeps the interpreter's lock during the call, because no other thread may run during a fork.
_locked = ctypes.PyDLL(None, use_errno=True)

# The numbers of system calls on the two architectures that host GPUs. Newer system calls have the same number on both.
NUMBERS = {
    "x86_64": {
        "clone": 56, "fcntl": 72, "ioctl": 16, "seccomp": 317, "socket": 41, "connect": 42, "kill": 62, "tkill": 200,
        "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "add_key": 248, "request_key": 249,
        "keyctl": 250, "inotify_init": 253, "inotify_init1": 294, "fanotify_init": 300, "setpriority": 141,
        "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203, "prlimit64": 302,
        "sched_setattr": 314, "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240,
    },
    "aarch64": {
        "clone": 220, "fcntl": 25, "ioctl": 29, "seccomp": 277, "socket": 198, "connect": 203, "kill": 129,
        "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "add_key": 217,
        "request_key": 218, "keyctl": 219,
        "inotify_init": 26, "inotify_init1": 26, "fanotify_init": 262,  # there is no inotify_init
        "setpriority": 140, "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122,
        "prlimit64": 261, "sched_setattr": 274, "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180,
    },
}  # fmt: skip
_COMMON = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "mount_setattr": 442, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4


def number(name: str) -> int:
    """Returns the number of the system call `name`. Raises OSError on an architecture with unknown numbers."""
    if name in _COMMON:
        return _COMMON[name]
    try:
        return NUMBERS[platform.machine()][name]
    except KeyError:
        raise OSError(
            f"the processor architecture {platform.machine()} allows no full wall around workers: the harness has "
            "system call numbers for x86_64 and aarch64 only"
        ) from None


def call(name: str, *arguments: object) -> int:
    """Makes the system call `name` with `arguments` and returns its result. Raises OSError if the call fails."""
    return _checked(_libc.syscall(ctypes.c_long(number(name)), *map(_wide, arguments)), name)


def prctl(*arguments: int) -> int:
    """Calls prctl(2) and returns its result. Raises OSError if the call fails."""
    padded = (*arguments, 0, 0, 0, 0)[:5]
    return _checked(_libc.prctl(*map(ctypes.c_ulong, padded)), "prctl")


def mount(source: str, target: Path | str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Calls mount(2): mounts `source`, a file system of the type `kind`, on `target`. Raises OSError if that fails.

    `flags` may select another action, such as to bind or to move a mount; `kind` and `data` are then empty.
    """
    done = _libc.mount(
        source.encode(), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _checked(done, f"mount {kind or source} on {target}")


def capset(header: ctypes.Array[ctypes.c_uint32], data: ctypes.Array[ctypes.c_uint32]) -> None:
    """Calls capset(2), which sets the capabilities of this thread. Raises OSError if the call fails."""
    _checked(_libc.capset(header, data), "capset")


def fork_into(flags: int, signal: int) -> int:
    """Forks like os.fork(), with flags of clone(2), for example for new namespaces. Returns what os.fork() returns.

    `signal` is the signal that the parent gets when the child ends. This process must have only one thread. Raises
    OSError if the fork fails.
    """
    api = ctypes.pythonapi
    arguments = [ctypes.c_long(number("clone")), ctypes.c_ulong(flags | signal), *[ctypes.c_ulong(0)] * 4]
    api.PyOS_BeforeFork()
    pid: int = _locked.syscall(*arguments)
    failure = ctypes.get_errno()
    (api.PyOS_AfterFork_Parent if pid else api.PyOS_AfterFork_Child)()
    if pid < 0:
        raise OSError(failure, f"clone: {os.strerror(failure)}")
    return pid


def _wide(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(result: int, what: str) -> int:
    if result < 0:
        failure = ctypes.get_errno()
        raise OSError(failure, f"{what}: {os.strerror(failure)}")
    return result

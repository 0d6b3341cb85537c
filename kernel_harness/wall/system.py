"""The kernel's calls that Python has no name for. What they are for is said where they are used."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
# Without a release of the interpreter's lock: a fork must not let another thread in.
_locked = ctypes.PyDLL(None, use_errno=True)

# Their numbers on the two processors that GPUs are found beside; what is missing there has one number everywhere.
NUMBERS = {
    "x86_64": {
        "clone": 56, "fcntl": 72, "seccomp": 317, "socket": 41, "connect": 42, "kill": 62, "tkill": 200, "tgkill": 234,
        "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "add_key": 248, "request_key": 249, "keyctl": 250,
    },
    "aarch64": {
        "clone": 220, "fcntl": 25, "seccomp": 277, "socket": 198, "connect": 203, "kill": 129, "tkill": 130,
        "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "add_key": 217,
        "request_key": 218, "keyctl": 219,
    },
}  # fmt: skip
_EVERYWHERE = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "mount_setattr": 442, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4


def number(name: str) -> int:
    """A system call's number. Raises OSError on a processor whose numbers are not known."""
    if name in _EVERYWHERE:
        return _EVERYWHERE[name]
    try:
        return NUMBERS[platform.machine()][name]
    except KeyError:
        raise OSError(f"the system calls of {platform.machine()} are not known") from None


def call(name: str, *arguments: object) -> int:
    """A system call by name. Raises OSError."""
    return _checked(_libc.syscall(ctypes.c_long(number(name)), *map(_wide, arguments)), name)


def prctl(*arguments: int) -> int:
    """prctl(2). Raises OSError."""
    padded = (*arguments, 0, 0, 0, 0)[:5]
    return _checked(_libc.prctl(*map(ctypes.c_ulong, padded)), "prctl")


def mount(source: str, target: Path | str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError."""
    done = _libc.mount(
        source.encode(), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _checked(done, f"mount {kind or source} on {target}")


def capset(header: ctypes.Array[ctypes.c_uint32], data: ctypes.Array[ctypes.c_uint32]) -> None:
    """capset(2). Raises OSError."""
    _checked(_libc.capset(header, data), "capset")


def fork_into(flags: int, signal: int) -> int:
    """os.fork() with clone(2)'s flags for new namespaces. In a process of one thread only. Raises OSError."""
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

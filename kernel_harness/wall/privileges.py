"""What a process gives up for good, and its children with it: capabilities, new privileges, system calls."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from pathlib import Path

from kernel_harness.wall import system

_CAPABILITY_VERSION = 0x20080522
_SET_MODE_FILTER, _SPECULATION_ALLOWED = 1, 4
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; arguments by their lower halves
_AF_UNIX, _AF_NETLINK, _SOCK_DGRAM, _SOCK_TYPE = 1, 16, 2, 0xF
# A socket in the file system (a container engine's, say) is reachable from any namespace; so are a user's keys.
_REFUSED = ("connect", "io_uring_setup", "add_key", "request_key", "keyctl")
# Locks on ranges of a file that all can read would carry bits from one worker to another; whole files are too few.
_RANGE_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW and the same of open file descriptions
_SIGNALS = ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")

Instruction = tuple[int, int, int, int]  # code, steps if true, steps if false, constant


def drop(*, own_signals_only: bool = False) -> None:
    """Gives everything up. With `own_signals_only` no other process can be sent a signal. Raises OSError."""
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        with contextlib.suppress(PermissionError):  # who has no capability cannot lower the bound, and need not
            system.prctl(system.PR_CAPBSET_DROP, capability)
    system.prctl(system.PR_CAP_AMBIENT, system.PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    system.capset(header, (ctypes.c_uint32 * 6)())
    _filter(_program(own_signals_only))


def _program(own_signals_only: bool) -> list[Instruction]:
    """No other processor's calls, no way to reach a socket or a key, and if asked no signals."""
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _AUDIT_ARCH[platform.machine()]), (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if platform.machine() == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE)]
    for name in (*_REFUSED, *(_SIGNALS if own_signals_only else ())):
        program += [(_EQUAL, 0, 1, system.number(name)), (_RETURN, 0, 0, _REFUSE)]
    program += [(_EQUAL, 0, 3 + len(_RANGE_LOCKS), system.number("fcntl")), (_LOAD, 0, 0, _SECOND)]
    program += [(_EQUAL, len(_RANGE_LOCKS) - i, 0, command) for i, command in enumerate(_RANGE_LOCKS)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    # Streams, of which `connect` is refused, and netlink, which sees this network only. A datagram needs no connect.
    program += [
        (_EQUAL, 0, 8, system.number("socket")),
        (_LOAD, 0, 0, _FIRST), (_EQUAL, 4, 0, _AF_NETLINK), (_EQUAL, 0, 4, _AF_UNIX),
        (_LOAD, 0, 0, _SECOND), (_AND, 0, 0, _SOCK_TYPE), (_EQUAL, 1, 0, _SOCK_DGRAM), (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]  # fmt: skip
    if own_signals_only:
        for name in ("kill", "tgkill"):
            program += [
                (_EQUAL, 0, 4, system.number(name)), (_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, os.getpid()),
                (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW),
            ]  # fmt: skip
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _filter(program: list[Instruction]) -> None:
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer)))
    # Without the second flag some kernels slow speculation, and with it the kernels under test.
    system.call("seccomp", _SET_MODE_FILTER, _SPECULATION_ALLOWED, header)

"""Restricts a process and its children irrevocably: no capabilities, no new privileges, and fewer system calls."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path

from kernel_harness.sandbox import system

_CAPABILITY_VERSION = 0x20080522
_SET_MODE_FILTER, _SPECULATION_ALLOWED = 1, 4
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
# Offsets in struct seccomp_data; of an argument, its lower half.
_NUMBER, _ARCH, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
_AF_UNIX, _AF_NETLINK, _NETLINK_USERSOCK, _SOCK_DGRAM, _SOCK_TYPE = 1, 16, 2, 2, 0xF
# Refused because a socket in the file system, such as a container engine's, is reachable from any namespace. A user's
# keys are, too. A process that is told of each use of files could be sent many bits by a worker that opens them.
_REFUSED = (
    "connect", "io_uring_setup", "add_key", "request_key", "keyctl", "inotify_init", "inotify_init1", "fanotify_init",
)  # fmt: skip
# Commands of fcntl that are refused because locks on ranges of a shared readable file, or notes of the use of folders,
# could carry many bits between workers. A lock on a whole file carries too few bits to matter.
_COMMANDS = (6, 7, 37, 38, 1026)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_NOTIFY
# Commands that name the process to which Linux sends a signal of the caller's choice when a descriptor can be read.
_OWNER_COMMANDS = (8, 15)  # fcntl: F_SETOWN, F_SETOWN_EX
_OWNER_REQUESTS = (0x8901, 0x8902)  # ioctl: FIOSETOWN, SIOCSPGRP
_SIGNALS = ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
# Refused where all workers have one IPC namespace: shared memory, semaphores and queues, which also outlive a worker.
_IPC = ("shmget", "semget", "msgget", "mq_open")
# Where other processes of the user are visible, these system calls could slow them down: on one core, at the lowest
# priority or within small limits. So their first argument must be 0 or this process.
_OWN_ONLY = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "prlimit64")

Instruction = tuple[int, int, int, int]  # code, steps if true, steps if false, constant


def drop(*, others_visible: bool = False, own_signals_only: bool = False) -> None:
    """Drops all Linux capabilities, forbids new privileges and installs the seccomp filter, irrevocably.

    The children of this process inherit all restrictions. `others_visible` says that other processes of the user are in
    the same namespaces as this process. If it is True, IPC of System V and POSIX is refused, and a process can set the
    priority, the cores and the limits only of itself (by the number 0) and of the process that called `drop`. If
    `own_signals_only` is True, only the process that called `drop` can be signalled: a child can signal neither itself
    nor other children. Raises OSError if this machine denies a step.
    """
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        with contextlib.suppress(PermissionError):  # a process without capabilities need not lower their bound
            system.prctl(system.PR_CAPBSET_DROP, capability)
    system.prctl(system.PR_CAP_AMBIENT, system.PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    system.capset(header, (ctypes.c_uint32 * 6)())
    _filter(_program(others_visible, own_signals_only))


def _program(others_visible: bool, own_signals_only: bool) -> list[Instruction]:
    """Returns the program of the seccomp filter, as instructions.

    The filter refuses system calls of other architectures, the system calls in _REFUSED, the commands of fcntl in
    _COMMANDS and most kinds of sockets. With `others_visible`, the filter also refuses IPC, and calls that set the
    priority, the cores or the limits of other processes. With `own_signals_only`, it refuses calls that signal other
    processes or make Linux signal them. A refused call fails with EACCES.
    """
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _AUDIT_ARCH.get(platform.machine(), 0)), (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if platform.machine() == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE)]
    for name in (*_REFUSED, *(_IPC if others_visible else ()), *(_SIGNALS if own_signals_only else ())):
        program += [(_EQUAL, 0, 1, system.number(name)), (_RETURN, 0, 0, _REFUSE)]
    program += _without("fcntl", (*_COMMANDS, *(_OWNER_COMMANDS if own_signals_only else ())))
    if own_signals_only:
        program += _without("ioctl", _OWNER_REQUESTS)
    # Allowed sockets: Unix streams, whose `connect` is refused, and netlink, which asks the Linux kernel. Datagrams are
    # refused because they need no `connect`, and one kind of netlink because it sends messages to other processes.
    program += [
        (_EQUAL, 0, 10, system.number("socket")),
        (_LOAD, 0, 0, _FIRST), (_EQUAL, 4, 0, _AF_NETLINK), (_EQUAL, 0, 6, _AF_UNIX),
        (_LOAD, 0, 0, _SECOND), (_AND, 0, 0, _SOCK_TYPE), (_EQUAL, 3, 2, _SOCK_DGRAM),
        (_LOAD, 0, 0, _THIRD), (_EQUAL, 1, 0, _NETLINK_USERSOCK), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE),
    ]  # fmt: skip
    if others_visible:
        for name in _OWN_ONLY:
            program += [
                (_EQUAL, 0, 5, system.number(name)), (_LOAD, 0, 0, _FIRST), (_EQUAL, 2, 0, 0),
                (_EQUAL, 1, 0, os.getpid()), (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW),
            ]  # fmt: skip
        # The first argument 0 means that the second names a process, and then 0 means this process.
        program += [
            (_EQUAL, 0, 7, system.number("setpriority")), (_LOAD, 0, 0, _FIRST), (_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, _SECOND), (_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, os.getpid()), (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]  # fmt: skip
    if own_signals_only:
        for name in ("kill", "tgkill"):
            program += [
                (_EQUAL, 0, 4, system.number(name)), (_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, os.getpid()),
                (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW),
            ]  # fmt: skip
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _without(name: str, commands: Sequence[int]) -> list[Instruction]:
    """Returns the part of the program that refuses the system call `name` if its second argument is in `commands`."""
    return [
        (_EQUAL, 0, 3 + len(commands), system.number(name)), (_LOAD, 0, 0, _SECOND),
        *((_EQUAL, len(commands) - i, 0, command) for i, command in enumerate(commands)),
        (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE),
    ]  # fmt: skip


def _filter(program: list[Instruction]) -> None:
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer)))
    # Without SPECULATION_ALLOWED some Linux versions restrict speculation, which would slow the kernels under test.
    system.call("seccomp", _SET_MODE_FILTER, _SPECULATION_ALLOWED, header)

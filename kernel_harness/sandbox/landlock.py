"""Landlock, with which a process gives up rights: writing and reading files, TCP, and signals. See landlock(7)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernel_harness.sandbox import system

_VERSION = 1
_PATH_BENEATH = 1
# The rights on files, by the version of Landlock that introduced them. A right that is in a ruleset and not granted
# for a path is denied.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15
_TCP = 3  # the rights to bind and to connect, since version 4
_SCOPES = 3  # no abstract sockets and signals of processes outside, since version 6
SIGNALS_SINCE = 6


def version() -> int:
    """Returns the Landlock version of the running Linux kernel; 0 if Landlock is missing or switched off."""
    try:
        return system.call("landlock_create_ruleset", 0, 0, _VERSION)
    except OSError:
        return 0


def restrict(writable: Iterable[Path], hidden: Sequence[Path] = ()) -> None:
    """Limits what this process can do from now on. The limits cannot be removed, and its child processes inherit them.

    The process can write only to the files in `writable` and below the folders in `writable`, and can also read these.
    It cannot read other paths in `hidden`, but can list the names of all files. If Landlock has these features, it also
    cannot bind or connect TCP sockets (version 4), and cannot send signals or connect abstract sockets to processes
    other than itself and its later children (version 6).
    The process must have set no_new_privs. A right on a folder covers everything in it, now and later, and cannot be
    taken back for a path below it. So if paths are hidden, the right to read is granted, one path at a time, to all
    files and folders that exist and are not hidden. Raises OSError if this machine lacks Landlock or denies a step.
    """
    known = version()
    rights = sum(right for since, right in _RIGHTS.items() if since <= known)
    attributes = struct.pack("QQQ", rights, _TCP if known >= 4 else 0, _SCOPES if known >= SIGNALS_SINCE else 0)
    size = 8 if known < 4 else 16 if known < SIGNALS_SINCE else 24
    ruleset = system.call("landlock_create_ruleset", ctypes.create_string_buffer(attributes), size, 0)
    try:
        _grant(ruleset, Path("/"), _EXECUTE | _READ_DIR)
        for path in beside([path.resolve() for path in hidden]):
            _grant(ruleset, path, _EXECUTE | _READ_FILE)
        for path in writable:
            _grant(ruleset, path, rights if path.is_dir() else rights & _ON_FILES)
        system.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def beside(hidden: Sequence[Path]) -> Iterator[Path]:
    """Yields folders and files that together contain everything except the paths in `hidden`.

    Yields only `/` if `hidden` is empty. Symbolic links are left out.
    """
    above = {parent for path in hidden for parent in path.parents}
    if not above:
        yield Path("/")
    for folder in above:
        for path in folder.iterdir():
            if path not in above and path not in hidden and not path.is_symlink():
                yield path


def _grant(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor))
        system.call("landlock_add_rule", ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)

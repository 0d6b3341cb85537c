"""Puts a process into its own Linux namespaces, with its own process numbers, network, users and mounts.

In these namespaces, almost all files are read-only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from kernel_harness.sandbox import system

_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_ALL = _NEWNS | _NEWCGROUP | _NEWUTS | _NEWIPC | _NEWUSER | _NEWPID | _NEWNET
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_MOVE, _MS_REC = 2, 4, 8, 4096, 8192, 16384
_MS_UNBINDABLE, _MS_PRIVATE = 1 << 17, 1 << 18
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_TEMPORARY = Path("/tmp")
# The new /tmp holds at most so many bytes. It shows the files of the old one, unless these are too many to show each.
_TEMPORARY_BYTES, _MOST_SHOWN = 1 << 28, 2000
_DEVICES = ("null", "zero", "full", "random", "urandom")
# Read on import, before a namespace is entered. Inside a new one, a process has no user until uid_map is written.
_USER, _GROUP = os.geteuid(), os.getegid()


def fork() -> int:
    """Forks like os.fork(), with the same return value. The child is process 1 in new namespaces.

    A BLAS library keeps idle threads. The C library's fork runs a handler in which BLAS ends these threads; the bare
    system call used here does not. The child would then wait for ever for threads that it does not have. So if this
    process has several threads, it first makes an ordinary fork, whose child ends at once, for the sake of the handler.
    Raises OSError if this machine denies new namespaces.
    """
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
    return system.fork_into(_ALL, signal.SIGCHLD)


def usable() -> bool:
    """Returns whether this machine allows this user to create namespaces and to mount file systems in them.

    A grandchild of this process tries both. This process makes its child with os.fork(), and the child makes the
    grandchild with a bare system call (`fork`). The child has only one thread. In a process with several threads,
    another thread may hold a lock of the C library at the moment of the bare system call, and the new process could
    then never acquire this lock.
    """
    return _holds_in_child(lambda: os.waitstatus_to_exitcode(os.waitpid(fork() or _try(), 0)[1]) == 0, os.fork())


def _try() -> NoReturn:
    def can_mount() -> bool:
        become_user()
        system.mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
        _set_attributes("/", _ATTR_RDONLY, 0, _AT_RECURSIVE)
        return True

    _holds_in_child(can_mount, 0)
    raise AssertionError


def _holds_in_child(holds: Callable[[], bool], pid: int) -> bool:
    """Returns whether `holds()` is true in the child that was just forked. `pid` is what the fork returned.

    The child calls `holds` and exits; it does not return to the caller.
    """
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    code = 1
    with contextlib.suppress(BaseException):
        code = 0 if holds() else 1
    os._exit(code)


def become_user() -> None:
    """Maps this user and group to the same numbers inside the user namespace, so that files keep their owner.

    The user gets no rights over anything outside the namespace. Raises OSError if this machine denies the mapping.
    """
    maps = {"setgroups": "deny", "gid_map": f"{_GROUP} {_GROUP} 1", "uid_map": f"{_USER} {_USER} 1"}
    for name, text in maps.items():
        Path(f"/proc/self/{name}").write_text(text)


def furnish(folder: Path, hidden: Sequence[Path], size: int) -> None:
    """Makes every file of this mount namespace read-only, except new ones in `folder`, in /dev/shm and in /tmp.

    `folder` and /dev/shm start empty and hold at most `size` bytes each. New files in /tmp are in memory; there can be
    none if `_new_temporary` does not replace /tmp. The files and folders in `hidden` become empty, and device files in
    it are left out. GPUs and harmless devices remain in /dev. In /proc, only the folders of processes stay writable,
    because root can otherwise write to /proc/sys without any capability. Raises OSError if this machine denies a mount.
    """
    system.mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    for path in hidden:
        if path.is_dir():
            system.mount("none", path, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4k,mode=0500")
        elif path.exists() and not path.is_char_device():  # device files are left out of the new /dev
            system.mount("/dev/null", path, flags=_MS_BIND)
    system.mount("none", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},mode=0700")
    _devices(folder / ".dev", size, hidden)
    writable = [folder, Path("/dev/shm"), *([_TEMPORARY] if _new_temporary(folder / ".tmp") else [])]
    # A container that hides parts of its own /proc allows no new one. The old /proc then stays, and the probe finds
    # what it leaves open.
    with contextlib.suppress(OSError):
        system.mount("none", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    with contextlib.suppress(OSError):
        Path("/proc/sys/user/max_user_namespaces").write_text("0")  # a nested namespace would give capabilities back
    for path in _system_files():
        system.mount(str(path), path, flags=_MS_BIND | _MS_REC)
    _set_attributes("/", _ATTR_RDONLY | _ATTR_NOSUID, 0, _AT_RECURSIVE)
    for path in writable:
        _set_attributes(path, 0, _ATTR_RDONLY, 0)
    with contextlib.suppress(OSError):  # an old /proc may be locked as read-only
        _set_attributes("/proc", 0, _ATTR_RDONLY, 0)


def _system_files() -> list[Path]:
    """Returns the paths in /proc except symbolic links and the folders of processes.

    The folders of processes are left out because a GPU's driver writes the names of threads in a process's own folder.
    """
    return [path for path in Path("/proc").iterdir() if not path.name.isdigit() and not path.is_symlink()]


def _devices(folder: Path, size: int, hidden: Sequence[Path]) -> None:
    """Replaces /dev by a new one without disks and terminals. The new /dev is assembled in `folder` and then moved.

    Device files in `hidden` are left out. The folder `shm` in the new /dev holds at most `size` bytes. Raises OSError
    if this machine denies a mount.
    """
    folder.mkdir()
    system.mount("none", folder, "tmpfs", _MS_NOSUID, "size=64k,mode=0755")
    for path in [*(Path("/dev") / name for name in _DEVICES), *Path("/dev").glob("nvidia*")]:
        if path not in hidden:
            _show(path, folder / path.name)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (folder / name).symlink_to(f"/proc/self/{target}")
    (folder / "shm").mkdir()
    system.mount("none", folder / "shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},mode=1777")
    system.mount(str(folder), "/dev", flags=_MS_MOVE)
    folder.rmdir()


def _show(path: Path, place: Path) -> None:
    """Makes the file or folder `path` visible at `place` too, which must not exist. Raises OSError if it cannot be."""
    place.mkdir() if path.is_dir() else place.touch()
    system.mount(str(path), place, flags=_MS_BIND | _MS_REC)


def _new_temporary(folder: Path) -> bool:
    """Replaces /tmp by a new one in memory that shows the files of the old one. Returns whether it did.

    Returns False if /tmp cannot be listed or has more than _MOST_SHOWN entries. Programs expect that they can write to
    /tmp. Processes outside this mount namespace do not see what is written there. Sockets and other special files are
    not shown. The new /tmp is assembled in `folder` and then moved. Raises OSError if this machine denies a mount.
    """
    shown = list(_TEMPORARY.iterdir()) if os.access(_TEMPORARY, os.R_OK | os.X_OK) else None
    if shown is None or len(shown) > _MOST_SHOWN:
        return False
    folder.mkdir()
    system.mount("none", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={_TEMPORARY_BYTES},mode=1777")
    system.mount("none", folder, flags=_MS_UNBINDABLE)  # `folder` may be in /tmp itself
    for path in shown:
        place = folder / path.name
        with contextlib.suppress(OSError):  # the file may be gone by now
            if path.is_symlink():
                place.symlink_to(path.readlink())
            elif path.is_dir() or path.is_file():
                _show(path, place)
    system.mount("none", folder, flags=_MS_PRIVATE)
    system.mount(str(folder), _TEMPORARY, flags=_MS_MOVE)
    folder.rmdir()
    return True


def _set_attributes(path: Path | str, put: int, clear: int, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(put, clear, 0, 0)
    where = ctypes.c_char_p(os.fsencode(path))
    system.call("mount_setattr", _AT_FDCWD, where, flags, ctypes.byref(attributes), ctypes.sizeof(attributes))

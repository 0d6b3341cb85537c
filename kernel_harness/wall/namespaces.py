"""A process with a machine of its own: its own processes, network, users and files, of which it can write to few."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from kernel_harness.wall import system

_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_ALL = _NEWNS | _NEWCGROUP | _NEWUTS | _NEWIPC | _NEWUSER | _NEWPID | _NEWNET
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 8192, 16384, 1 << 18
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_DEVICES = ("null", "zero", "full", "random", "urandom")
# Asked for here: in a namespace of its own a process is nobody until it says who it was outside.
_USER, _GROUP = os.geteuid(), os.getegid()


def fork() -> int:
    """os.fork(), the child in namespaces of its own, where it is process 1. Raises OSError where that is denied.

    A BLAS library keeps idle threads, which it ends before a fork that the C library knows of. Left alone, the
    child would wait for them for ever.
    """
    if _threads() > 1:
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
    return system.fork_into(_ALL, signal.SIGCHLD)


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def usable() -> bool:
    """Whether this machine lets this user have such namespaces, tried on a grandchild.

    Whoever asks may have threads, one of which may hold a lock of the C library just now.
    """
    return _in_child(lambda: os.waitstatus_to_exitcode(os.waitpid(fork() or _try(), 0)[1]) == 0, os.fork())


def _try() -> NoReturn:
    def wall() -> bool:
        become_user()
        system.mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
        _set_attributes("/", _ATTR_RDONLY, 0, _AT_RECURSIVE)
        return True

    _in_child(wall, 0)
    raise AssertionError


def _in_child(holds: Callable[[], bool], pid: int) -> bool:
    """Whether something holds, asked of the child just forked; the child does not return."""
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    code = 1
    with contextlib.suppress(BaseException):
        code = 0 if holds() else 1
    os._exit(code)


def become_user() -> None:
    """The same user as outside, for whom every file keeps its owner; without power over anything there."""
    maps = {"setgroups": "deny", "gid_map": f"{_GROUP} {_GROUP} 1", "uid_map": f"{_USER} {_USER} 1"}
    for name, text in maps.items():
        Path(f"/proc/self/{name}").write_text(text)


def furnish(folder: Path, hidden: Sequence[Path], size: int) -> None:
    """Makes every file read-only but those in `folder`, which starts empty and holds `size` bytes.

    `hidden` files and folders read as empty. Of the devices only the harmless ones and GPUs remain. The owner of
    the machine may write to /proc/sys with no capability at all: of /proc only processes stay writable.
    """
    system.mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    for path in hidden:
        if path.is_dir():
            system.mount("none", path, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4k,mode=0500")
        elif path.exists():
            system.mount("/dev/null", path, flags=_MS_BIND)
    system.mount("none", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},mode=0700")
    _devices(folder / ".dev", size)
    # A container that hides parts of its own /proc grants no second one: the first then stays, and the probe tells.
    with contextlib.suppress(OSError):
        system.mount("none", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    with contextlib.suppress(OSError):
        Path("/proc/sys/user/max_user_namespaces").write_text("0")  # no powers by way of yet another namespace
    for path in _facts_of_the_machine():
        system.mount(str(path), path, flags=_MS_BIND | _MS_REC)
    _set_attributes("/", _ATTR_RDONLY | _ATTR_NOSUID, 0, _AT_RECURSIVE)
    for path in (folder, Path("/dev/shm")):
        _set_attributes(path, 0, _ATTR_RDONLY, 0)
    with contextlib.suppress(OSError):  # the outer /proc, where it stayed, may be locked
        _set_attributes("/proc", 0, _ATTR_RDONLY, 0)


def _facts_of_the_machine() -> list[Path]:
    """All of /proc but its processes, who may write to what is theirs: a GPU's driver names its threads there."""
    return [path for path in Path("/proc").iterdir() if not path.name.isdigit() and not path.is_symlink()]


def _devices(folder: Path, size: int) -> None:
    """A /dev without disks, terminals and the like, put together in `folder` and moved there."""
    folder.mkdir()
    system.mount("none", folder, "tmpfs", _MS_NOSUID, "size=64k,mode=0755")
    for path in [*(Path("/dev") / name for name in _DEVICES), *Path("/dev").glob("nvidia*")]:
        place = folder / path.name
        place.mkdir() if path.is_dir() else place.touch()
        system.mount(str(path), place, flags=_MS_BIND | _MS_REC)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (folder / name).symlink_to(f"/proc/self/{target}")
    (folder / "shm").mkdir()
    system.mount("none", folder / "shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},mode=1777")
    system.mount(str(folder), "/dev", flags=_MS_MOVE)
    folder.rmdir()


def _set_attributes(path: Path | str, put: int, clear: int, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(put, clear, 0, 0)
    where = ctypes.c_char_p(os.fsencode(path))
    system.call("mount_setattr", _AT_FDCWD, where, flags, ctypes.byref(attributes), ctypes.sizeof(attributes))

"""The wall, which isolates a worker from other processes, files and the network before the worker loads a candidate.

This module chooses the kind of wall that a machine allows, and puts a process behind it. The module `probe` measures
what the wall prevents.
"""

from __future__ import annotations

import functools
import os
import resource
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from kernel_harness.sandbox import bubblewrap, landlock, namespaces, privileges

DISK_BYTES = 1 << 30
"""The most bytes that a worker may keep in its own folder, which can be in memory. 1 GiB is enough for any build."""


class Kind(StrEnum):
    """The kinds of walls, strongest first.

    NAMESPACES: each worker is forked into its own user, mount, process, network, IPC, host name and cgroup namespaces.
    It sees no other process and has no network. All existing files are read-only. Its own folder and /dev/shm are
    writable, start empty and hold DISK_BYTES each, in memory. New files in /tmp are in memory, too. Hidden paths are
    empty. /dev has no devices but GPUs that are not hidden, null, zero, full, random and urandom. Capabilities are
    dropped, and a seccomp filter refuses `connect`, key rings, io_uring, range locks, notes of the use of files
    (inotify, fanotify) and most kinds of sockets.

    BUBBLEWRAP: the program `bwrap` runs the fork server in new namespaces, which all workers share. This kind is for
    machines that allow only `bwrap` to create namespaces. What protects workers from each other is the same as for
    LANDLOCK, without Landlock if the Linux kernel lacks it. The fork server starts before the problem is known, so
    `bwrap` itself hides only the folders of problems and results (`hidden_from_workers`).

    LANDLOCK: no namespaces. A worker writes only to its own folder, to harmless devices and to GPUs, cannot read hidden
    paths, and, if Landlock's version can forbid it, uses no TCP and signals no process but its own descendants and
    itself. Capabilities are dropped, and the seccomp filter is installed. If Landlock's version cannot forbid signals,
    the filter refuses them. A file has at most DISK_BYTES. Other processes and file names stay visible.

    NONE: no wall. A worker is a separate process with its own working directory. It can reach whatever its user can.
    """

    NAMESPACES = "namespaces"
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "process"


@functools.cache  # the test of a machine forks this process three times, which takes 20 ms of CPU time (measured)
def best() -> Kind:
    """Returns the strongest kind of wall that this machine allows this user."""
    if namespaces.usable():
        return Kind.NAMESPACES
    if bubblewrap.usable():
        return Kind.BUBBLEWRAP
    return Kind.LANDLOCK if landlock.version() else Kind.NONE


def weaker(kind: Kind) -> Kind:
    """Returns the kind of wall to use if no worker can enter a wall of the kind `kind`.

    It is LANDLOCK after NAMESPACES if the Linux kernel has Landlock, and otherwise NONE. It is never BUBBLEWRAP,
    because bwrap cannot be put around a fork server that already runs.
    """
    return Kind.LANDLOCK if kind is Kind.NAMESPACES and landlock.version() else Kind.NONE


def enter(kind: Kind, folder: Path, hidden: Sequence[Path]) -> None:
    """Puts this process, a worker, behind a wall of the kind `kind`, and makes `folder` its working directory.

    The wall cannot be left again. `folder` is writable behind every wall, and created if it is missing; the class Kind
    says what is forbidden. The paths in `hidden` cannot be read behind NAMESPACES, LANDLOCK, and BUBBLEWRAP if the
    Linux kernel has Landlock. Behind BUBBLEWRAP without Landlock, only the paths that the fork server was started with
    are hidden, and behind NONE no path. A path in `hidden` stays readable if it contains files that workers need, such
    as the compiler. Raises OSError if this process cannot enter the wall.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If the machine runs out of memory, Linux should kill a worker, not the judge.
    Path("/proc/self/oom_score_adj").write_text("1000")
    folder.mkdir(exist_ok=True)
    if kind is Kind.NAMESPACES:
        namespaces.become_user()
        namespaces.furnish(folder, _hideable(hidden, folder), DISK_BYTES)
        privileges.drop()
    elif kind is not Kind.NONE:
        resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
        privileges.drop(others_visible=True, own_signals_only=landlock.version() < landlock.SIGNALS_SINCE)
        if kind is Kind.LANDLOCK or landlock.version():
            # The parent has the folders of all workers.
            landlock.restrict(
                [folder, *(path for path in _devices() if path not in hidden)],
                [*_hideable(hidden, folder), folder.parent],
            )
    os.chdir(folder)


def _devices() -> list[Path]:
    return [*(Path("/dev") / name for name in ("null", "zero", "full")), *Path("/dev").glob("nvidia*")]


def _hideable(hidden: Sequence[Path], folder: Path) -> list[Path]:
    """Returns the paths in `hidden` that contain no file that a worker needs, such as the compiler or `folder`."""
    places = (shutil.which("c++"), os.__file__, sys.prefix, os.environ.get("KERNEL_HARNESS_CACHE"))
    needed = [Path(__file__).parents[1], folder, *map(Path, filter(None, places))]
    return [h for h in hidden if not any(n.resolve().is_relative_to(h.resolve()) for n in needed)]

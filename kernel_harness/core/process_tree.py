"""Functions that list a process and its descendants, measure their memory and CPU time, and kill a process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

import psutil

_CPUCLOCK_SCHED = 2  # include/linux/posix-timers_types.h


def memory_bytes(processes: Sequence[psutil.Process]) -> int:
    """Returns the memory that `processes` take together, in bytes. A page that several of them share counts once.

    The function adds up PSS (proportional set size). A sum of RSS (resident set size) would be faster to compute, but
    it would count a shared page once for each process.
    """
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def group(pid: int) -> list[psutil.Process]:
    """Returns the process `pid` and then its descendants, as psutil.Process objects.

    Zombies are left out. The list is empty if there is no such process, or only zombies.
    """
    try:
        first = psutil.Process(pid)
        if first.status() == psutil.STATUS_ZOMBIE:
            return below(pid)
        return [first, *below(pid)]
    except psutil.NoSuchProcess:
        return []


def below(pid: int) -> list[psutil.Process]:
    """Returns the descendants of the process `pid` as psutil.Process objects, without zombies."""
    found: list[psutil.Process] = []
    for child in pids(pid)[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(child)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def pids(pid: int) -> list[int]:
    """Returns the ids of the process `pid` and its descendants, zombies included. Parents come before their children.

    Reads `/proc/<pid>/task/<tid>/children`. A scan of all processes would add too much time to each timed call.
    """
    found = [pid]
    for each in found:
        found += _children(each)
    return found


def is_at_rest(pid: int) -> bool:
    """Returns whether every thread of the process `pid` is stopped, dead, or waits for the child of its vfork.

    Returns True if the process does not exist.

    A stop signal takes effect only when a thread returns from the Linux kernel to user mode. A thread that has called
    vfork waits in the kernel, uninterruptibly, until the child starts another program or exits. If the child is
    stopped, this wait may never end, so the thread counts as at rest. In a process without children, a thread that
    waits uninterruptibly waits for something else. Such a wait is short. The thread may be in a call of fork, which
    makes a new process in spite of the signal, so the thread does not count as at rest.
    """
    with contextlib.suppress(OSError):  # the process may end at any moment
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib is slower, in each timed call
            state = _read(f"/proc/{pid}/task/{task}/stat").rpartition(b")")[2][1:2]
            if state not in b"TtZX" and not (state == b"D" and _children(pid)):
                return False
    return True


def cpu_ns(pid: int) -> int:
    """Returns the CPU time that all threads of the process `pid` have used, in ns; 0 if there is no such process."""
    with contextlib.suppress(OSError):
        # The clock's number as the C library's clock_getcpuclockid computes it, which Python does not offer.
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    return 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process may end at any moment
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib is slower, in each timed call
            with contextlib.suppress(OSError):
                found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _read(path: str) -> bytes:
    """Returns the content of a file in /proc. Takes a fraction of the time of `open`, in each timed call."""
    file = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def kill(process: psutil.Process) -> None:
    """Kills the process. Does nothing if the process has already ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()

"""Functions that list a process and its descendants, measure their memory and CPU time, and kill a process."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Sequence

import psutil

_CPUCLOCK_SCHED = 2  # include/linux/posix-timers_types.h


def memory_bytes(processes: Sequence[psutil.Process]) -> int:
    """Returns the memory that `processes` take together, in bytes.

    A page that n processes share counts as 1/n in each, also if some of the n are not in `processes`: the function adds
    up PSS (proportional set size). A sum of RSS (resident set size) would be faster to compute, but it would count a
    shared page once for each process. RSS takes the place of a PSS that is zero or cannot be read: a process can forbid
    to read it (PR_SET_DUMPABLE), and a process whose first thread has ended shows none.
    """
    total = 0
    for process in processes:
        pss = 0
        with contextlib.suppress(psutil.Error):
            pss = process.memory_full_info().pss
        total += pss or rss_bytes(process.pid)
    return total


def rss_bytes(pid: int) -> int:
    """Returns the RSS of the process `pid` in bytes; 0 if there is no such process.

    A thread that has ended shows no memory, and the first thread may have ended. So the function reads the threads one
    after the other, until one shows memory.
    """
    for task in tasks(pid):
        with contextlib.suppress(OSError):
            pages = int(_read(f"/proc/{pid}/task/{task}/statm").split()[1])
            if pages:
                return pages * resource.getpagesize()
    return 0


def tasks(pid: int) -> list[str]:
    """Returns the ids of the threads of the process `pid`, as texts. The list is empty if there is no such process.

    psutil is not used: it reads the number of threads from a text that also has the process's name, which the process
    chooses.
    """
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - pathlib is slower, in each timed call
    except OSError:  # the process may end at any moment
        return []


def group(pid: int) -> list[psutil.Process]:
    """Returns the process `pid` and then its descendants, as psutil.Process objects.

    Processes of which no thread is left (zombies) are left out. The list is empty if there is no such process, or only
    zombies.
    """
    return _living(pids(pid))


def below(pid: int) -> list[psutil.Process]:
    """Returns the descendants of the process `pid` as psutil.Process objects, without zombies."""
    return _living(pids(pid)[1:])


def _living(found: Sequence[int]) -> list[psutil.Process]:
    processes: list[psutil.Process] = []
    for pid in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            # Linux reports the state of the first thread, which may have ended before the others, for the process.
            if any(_state(pid, task) not in b"ZX" for task in tasks(pid)):
                processes.append(psutil.Process(pid))
    return processes


def pids(pid: int) -> list[int]:
    """Returns the ids of the process `pid` and its descendants, zombies included. Parents come before their children.

    Returns only `pid` if there is no such process. Reads `/proc/<pid>/task/<tid>/children`. A scan of all processes
    would add too much time to each timed call.
    """
    found = [pid]
    for each in found:
        found += _children(each)
    return found


def is_at_rest(pid: int) -> bool:
    """Returns whether every thread of the process `pid` is stopped, has ended, or seems to wait for a vfork.

    Returns True if the process does not exist.

    A stop signal takes effect only when a thread returns from the Linux kernel to user mode. A thread that has called
    vfork waits in the kernel, uninterruptibly, until the child starts another program or exits. If the child is
    stopped, this wait may never end. So in a process that has children, a thread that waits uninterruptibly counts as
    at rest. In a process without children, such a thread waits for something else, for a short time. The thread may be
    in a call of fork, which makes a new process in spite of the signal, so the thread does not count as at rest.
    """
    for task in tasks(pid):
        state = _state(pid, task)
        if state not in b"TtZX" and not (state == b"D" and _children(pid)):
            return False
    return True


def _state(pid: int, task: str) -> bytes:
    """Returns the letter that Linux shows for a thread's state; X (dead) if there is no such thread."""
    try:
        return _read(f"/proc/{pid}/task/{task}/stat").rpartition(b")")[2][1:2]
    except OSError:
        return b"X"


def cpu_ns(pid: int) -> int:
    """Returns the CPU time that all threads of the process `pid` have used, in ns; 0 if there is no such process."""
    with contextlib.suppress(OSError):
        # The clock's number as the C library's clock_getcpuclockid computes it, which Python does not offer.
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    return 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in tasks(pid):
        with contextlib.suppress(OSError):
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _read(path: str) -> bytes:
    """Returns the content of a file in /proc. Raises OSError. Python's `open` would slow down each timed call."""
    file = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def kill(process: psutil.Process) -> None:
    """Kills the process. Does nothing if the process has already ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()

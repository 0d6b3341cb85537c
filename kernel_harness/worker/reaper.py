"""The reaper: the parent process of one worker. It adopts the worker's orphans and kills them when the worker ends.

The reaper's own parent is the fork server. Without a reaper, an orphan of a worker would become a child of the fork
server. With a reaper, all descendants of a worker stay below one process, so the judge can find, count, stop and kill
them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from pathlib import Path
from typing import NoReturn

from kernel_harness.sandbox import system

_STATUS = struct.Struct("<i")


def fork_below(report: int) -> None:
    """Forks. The child (the worker) returns to the caller. The parent becomes the child's reaper and never returns.

    The reaper writes the child's wait status to the descriptor `report`, kills all its other descendants and exits.
    In a process namespace the reaper has a second purpose: it is process 1 instead of the worker. Process 1 ignores
    signals that it sends itself, so abort() would not end a worker that is process 1.
    """
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if not child:
        system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    system.prctl(system.PR_SET_DUMPABLE, 0)  # otherwise the worker could open the reaper's `report` through /proc
    os.closerange(0, report)
    _reap(child, report)


def _reap(child: int, report: int) -> NoReturn:
    """Waits until `child` has ended, writes its wait status to `report`, kills all other descendants, and exits."""
    pid, status = os.wait()
    while pid != child:
        pid, status = os.wait()
    os.write(report, _STATUS.pack(status))
    with contextlib.suppress(ChildProcessError):  # os.wait raises it when no child is left
        while True:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            os.wait()
    os._exit(0)


def children() -> set[int]:
    """Returns the process numbers of this process's children, zombies included."""
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def read_report(report: int) -> int | None:
    """Reads the worker's wait status from `report`, the reading end of the reaper's pipe, without waiting.

    Returns the wait status (the second value that `os.waitpid` returns), or None if the reaper has not written it.
    """
    os.set_blocking(report, False)
    try:
        data = os.read(report, _STATUS.size)
    except BlockingIOError:
        return None
    return int(_STATUS.unpack(data)[0]) if len(data) == _STATUS.size else None

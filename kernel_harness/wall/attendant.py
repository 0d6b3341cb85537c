"""The process between the template and a worker: whoever the worker leaves behind is its child, and ends with it.

So a worker's processes are below one that stays, to be stopped and counted, whatever becomes of those between.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from pathlib import Path
from typing import NoReturn

from kernel_harness.wall import system

_STATUS = struct.Struct("<i")


def step_back(report: int) -> None:
    """Goes on in a child, and attends it in the process that was there: how it ended is written to `report`.

    For process 1 of a namespace there is one more reason: it feels no signal that it sends itself, so that abort()
    would not end it.
    """
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if not child:
        system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    system.prctl(system.PR_SET_DUMPABLE, 0)  # its child is not to write its report
    os.closerange(0, report)
    _attend(child, report)


def _attend(child: int, report: int) -> NoReturn:
    """Collects the dead until `child` is among them, and ends all that are left."""
    pid, status = os.wait()
    while pid != child:
        pid, status = os.wait()
    os.write(report, _STATUS.pack(status))
    with contextlib.suppress(ChildProcessError):  # raised once nobody is left
        while True:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            os.wait()
    os._exit(0)


def children() -> set[int]:
    """The processes right below this one, dead ones included."""
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def reported(report: int) -> int | None:
    """What was written, if it came to that."""
    os.set_blocking(report, False)
    try:
        data = os.read(report, _STATUS.size)
    except BlockingIOError:
        return None
    return int(_STATUS.unpack(data)[0]) if len(data) == _STATUS.size else None

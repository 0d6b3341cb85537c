"""A process and all below it, as the judge sees them: listed, weighed, ended. Whose they are is known elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import psutil


def without_sharing(processes: Sequence[psutil.Process]) -> int:
    """Bytes with each page counted once, whichever of the processes share it; slower to find out than their sum."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def group(pid: int) -> list[psutil.Process]:
    """A process and all below it, itself first; dead ones left out."""
    try:
        first = psutil.Process(pid)
        if first.status() == psutil.STATUS_ZOMBIE:
            return below(pid)
        return [first, *below(pid)]
    except psutil.NoSuchProcess:
        return []


def below(pid: int) -> list[psutil.Process]:
    """Every live descendant."""
    found: list[psutil.Process] = []
    for child in pids(pid)[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(child)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def pids(pid: int) -> list[int]:
    """A process and all below it, the dead that nobody has collected yet among them, parents first.

    Read off the tree itself: looking through all processes would cost each timed call.
    """
    found = [pid]
    for each in found:
        found += _children(each)
    return found


def stands(pid: int) -> bool:
    """Whether every thread of a process has stopped or ended. A signal to stop is felt on the way out of the kernel."""
    with contextlib.suppress(OSError):  # it may end at any moment
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - paths would cost each timed call
            with open(f"/proc/{pid}/task/{task}/stat") as stat:  # noqa: PTH123
                if stat.read().rpartition(")")[2].split(maxsplit=1)[0] not in "TtZX":
                    return False
    return True


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it may end at any moment
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - paths would cost each timed call
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as children:  # noqa: PTH123
                found += map(int, children.read().split())
    return found


def kill(process: psutil.Process) -> None:
    """Ends it, if it has not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()

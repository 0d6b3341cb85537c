"""The pauses of a worker: all of its processes are stopped, and one that runs meanwhile has escaped."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

from kernel_harness.core import process_tree

ESCAPES = 3
"""A worker that has escaped so many pauses is killed.

One escape can have a harmless cause: for example, Linux kills one of its processes because memory runs out."""
# A paused worker uses no CPU time, except to finish a system call in which it waited. It has escaped the pause if it
# used more than _ESCAPE_NS or started a process. Fifty pauses without an escape make up for one.
_ESCAPE_NS, _FORGIVEN = 1_000_000, 0.02
_LOOKED_S = 0.005
_POLL_S = 1e-4


class Pauses:
    """The pauses of the process `pid` and all of its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._paused: dict[int, int] | None = None  # the CPU time in ns of each paused process; None between pauses
        self._escapes = 0.0
        self._looked = 0.0  # when the processes were last looked at during a pause

    def stop(self, limit_s: float) -> bool:
        """Stops the processes. Returns True, or False if some still run after `limit_s` seconds.

        Sends SIGSTOP to all processes again and again, until two searches in a row find the same processes, all at rest
        (`process_tree.is_at_rest`) and none with more CPU time than before. Then no process has run between the two
        searches. So none has forked or resumed another after the SIGSTOP that was sent between the searches, and the
        parent of a vfork child will stop after its wait. One search would not be enough: a process that it found at
        rest can be resumed by one that it finds at rest later. Zombies are searched too, because a process that forks
        and exits in a loop leaves only zombies to be seen.
        """
        end = time.monotonic() + limit_s
        before: dict[int, int] = {}
        while True:
            found: dict[int, int] = {}
            at_rest = True
            for pid in process_tree.pids(self._pid):
                at_rest = at_rest and process_tree.is_at_rest(pid)
                found[pid] = process_tree.cpu_ns(pid)
            self._paused, self._looked = found, 0.0
            if at_rest and found == before:
                return True
            if time.monotonic() > end:
                return False
            signal_each(signal.SIGSTOP, found)
            before = found
            if not at_rest:
                time.sleep(_POLL_S)

    def resume(self) -> None:
        """Resumes the processes that `stop` stopped."""
        signal_each(signal.SIGCONT, self._paused or ())
        self._paused = None

    def escaped_often(self) -> bool:
        """Returns whether the processes have escaped ESCAPES pauses, the present one included. False between pauses.

        Also returns False if it was called in this pause less than _LOOKED_S seconds ago: before a timed call on a GPU
        the judge calls it ahead, because the judge keeps the GPU for itself until the call, for a short time only.

        A pause was escaped if the processes used more than _ESCAPE_NS of CPU time during the pause, or started a
        process. Fifty pauses without an escape cancel one escape. A stopped process can be resumed without another
        process, for example by a timer that sends SIGCONT.
        """
        now = time.monotonic()
        if self._paused is None or now - self._looked < _LOOKED_S:
            return False
        self._looked = now
        found = {pid: process_tree.cpu_ns(pid) for pid in process_tree.pids(self._pid)}
        used_ns = sum(max(0, now_ns - self._paused.get(pid, now_ns)) for pid, now_ns in found.items())
        escaped = used_ns > _ESCAPE_NS or not found.keys() <= self._paused.keys()
        self._escapes = self._escapes + 1 if escaped else max(0.0, self._escapes - _FORGIVEN)
        return self._escapes >= ESCAPES


def signal_each(number: signal.Signals, pids: Iterable[int]) -> None:
    """Sends a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

"""Measures how long the phases of a thread's work take, such as planning, calls and comparisons."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

OUTSIDE = "other"
"""The name of the time outside of all phases."""


class _Local(threading.local):
    """The stopwatch of each thread; None in a thread that has not called `record`."""

    stopwatch: _Stopwatch | None = None


class _Stopwatch:
    """The seconds of each phase since the last `taken`. `path` names the phases in progress, the outermost first."""

    def __init__(self, began_s: float) -> None:
        self.path: list[str] = []
        self._since_s = began_s
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def lap(self) -> None:
        now_s = time.monotonic()
        self._seconds[" / ".join(self.path) or OUTSIDE] += now_s - self._since_s
        self._since_s = now_s

    def taken(self) -> dict[str, float]:
        self.lap()
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds


_local = _Local()


def process_began_s() -> float:
    """Returns when this process began, by `time.monotonic`."""
    return time.monotonic() - (time.time() - psutil.Process().create_time())


def record(first: str, began_s: float) -> None:
    """Begins to measure the phases of the present thread.

    The time from `began_s`, by `time.monotonic`, until now belongs to the phase `first`.
    """
    stopwatch = _Stopwatch(began_s)
    stopwatch.path.append(first)
    stopwatch.lap()
    stopwatch.path.clear()
    _local.stopwatch = stopwatch


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Returns a context manager, also usable as a decorator of a function, that measures the phase `name`.

    The phase is that of the present thread. A phase within another one is named `outer / inner`, and the time of the
    outer one does not contain it. Does nothing in a thread that has not called `record`.
    """
    stopwatch = _local.stopwatch
    if stopwatch is None:
        yield
        return
    stopwatch.lap()
    stopwatch.path.append(name)
    try:
        yield
    finally:
        stopwatch.lap()
        stopwatch.path.pop()


def taken() -> dict[str, float]:
    """Returns the seconds of each phase of the present thread, by name, since the last call of this function.

    The first call returns the seconds since `began_s` of `record`. A phase in progress counts until now. The values add
    up to the time that has passed. Time outside of all phases is named "other". Returns an empty dict in a thread that
    has not called `record`.
    """
    stopwatch = _local.stopwatch
    return {} if stopwatch is None else stopwatch.taken()

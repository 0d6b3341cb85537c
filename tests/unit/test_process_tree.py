"""Processes that hide their threads and their memory are counted, and ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from kernel_harness.core import process_tree

MEGABYTES = 64
# PR_SET_NAME is 15, PR_SET_DUMPABLE is 4.
STARTS_THREADS = f"""
import ctypes, threading
libc = ctypes.CDLL(None)
kept = bytearray(b"x") * ({MEGABYTES} << 20)
stay = threading.Event()
for _ in range(20):
    threading.Thread(target=stay.wait).start()
HIDES
print("started", flush=True)
ENDS
"""
HIDES = {
    "nothing": ("", ""),
    "by a name with a number of threads": (r"libc.prctl(15, b'Threads:\t1', 0, 0, 0)", ""),
    "by the end of the first thread": ("", "libc.pthread_exit(None)"),
    "by forbidding to read its memory": ("libc.prctl(4, 0, 0, 0, 0)", ""),
}


@pytest.fixture(params=HIDES.values(), ids=HIDES.keys())
def hidden(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of a process with 20 threads beside its first one, and MEGABYTES of memory."""
    hides, ends = request.param
    words = [sys.executable, "-c", STARTS_THREADS.replace("HIDES", hides).replace("ENDS", ends)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"started\n"
        while ends and psutil.Process(started.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        try:
            yield started.pid
        finally:
            started.kill()


def test_hidden_threads_and_memory_are_counted(hidden: int) -> None:
    (found,) = process_tree.group(hidden)

    assert found.pid == hidden
    assert len(process_tree.tasks(hidden)) == 21
    assert MEGABYTES << 20 < process_tree.rss_bytes(hidden) < 2 * MEGABYTES << 20


def test_memory_that_must_not_be_read_counts_as_resident(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge with capabilities may read it."""
    assert MEGABYTES << 20 < process_tree.memory_bytes(process_tree.group(hidden)) < 2 * MEGABYTES << 20

    def denied(self: psutil.Process) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "memory_full_info", denied)
    assert process_tree.memory_bytes(process_tree.group(hidden)) > MEGABYTES << 20


def test_an_ended_process_is_not_counted() -> None:
    with subprocess.Popen(["true"]) as ended:
        while psutil.Process(ended.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)

        assert process_tree.group(ended.pid) == []
        assert process_tree.pids(ended.pid) == [ended.pid]
        assert process_tree.rss_bytes(ended.pid) == 0

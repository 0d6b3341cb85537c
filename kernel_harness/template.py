"""The process that workers are forked from: torch imported, no candidate, no CUDA context, one thread.

It forks on request, collects the dead, and ends whatever outlives its parent. It judges nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import psutil

from kernel_harness import channel, device

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """`python -m kernel_harness.template DESCRIPTOR`: serves until the judge hangs up."""
    end = channel.Channel(socket.socket(fileno=int(sys.argv[1])))
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    dead: dict[int, int] = {}
    workers: set[int] = set()
    try:
        while True:
            select.select([end], [], [], 0.2)
            _collect(workers, dead)
            if not select.select([end], [], [], 0)[0]:
                continue
            message, descriptors = end.receive()
            end.send(_answer(message, descriptors, workers, dead))
    except channel.Closed:
        pass
    finally:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _answer(message: dict[str, Any], descriptors: list[int], workers: set[int], dead: dict[int, int]) -> dict[str, Any]:
    if message["do"] == "fork":
        pid = _fork(descriptors, message["folder"])
        workers.add(pid)
        return {"pid": pid}
    if message["do"] == "prepare":
        os.environ.update(message["environment"])
        device.named(message["device"]).prepare_worker()
        return {}
    return {"status": dead.get(message["pid"])}


def _fork(descriptors: list[int], folder: str) -> int:
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid
    code = 70
    try:
        code = _become_worker(descriptors, folder)
    finally:
        os._exit(code)


def _become_worker(descriptors: list[int], folder: str) -> int:
    """The child's side of the fork. The wall between worker and judge goes up here, before the candidate is read."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    control, output = descriptors
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2), (control, 3)):
        os.dup2(source, target)
    os.closerange(4, 1 << 16)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    from kernel_harness import worker

    return worker.main(channel.Channel(socket.socket(fileno=3)))


def _collect(workers: set[int], dead: dict[int, int]) -> None:
    """Notes how workers ended. Whoever else was left behind is ended: nobody honest outlives its worker's group."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            break
        if pid in workers:
            workers.discard(pid)
            dead[pid] = status
    for pid in _children() - workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


if __name__ == "__main__":
    main()

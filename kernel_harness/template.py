"""The process that workers are forked from: torch imported, no candidate, no CUDA context, one thread.

It forks on request, collects the dead, and ends whatever outlives its parent. It judges nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from kernel_harness import channel, device, wall
from kernel_harness.wall import Kind, attendant, namespaces, system

COULD_NOT_ENTER = 71


def main() -> None:
    """`python -m kernel_harness.template DESCRIPTOR`: serves until the judge hangs up."""
    end = channel.Channel(socket.socket(fileno=int(sys.argv[1])))
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    workers = _Workers()
    try:
        while True:
            select.select([end], [], [], 0.2)
            workers.collect()
            if not select.select([end], [], [], 0)[0]:
                continue
            message, descriptors = end.receive()
            end.send(_answer(message, descriptors, workers))
    except channel.Closed:
        pass
    finally:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@dataclass
class _Workers:
    """Those alive, each with the pipe that its end is reported through, and how the dead ended."""

    kind: Kind = Kind.NONE
    hidden: list[Path] = field(default_factory=list)
    alive: dict[int, int] = field(default_factory=dict)
    dead: dict[int, int] = field(default_factory=dict)

    def fork(self, descriptors: Sequence[int], folder: str) -> int:
        """A new one."""
        report, theirs = os.pipe()
        pid = namespaces.fork() if self.kind is Kind.NAMESPACES else os.fork()
        if pid:
            for descriptor in (*descriptors, theirs):
                os.close(descriptor)
            self.alive[pid] = report
            self.dead.pop(pid, None)  # one that had the same number
            return pid
        code = COULD_NOT_ENTER
        try:
            code = _become_worker((*descriptors, theirs), Path(folder), self.kind, self.hidden)
        except OSError as error:
            print(f"The wall does not stand here: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    def collect(self) -> None:
        """Notes how workers ended. Whoever else was left is ended: nobody honest outlives its worker's group."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                break
            if pid in self.alive:
                report = self.alive.pop(pid)
                inner = attendant.reported(report)
                os.close(report)
                self.dead[pid] = status if inner is None else inner
        for pid in attendant.children() - self.alive.keys():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _answer(message: dict[str, Any], descriptors: list[int], workers: _Workers) -> dict[str, Any]:
    if message["do"] == "fork":
        return {"pid": workers.fork(descriptors, message["folder"])}
    if message["do"] == "prepare":
        os.environ.update(message["environment"])
        device.named(message["device"]).prepare_worker()
        return {}
    if message["do"] == "wall":
        workers.kind, workers.hidden = Kind(message["kind"]), list(map(Path, message["hidden"]))
        return {}
    return {"status": workers.dead.get(message["pid"])}


def _become_worker(descriptors: Sequence[int], folder: Path, kind: Kind, hidden: Sequence[Path]) -> int:
    """The child's side of the fork. The wall between worker and judge goes up here, before the candidate is read."""
    os.setsid()
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    control, output, report = descriptors
    null = os.open(os.devnull, os.O_RDONLY)
    kept = [os.dup(d) for d in (null, output, output, control, report)]
    for target, source in enumerate(kept):
        os.dup2(source, target)
    os.closerange(5, 1 << 16)
    os.environ.update(HOME=str(folder), TMPDIR=str(folder))
    # What was asked before the fork would be remembered, and is another folder.
    os.environ.update(TORCHINDUCTOR_CACHE_DIR=str(folder / "torchinductor"), TRITON_CACHE_DIR=str(folder / "triton"))
    tempfile.tempdir = None
    if kind is Kind.NAMESPACES:
        wall.enter(kind, folder, hidden)
        attendant.step_back(report=4)
    else:
        attendant.step_back(report=4)  # where nobody behind the wall can send it a signal
        wall.enter(kind, folder, hidden)
    os.close(4)
    from kernel_harness import worker

    return worker.main(channel.Channel(socket.socket(fileno=3)))


if __name__ == "__main__":
    main()

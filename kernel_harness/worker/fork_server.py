"""The main program of the fork server: `python -m kernel_harness.worker.fork_server DESCRIPTOR`.

`DESCRIPTOR` is the file descriptor of a socket: the fork server's end of the channel to the judge. The fork server
forks a worker on request, collects workers that have ended, and kills descendants that outlive their worker. It has one
thread, has imported torch, and holds no candidate and no CUDA context.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import psutil

gc.disable()  # until torch is imported: collections would be a sixth of the time of its import (measured)
from kernel_harness import device, sandbox
from kernel_harness.ipc import channel, envelope
from kernel_harness.ipc.messages import Done
from kernel_harness.ipc.process_messages import ExitStatus, Fork, Forked, GetExitStatus, PrepareDevice, SetWall
from kernel_harness.ipc.schema import Message
from kernel_harness.sandbox import Kind, namespaces, system
from kernel_harness.worker import reaper

COULD_NOT_ENTER = 71
_REQUESTS = (Fork, PrepareDevice, SetWall, GetExitStatus)


def main() -> None:
    """Replies to the judge's requests until the judge closes its end of the channel, then kills all descendants.

    The first command-line argument is the descriptor of the channel's socket.
    """
    gc.enable()
    end = channel.Channel(socket.socket(fileno=int(sys.argv[1])))
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge handles Ctrl-C
    workers = _Workers()
    try:
        while True:
            select.select([end], [], [], 0.2)
            workers.collect()
            if not select.select([end], [], [], 0)[0]:
                continue
            received = envelope.receive(end, _REQUESTS)
            envelope.send(end, _reply(received.message, received.descriptors, workers))
    except channel.Closed:
        pass
    finally:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@dataclass
class _Workers:
    """The live workers, the wait status of each worker that has ended, and the wall around later workers.

    The wall is of the kind `kind` and hides the paths `hidden`. The keys of `reports` and `ended` are process numbers
    of reapers. `reports` has, for each live worker, the pipe to which its reaper writes the worker's wait status.
    `ended` has the wait status (the second value that `os.waitpid` returns) of each worker that has ended.
    """

    kind: Kind = Kind.NONE
    hidden: list[Path] = field(default_factory=list)
    reports: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)

    def fork(self, descriptors: Sequence[int], folder: str) -> int:
        """Forks this process, the fork server, to start a worker with its own `folder`. Returns the reaper's number.

        The child forks again: the new process is the worker, and the child stays as its reaper. `descriptors` are the
        worker's end of its channel, and the pipe for what it prints. The fork server's copies of them are closed.
        """
        report, report_in_worker = os.pipe()
        pid = namespaces.fork() if self.kind is Kind.NAMESPACES else os.fork()
        if pid:
            for descriptor in (*descriptors, report_in_worker):
                os.close(descriptor)
            self.reports[pid] = report
            self.ended.pop(pid, None)  # an earlier worker may have had the same number
            return pid
        code = COULD_NOT_ENTER
        try:
            code = _become_worker((*descriptors, report_in_worker), Path(folder), self.kind, self.hidden)
        except OSError as error:
            print(f"A worker cannot enter the wall {self.kind!s}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    def collect(self) -> None:
        """Records the wait status of workers that have ended, and kills orphans.

        An orphan is a child of the fork server that belongs to no live worker: its own worker and reaper have ended.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                break
            if pid in self.reports:
                report = self.reports.pop(pid)
                reported = reaper.read_report(report)
                os.close(report)
                self.ended[pid] = status if reported is None else reported
        for pid in reaper.children() - self.reports.keys():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _reply(request: Message, descriptors: list[int], workers: _Workers) -> Message:
    match request:
        case Fork(folder):
            return Forked(workers.fork(descriptors, folder))
        case GetExitStatus(pid):
            return ExitStatus(workers.ended.get(pid))
        case PrepareDevice(name, environment):
            os.environ.update(environment)
            device.named(name).prepare_worker()
            _prepare_memory()
        case SetWall(kind, hidden):
            workers.kind, workers.hidden = Kind(kind), list(map(Path, hidden))
    return Done()


def _prepare_memory() -> None:
    """Makes the start and the end of later workers cheaper: they take 35 instead of 57 ms of CPU time (measured).

    A worker finds its program imported. A garbage collection in a worker skips the objects that exist now. Otherwise
    it would write to each of them, and Linux would copy their memory for the worker.
    """
    import_module("kernel_harness.worker.worker")  # here, because an import of its devices reads the environment
    gc.freeze()


def _become_worker(descriptors: Sequence[int], folder: Path, kind: Kind, hidden: Sequence[Path]) -> int:
    """Makes this child of the fork server the reaper of a worker, and runs the worker in a child of it.

    Returns the worker's exit code, in the worker; the reaper does not return. The worker enters its wall before it
    reads a request. `descriptors` are the worker's end of its channel, the pipe for what it prints, and the pipe for
    its wait status. `folder` is the worker's own folder. The wall is of the kind `kind` and hides the paths `hidden`.
    Raises OSError if the worker cannot enter the wall.
    """
    os.setsid()
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    control, output, report = descriptors
    null = os.open(os.devnull, os.O_RDONLY)
    kept = [os.dup(descriptor) for descriptor in (null, output, output, control, report)]
    for target, source in enumerate(kept):
        os.dup2(source, target)
    os.closerange(5, 1 << 16)
    os.environ.update(HOME=str(folder), TMPDIR=str(folder))
    # Inductor and Triton read these variables once. A value that they read before the fork would not be this folder.
    os.environ.update(TORCHINDUCTOR_CACHE_DIR=str(folder / "torchinductor"), TRITON_CACHE_DIR=str(folder / "triton"))
    tempfile.tempdir = None
    if kind is Kind.NAMESPACES:
        sandbox.enter(kind, folder, hidden)
        reaper.fork_below(report=4)
    else:
        # The reaper stays outside the wall, where the processes inside cannot signal it.
        reaper.fork_below(report=4)
        sandbox.enter(kind, folder, hidden)
    os.close(4)
    from kernel_harness.worker import worker

    return worker.main(channel.Channel(socket.socket(fileno=3)))


if __name__ == "__main__":
    main()

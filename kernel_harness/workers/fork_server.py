"""The judge's handle of the fork server. It chooses the wall, and asks for workers.

The program of the fork server itself is `worker.fork_server`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from cuda_on_cpu.compile import cache
from kernel_harness import device as devices
from kernel_harness import sandbox
from kernel_harness.core import process_tree
from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.core.paths import IMPORT_ROOT
from kernel_harness.ipc import channel, envelope
from kernel_harness.ipc.channel import Channel
from kernel_harness.ipc.messages import Done
from kernel_harness.ipc.process_messages import ExitStatus, Fork, Forked, GetExitStatus, PrepareDevice, Probed, SetWall
from kernel_harness.ipc.schema import Message
from kernel_harness.sandbox import Kind, bubblewrap, probe
from kernel_harness.workers.fork_server_process import ForkServerProcess, allowed
from kernel_harness.workers.process import Limits, WorkerCrashed, WorkerHandles, WorkerProcess

R = TypeVar("R", bound=Message)


class ForkServerGone(EnvironmentLacking):
    """The error raised if the fork server has ended or does not reply. No more workers can be started then."""


class ForkServer(Closing):
    """A handle of a running fork server, the process that workers are forked from.

    A `with` block kills the fork server and all its descendants at its end. `process` is the fork server's process, and
    `kind` is not used then. If `process` is None, the constructor starts a fork server for workers behind a wall of the
    kind `kind`; None selects the strongest wall that this machine allows. The constructor does not wait until the fork
    server has imported torch; `prepare` waits. After `prepare`, the text `isolation` names the wall and what it does
    not prevent.
    """

    def __init__(self, kind: Kind | None = None, process: ForkServerProcess | None = None) -> None:
        self._lock = threading.Lock()
        self._started = process or ForkServerProcess(kind)
        self._process, self._folder, self._kind = self._started.process, self._started.folder, self._started.kind
        self._channel = Channel(self._started.end)
        self.isolation = "unknown"
        self._prepared: tuple[Any, ...] = ()  # what `prepare` was called for last

    def prepare(self, device: str, hidden: Sequence[Path] = ()) -> None:
        """Prepares the fork server to start workers for a device, chooses their wall and tests what the wall prevents.

        `device` is the device's name in this process. Workers get a few variables of the current environment and those
        of the device, which show them one GPU. The wall hides the paths in `hidden` from them, the device files of
        other GPUs, and the locks of the build cache. If no worker can start behind the wall, the next weaker wall is
        used. Raises WorkerCrashed if no worker can start even without a wall, WorkerFailed or RuntimeError if the test
        of the wall fails, and ForkServerGone if the fork server has ended or does not reply. Does nothing if the last
        call had the same arguments and environment.
        """
        chosen = devices.named(device)
        hidden_too = [*chosen.hidden_from_workers(), cache.locks()]
        paths = tuple(str(path.absolute()) for path in (*hidden, *hidden_too))
        environment = {**allowed(), **chosen.worker_variables()}
        wanted = device, environment, set(paths)
        if self._prepared == (*wanted, self._kind):
            return
        self._ask(PrepareDevice(chosen.name_in_workers, environment), Done, timeout_s=300)
        while True:
            self._ask(SetWall(self._kind, paths), Done)
            try:
                self.isolation = probe.describe(self._kind, self._gaps(hidden))
                self._prepared = *wanted, self._kind
                return
            except WorkerCrashed:
                if self._kind is Kind.NONE:
                    raise
                self._kind = sandbox.weaker(self._kind)

    def _gaps(self, hidden: Sequence[Path]) -> list[str]:
        """Starts a worker behind the present wall and returns what the wall does not prevent, as phrases.

        The worker tries to create a file in the checkout, the build cache, the temporary folder, the current folder and
        each folder in `hidden`. Raises WorkerFailed or RuntimeError if the worker does not reply as it should.
        """
        folders = {
            "checkout": IMPORT_ROOT, "build cache": cache.root(), "temporary folder": Path(tempfile.gettempdir()),
        }  # fmt: skip
        folders |= {"current folder": Path.cwd()} if Path.cwd() != IMPORT_ROOT else {}
        for path in filter(Path.is_dir, hidden):
            folders[path.name if path.name not in folders else str(path)] = path
        with probe.Bait(self._process.pid, folders) as bait, self.spawn(Limits()) as worker:
            reply = worker.request(bait.request(), Probed, timeout_s=60).taken()
            if not isinstance(reply, Probed):
                raise RuntimeError(f"the probe of the wall failed: {reply}")
            return bait.gaps(reply)

    def close(self) -> None:
        """Kills the fork server and all its descendants, and deletes the workers' folders. Safe to call twice."""
        self._started.close()
        self._channel.close()

    def spawn(self, limits: Limits) -> WorkerProcess:
        """Starts a worker and returns its handle. HOME, TMPDIR and the working directory are the worker's own folder.

        Raises ForkServerGone if the fork server has ended or does not reply.
        """
        ours, theirs = channel.pair()
        read, write = os.pipe2(os.O_CLOEXEC)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            inner_pid = self._ask(Fork(str(folder)), Forked, [theirs.fileno(), write]).pid
        finally:
            theirs.close()
            os.close(write)
        pid = inner_pid
        if self._kind is Kind.BUBBLEWRAP:
            below = [process.pid for process in process_tree.below(self._process.pid)]
            pid = bubblewrap.outer_pid(inner_pid, [self._process.pid, *below])
        return WorkerProcess(self, WorkerHandles(pid, inner_pid, ours, read, folder), limits)

    def file_bytes(self, pid: int, folder: Path) -> int:
        """Returns the bytes of the worker's files in memory. Counted only behind NAMESPACES; 0 behind any other wall.

        Files in `folder`, which is the worker's own folder, and in /dev/shm are counted. Those in /tmp are not. The
        result is also 0 until the worker has entered the wall. `pid` is the process number of the worker's reaper, in
        the judge's namespace.
        """
        if self._kind is not Kind.NAMESPACES:
            return 0
        total = 0
        for path in (folder, Path("/dev/shm")):
            with suppress(OSError):
                found = os.statvfs(f"/proc/{pid}/root{path}")
                # Until the worker has entered the wall, the paths are on the machine's file systems, of another size.
                if found.f_blocks * found.f_frsize == sandbox.DISK_BYTES:
                    total += (found.f_blocks - found.f_bfree) * found.f_frsize
        return total

    def exit_status(self, pid: int) -> int | None:
        """Returns a worker's wait status (the second value that `os.waitpid` returns), or None while the worker runs.

        `pid` is the process number of the worker's reaper, in the fork server's namespace. Raises ForkServerGone if the
        fork server has ended or does not reply.
        """
        return self._ask(GetExitStatus(pid), ExitStatus).status

    def _ask(self, request: Message, expected: type[R], descriptors: Sequence[int] = (), timeout_s: float = 60) -> R:
        """Sends `request` to the fork server and returns the reply, which is of the class `expected`.

        Raises ForkServerGone if the fork server has ended or does not reply within `timeout_s` seconds. After any
        exception, every later request raises ForkServerGone.
        """
        with self._lock:
            try:
                envelope.send(self._channel, request, descriptors=descriptors)
                received = envelope.receive(self._channel, [expected], timeout_s=timeout_s)
            except BaseException as error:
                self._channel.close()  # the next request would get the late reply to this one
                if not isinstance(error, (channel.Closed, TimeoutError)):
                    raise
                raise ForkServerGone(
                    "The fork server, which starts all workers, does not reply or was ended from outside, perhaps by a "
                    "candidate. Results so far are kept. Run the candidates one by one with --kernel to find this one."
                ) from None
        received.close()
        return received.message

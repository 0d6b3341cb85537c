"""The process that workers are forked from, as the judge holds it. What goes on in it is template's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from kernel_harness import channel, tree, wall
from kernel_harness.build import cache
from kernel_harness.channel import Channel, Message
from kernel_harness.errors import EnvironmentLacking
from kernel_harness.paths import PROBLEMS, ROOT
from kernel_harness.process import Limits, Worker, WorkerCrashed
from kernel_harness.wall import Kind, bubblewrap, probe

# What a worker inherits of the user's environment; everything else stays with the judge.
_ALLOWED = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CXX", "CC", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "TORCH_CUDA_ARCH_LIST", "OMP_NUM_THREADS", "MAX_JOBS", "VIRTUAL_ENV",
    "KERNEL_HARNESS_HEADERS",
)  # fmt: skip


class TemplateGone(EnvironmentLacking):
    """No worker can be started any more."""


class Template:
    """The process workers are forked from. As a context manager it ends with everything it started.

    It imports torch while its maker goes on; `prepare` waits for it. `kind` is the wall around its workers, by
    default the strongest that this machine has; `isolation` is what it was found to be worth.
    """

    def __init__(self, kind: Kind | None = None) -> None:
        self._lock = threading.Lock()
        self._kind = kind or wall.best()
        self.isolation = "unknown"
        ours, theirs = channel.pair()
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-harness-"))
        command = [sys.executable, "-m", "kernel_harness.template", str(theirs.fileno())]
        variables = environment(self._folder)
        if self._kind is Kind.BUBBLEWRAP:
            command = bubblewrap.around(command, variables, self._folder, [PROBLEMS, ROOT / "results"])
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=variables, stdin=subprocess.DEVNULL, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._channel = Channel(ours)

    def prepare(self, device: str, hidden: Sequence[Path] = ()) -> None:
        """Makes it ready to fork workers for a device, with the environment as it is now.

        What is `hidden` workers find empty. A wall that does not stand here gives way to the next.
        """
        self._ask({"do": "prepare", "device": device, "environment": _allowed()}, timeout_s=300)
        while True:
            self._ask({"do": "wall", "kind": self._kind, "hidden": [str(p.absolute()) for p in hidden]})
            try:
                self.isolation = probe.describe(self._kind, self._gaps(hidden))
                return
            except WorkerCrashed:
                if self._kind is Kind.NONE:
                    raise
                self._kind = wall.weaker(self._kind)

    def _gaps(self, hidden: Sequence[Path]) -> list[str]:
        """What a worker of ours is not stopped from doing."""
        folders = {"checkout": ROOT, "build cache": cache.root(), "temporary folder": Path(tempfile.gettempdir())}
        folders |= {path.name: path for path in hidden if path.is_dir()}
        with probe.Bait(self._process.pid, folders) as bait, self.spawn(Limits()) as worker:
            return bait.gaps(worker.ask(bait.message(), timeout_s=60).get("ok", {}))

    def __enter__(self) -> Template:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the template and every process below it. Safe to call twice."""
        while below := tree.below(self._process.pid):
            for process in below:
                tree.kill(process)
        self._channel.close()
        self._process.kill()  # it has nothing to save, and its interpreter takes half a second to end by itself
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def spawn(self, limits: Limits) -> Worker:
        """A new worker, with a folder of its own for HOME, TMPDIR and its working directory."""
        ours, theirs = channel.pair()
        read, write = os.pipe2(os.O_CLOEXEC)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            inner = self._ask({"do": "fork", "folder": str(folder)}, [theirs.fileno(), write])["pid"]
        finally:
            theirs.close()
            os.close(write)
        pid = inner
        if self._kind is Kind.BUBBLEWRAP:
            pid = bubblewrap.outside(self._process.pid, inner, [p.pid for p in tree.below(self._process.pid)])
        return Worker(self, pid, inner, ours, read, folder, limits)

    def bytes_in(self, pid: int, folder: Path) -> int:
        """Bytes of the files that a worker keeps where files are memory; 0 where they are on the disk."""
        if self._kind is not Kind.NAMESPACES:
            return 0
        total = 0
        for path in (folder, Path("/dev/shm")):
            with suppress(OSError):
                found = os.statvfs(f"/proc/{pid}/root{path}")
                # Until the worker is behind the wall these are the machine's own.
                if found.f_blocks * found.f_frsize == wall.DISK_BYTES:
                    total += (found.f_blocks - found.f_bfree) * found.f_frsize
        return total

    def status_of(self, pid: int) -> int | None:
        """How a worker ended, as waitpid has it; None while it runs."""
        status: int | None = self._ask({"do": "status", "pid": pid})["status"]
        return status

    def _ask(self, message: Message, descriptors: Sequence[int] = (), timeout_s: float = 60) -> Message:
        with self._lock:
            try:
                self._channel.send(message, descriptors)
                return self._channel.receive(timeout_s)[0]
            except (channel.Closed, TimeoutError):
                raise TemplateGone(
                    "The process that workers are forked from was ended from outside, perhaps by a candidate. "
                    "What had been measured is kept; run the candidates one by one with --kernel to find it."
                ) from None


def _allowed() -> dict[str, str]:
    return {name: os.environ[name] for name in _ALLOWED if name in os.environ}


def environment(home: Path) -> dict[str, str]:
    """What a worker sees of the user's environment, with a folder of its own for HOME and TMPDIR."""
    return {
        **_allowed(),
        "HOME": str(home),
        "TMPDIR": str(home),
        "KERNEL_HARNESS_CACHE": str(cache.root().absolute()),
        "PYTHONDONTWRITEBYTECODE": "1",
        # torch.utils.cpp_extension asks for a GPU on import; asked of the driver, that would start CUDA in the
        # template, and no fork of it could use CUDA. NVML answers without.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # Threads of numpy's BLAS in the template, and inductor's pool of compilers in a worker, would be forked,
        # stopped and resumed with the rest: seen as 4 ms in each call's bracket.
        "OPENBLAS_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
